"""A small Raft (Ongaro and Ousterhout 2014, figure 2): its contract, as `node.raft` keeps it over PySyncObj.

Entries are opaque. Pre-vote, votes of members that lost their disk, and members that come and go are as in `node.raft`;
an acknowledgement waits until the disk has the entry. What must survive a crash is `Disk`.
"""

from collections.abc import Callable

from node.raft.core.prevote import Poll, Standing, may_vote
from node.raft.founding.founding import Outlook
from node.raft.recovery.amnesia import AmnesiaAnswer
from tests.simulation.disk import Disk, Entry
from tests.simulation.disk_writer import DiskWriter
from tests.simulation.habits import Above, Habits
from tests.simulation.inquiry import Inquiry
from tests.simulation.recovery import Recovery, Vote
from tests.simulation.tracker import Tracker
from tests.simulation.world import World

ELECTION_S = (0.5, 1.0)
HEARTBEAT_S = 0.2
TICK_S = 0.125
QUORUM_S = 0.8
HASTY_S = 0.25
SOON_S = 0.002
KEPT = 5
"""Entries kept before a snapshot, at most."""


class Raft:
    """One member's Raft process."""

    def __init__(
        self, me: str, disk: Disk, world: World, habits: Habits, peer: Callable[[str], "Raft"], above: Above
    ) -> None:
        self.me, self.disk = me, disk
        self.leader: str | None = None
        self.commit = self.applied = 0
        self.leader_heard_s = float("-inf")
        self._world, self._habits, self._peer, self._above = world, habits, peer, above
        self._poll = Poll(disk.session)
        self._recovery = Recovery(me, disk, self._settle, world.now_s)
        self.inquiry = Inquiry(me, self._recovery, world, self._send_inquiry)
        self._theirs = ""
        self._votes: set[str] | None = None
        self._tracker = Tracker(me, disk)
        self.writer = DiskWriter(me, disk, world, self._written)
        self._owed: tuple[str, int, int] | None = None
        self._telling = False
        self._deadline_s = world.now_s + world.rng.uniform(*ELECTION_S)

    def start(self) -> None:
        """From the snapshot on: what was committed after it is learnt from the next leader, or by becoming it."""
        self.commit = self.applied = self.disk.snapshot
        self._above.restored(self.disk.snapshot)
        self._tick()

    @property
    def leading(self) -> bool:
        """Whether this one leads in its term."""
        return self.leader == self.me

    @property
    def has_quorum(self) -> bool:
        """As leader, whether a majority was heard lately; as follower, the leader."""
        since_s = self._world.now_s - QUORUM_S
        if not self.leading:
            return self.leader is not None and self.leader_heard_s > since_s
        return self._tracker.majority_heard(since_s, never_s=since_s)

    @property
    def applied_in_term(self) -> bool:
        """Whether an entry of the present term is applied."""
        return self.applied >= self.disk.base and self.disk.term_at(self.applied) == self.disk.term > 0

    @property
    def knowing(self) -> set[str]:
        """As leader, the members that have all changes of the members in their logs."""
        disk = self.disk
        changes = [index for index, entry in enumerate(disk.log, disk.base + 1) if entry.kind == "members"]
        known = max(changes, default=disk.base)
        return {self.me, *self._tracker.has(known)}

    def put(self, entry: Entry) -> bool:
        """Append an entry, if this one leads; otherwise it is lost."""
        if not self.leading:
            return False
        self.disk.append(entry._replace(term=self.disk.term))
        self.writer.write()
        self._soon()
        return True

    def lost(self, name: str) -> None:
        """A member's connection has ended. If it led, it may be dead: ask for an election soon."""
        if name == self.leader and not self.leading:
            self.leader_heard_s = float("-inf")
            self._deadline_s = min(self._deadline_s, self._world.now_s + HASTY_S * self._world.rng.uniform(0.2, 1.0))

    def rise(self) -> None:
        """Begin an election now, though there may be a leader: it hands over, or a timeout was too short."""
        if self.me in self.disk.members and self.disk.voter and not self.leading:
            self._campaign()

    def yield_lead(self) -> None:
        """Hand the lead over to the member with the longest log."""
        to_lead = self._tracker.longest(self._others(), at_least=self.commit)
        if self.leading and to_lead is not None:
            self._send(to_lead, lambda to: to.rise())

    # elections

    def _patience(self) -> None:
        self._deadline_s = self._world.now_s + self._world.rng.uniform(*ELECTION_S)

    def _tick(self) -> None:
        if self.leading:
            self._broadcast()
            since_s = self._world.now_s - self._habits.fallback_s
            if not self._tracker.majority_heard(since_s):
                self.leader = None
                self._patience()
        elif self._world.now_s >= self._deadline_s:
            self._ask()
        if self._recovery.is_time(self._world.now_s):
            # A new member knows the members that added it, also while its log is at a time before they were members.
            life, known = self.disk.life, dict.fromkeys((*self.disk.first_members, *self.disk.members))
            for name in known:
                if name != self.me:
                    self._send(name, lambda to: to.asked_to_recall(self.me, life))
        self.inquiry.ask()
        self._above.turned()
        self._world.within(self.me, "raft", HEARTBEAT_S if self.leading else TICK_S, self._tick, last=True)

    def _ask(self) -> None:
        self._patience()
        if not self._recovery.may_stand or self.me not in self.disk.members:
            return
        if self.disk.voter and not self._habits.prevote:
            self._campaign()
            return
        number, mine, founding = self._poll.begin(self.me), self.disk.standing, self._recovery.founding.founding
        for name in self._others():
            self._send(name, lambda to: to.asked_beforehand(self.me, number, mine, founding))
        self._polled()

    def asked_beforehand(self, candidate: str, number: int, theirs: Standing, founding: str) -> None:
        """Pre-vote."""
        able = self._may_vote(theirs, founding)
        led = self.leading or (
            self.leader not in (None, candidate) and self._world.now_s - self.leader_heard_s < ELECTION_S[0]
        )
        granted, term = able and not led, self.disk.term
        self._send(candidate, lambda to: to.answered_beforehand(self.me, number, term, granted=granted))

    def answered_beforehand(self, voter: str, number: int, term: int, *, granted: bool) -> None:
        """Whether a member would vote for this one."""
        self._see(term)
        if granted:
            self._poll.answer(number, voter)
            self._polled()

    def _polled(self) -> None:
        if self._poll.won(self.disk.members) and not self.leading and self._recovery.may_stand:
            self._campaign()

    def _campaign(self) -> None:
        self.disk.voter = True
        self._enter(self.disk.term + 1, vote=self.me)
        self._votes = set()
        self._patience()
        term, mine, life = self.disk.term, self.disk.standing, self.disk.life
        founding = self._recovery.founding.founding
        for name in self._others():
            self._send(name, lambda to: to.asked(self.me, term, mine, life, founding))
        self.voted(self.me, term, self._recovery.stamp(life))

    def asked(self, candidate: str, term: int, theirs: Standing, life: int, founding: str) -> None:
        """RequestVote."""
        disk = self.disk
        if disk.voter and not self._habits.prevote:
            self._see(term)  # otherwise a member that cannot be elected would block those that can
        if not self._may_vote(theirs, founding):
            return
        self._see(term)
        if term < disk.term:
            self._send(candidate, lambda to: to.late(disk.term))
        if term < disk.term or disk.vote not in (None, candidate):
            return
        disk.vote, disk.voter = candidate, True
        self._patience()
        vote = self._recovery.stamp(life)
        self._send(candidate, lambda to: to.voted(self.me, term, vote))

    def voted(self, voter: str, term: int, vote: Vote) -> None:
        """A vote for this one."""
        counts = self._recovery.counts(term, voter, vote)
        if term != self.disk.term or self._votes is None or not counts:
            return
        self._votes.add(voter)
        if 2 * len(self._votes & set(self.disk.members)) > len(self.disk.members):
            self._votes = None
            self.leader = self.me
            self._tracker.begin(self._world.now_s)
            self.put(Entry(term, "nothing", b""))
            self._above.turned()

    def asked_to_recall(self, asking: str, life: int) -> None:
        """A member that does not remember asks how things stand."""
        base = self.disk.members_at(max(self.commit, self.disk.base))
        answer = self._recovery.asked(asking, life, base, leads=self.leading)
        self._send(asking, lambda to: to.told(self.me, answer))

    def told(self, member: str, answer: AmnesiaAnswer) -> None:
        """How things stand with a member."""
        self._recovery.told(member, answer)

    @property
    def outlook(self) -> Outlook:
        """What is waited for while there is no cluster."""
        return None if self.disk.cluster_id else self._recovery.founding.outlook(self._world.now_s)

    def late(self, term: int) -> None:
        """A member knows a later term."""
        self._see(term)

    # the log

    def append(self, leader: str, term: int, prev: int, prev_term: int, entries: list[Entry], commit: int) -> None:
        """AppendEntries: `entries` follow `prev`. Truncates on conflict only."""
        if not self._follow(leader, term):
            return
        disk = self.disk
        if prev < disk.base:  # what is in the snapshot is committed, and so the same
            entries, prev_term, prev = entries[disk.base - prev :], disk.base_term, max(prev, disk.base)
        if prev > disk.last or disk.term_at(prev) != prev_term:
            hint = min(prev - 1, disk.last)
            self._send(leader, lambda to: to.appended(self.me, term, None, hint))
            return
        for index, entry in enumerate(entries, prev + 1):
            if index <= disk.last and disk.term_at(index) != entry.term:
                if index <= self.commit:
                    self._world.wrong(f"entry {index}, committed, is taken back on {self.me}")
                    return
                disk.truncate(index - 1)
            if index > disk.last:
                disk.append(entry)
        matched = prev + len(entries)
        self._owe(leader, term, matched)
        self._advance(min(commit, matched))

    def snapshot(self, leader: str, term: int, index: int, at_term: int, members: tuple[str, ...]) -> None:
        """InstallSnapshot. What is here already is not loaded over it."""
        if not self._follow(leader, term):
            return
        disk = self.disk
        here = disk.base <= index <= disk.last and disk.term_at(index) == at_term
        if index > self.commit and not here:
            disk.install(index, at_term, members)
            self.commit = self.applied = index
            self._above.restored(index)
        self._owe(leader, term, max(index, disk.base) if here else index)

    def appended(self, follower: str, term: int, matched: int | None, hint: int) -> None:
        """The answer to both; `matched` None: the logs differ, go on from `hint`."""
        if term != self.disk.term or not self.leading:
            return
        self._tracker.heard(follower, self._world.now_s)
        if matched is None:
            self._tracker.differs(follower, hint)
            self._send_entries(follower)
            return
        self._tracker.matches(follower, matched)
        if self._tracker.lags(follower):
            self._send_entries(follower)
        self._count()

    def _follow(self, leader: str, term: int) -> bool:
        """Whether the message is of the present leadership."""
        if term < self.disk.term:
            later = self.disk.term
            self._send(leader, lambda to: to.late(later))
            return False
        if not self._recovery.may_follow:
            return False
        # Before any of it is acknowledged, as in `node.raft.core.inbound`.
        self.disk.cluster_id = self.disk.cluster_id or self._theirs
        self._see(term)
        self._poll.open, self._votes, self.leader = False, None, leader
        self.leader_heard_s = self._world.now_s
        self._patience()
        return True

    def _owe(self, leader: str, term: int, matched: int) -> None:
        """Acknowledge as soon as it is durable."""
        owed = self._owed
        if owed is None or owed[1] != term or owed[2] <= matched:
            self._owed = (leader, term, matched)
        self.writer.write()
        self._pay()

    def _pay(self) -> None:
        if self._owed is None or self._owed[2] > self.disk.durable:
            return
        leader, term, matched = self._owed
        self._owed = None
        if term != self.disk.term:
            return
        self._recovery.matches(term, matched)
        self._send(leader, lambda to: to.appended(self.me, term, matched, 0))

    def _written(self) -> None:
        self._pay()
        self._count()

    def _count(self) -> None:
        """As leader: what a majority has is committed, if it is of this term."""
        if self.leader != self.me or self.commit >= self.disk.last:
            return
        agreed = self._tracker.agreed()
        if agreed > self.commit and self.disk.term_at(agreed) == self.disk.term:
            self._advance(agreed)
            self._soon()

    def _advance(self, commit: int) -> None:
        self.commit = max(self.commit, commit)
        while self.applied < self.commit:
            self.applied += 1
            self._above.applied(self.applied, self.disk.entry(self.applied))
        if self.applied - self.disk.snapshot >= self._habits.snapshot_every:
            self.disk.compact(self.applied, self._world.rng.randint(0, KEPT))

    def _may_vote(self, theirs: Standing, founding: str) -> bool:
        recovery = self._recovery
        if not recovery.same(founding, theirs):
            return False
        return may_vote(self.disk.voter, recovery.first_election, self.disk.standing, theirs)

    def _settle(self, term: int, vote: str) -> None:
        if term > self.disk.term:
            self._enter(term, vote)
        self.disk.vote = vote

    def _see(self, term: int) -> None:
        if term > self.disk.term:
            self._enter(term, vote=None)

    def _enter(self, term: int, vote: str | None) -> None:
        self.disk.term, self.disk.vote, self._votes, self.leader = term, vote, None, None
        self._above.new_term()

    def _others(self) -> list[str]:
        return [name for name in self.disk.members if name != self.me]

    def _soon(self) -> None:
        """Tell the others what is new, all of it at once."""
        if not self._telling:
            self._telling = True
            self._world.within(self.me, "raft", SOON_S, self._broadcast)

    def _broadcast(self) -> None:
        self._telling = False
        if not self.leading:
            return
        for name in self._others():
            self._send_entries(name)

    def _send_entries(self, name: str) -> None:
        disk, me, term, commit = self.disk, self.me, self.disk.term, self.commit
        prev = self._tracker.sent_up_to(name)
        if prev < disk.base:
            index, at_term, members = disk.snapshot, disk.term_at(disk.snapshot), disk.members_at(disk.snapshot)
            self._send(name, lambda to: to.snapshot(me, term, index, at_term, members))
            return
        entries, prev_term = disk.after(prev, self._habits.entries_at_once), disk.term_at(prev)
        self._tracker.sent(name, prev + len(entries))
        self._send(name, lambda to: to.append(me, term, prev, prev_term, entries, commit))

    def _send(self, name: str, call: Callable[["Raft"], None]) -> None:
        cluster_id = self.disk.cluster_id
        if name not in self._world.machines:
            return

        def come() -> None:
            to = self._peer(name)
            if to.takes(self.me, cluster_id):
                call(to)

        self._world.send(self.me, name, "raft", come)

    def _send_inquiry(self, name: str, call: Callable[[Inquiry], None]) -> None:
        self._send(name, lambda to: call(to.inquiry))

    def takes(self, sender: str, cluster_id: str) -> bool:
        """Whether a message of a member of that cluster is taken; one that is of none knows now that there is one."""
        self._theirs = cluster_id
        here = self.disk.cluster_id
        if cluster_id and not here:
            self._recovery.founding.hear_of(cluster_id, sender)
        return not here or not cluster_id or here == cluster_id
