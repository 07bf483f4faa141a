"""One member's part in the consensus: combines PySyncObj's core with Rota's own parts around it."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from pysyncobj import SyncObjConf
from pysyncobj.node import Node

from node.identity.cluster_id import ClusterId
from node.identity.mismatches import Mismatches
from node.raft.core.elections import Elections
from node.raft.core.inbound import Inbound
from node.raft.core.overrides import MendedSyncObj
from node.raft.core.parts import SingleCallsPort
from node.raft.core.prevote import Standing
from node.raft.environment import Environment
from node.raft.founding.inquiry import FoundingInquiry
from node.raft.log import membership
from node.raft.log.log_store import CLUSTER_ID, LogStore
from node.raft.log.snapshots import Snapshots
from node.raft.ports import EntryApplier, RaftTiming
from node.raft.recovery.amnesia_recovery import AmnesiaRecovery
from node.raft.transport.transport import Transport
from node.raft.wire.addresses import AddressBook
from node.raft.wire.encryption import CallerClaim
from node.raft.wire.messages import Message

_SHORTEST_WAIT_S = 0.001
"""The shortest wait of a tick, so that the thread does not spin: work that is due is done in this tick or the next."""

CARE_S = 0.2
"""The interval of `_care` (founding, dials, other starts of this member) while `_is_complete`."""

APART = 0.5
"""Each member's limit on its log is higher by up to this share, so that the members compact one after another."""

_FOLLOWER, _CANDIDATE = 0, 1


@dataclass(frozen=True, slots=True)
class ConsensusMember:
    """The identity of this member, and the values that its parts share."""

    #: The member's id.
    me: str
    #: The members' addresses.
    book: AddressBook
    #: The intervals and sizes.
    timing: RaftTiming
    #: The cluster to which the member belongs; filled in by `Consensus` if it is not known yet.
    cluster: ClusterId
    #: Identifies this start of the process.
    start_id: str = ""
    #: This member's build, and the incompatible nodes, which `Consensus` records.
    mismatches: Mismatches = field(default_factory=Mismatches)


class Consensus(MendedSyncObj):
    """One member's part in the consensus. After construction, all calls must come from one thread, except `wake`."""

    elections: Elections
    transport: Transport
    _SyncObj__newAppendEntriesTime: float

    def __init__(
        self,
        member: ConsensusMember,
        store: LogStore,
        conf: SyncObjConf,
        applier: EntryApplier,
        environment: Environment | None = None,
    ) -> None:
        self.me, self.start_id = member.me, member.start_id
        self.mismatches, self.version = member.mismatches, member.mismatches.version
        self.timing, self.cluster, self.book = member.timing, member.cluster, member.book
        self._environment = environment or Environment()
        self.clock, self.rng = self._environment.clock, self._environment.rng
        self.applier = applier
        self.journal = store.journal
        self.snapshots = Snapshots(store.snapshot, applier.capture, self._cluster_at, self._cut_at, self.clock)
        self.snapshots.header = store.header
        self.behind = False
        self._care_s = float("-inf")
        self.elections = Elections(self)
        self.recovery = AmnesiaRecovery(self, store.journal, self._SyncObj__setCurrentTerm)
        self.inquiry = FoundingInquiry(self, store.journal)
        self.inbound = Inbound(self)
        self._first_cluster = tuple(store.journal.note("cluster").split("\n"))
        book = member.book
        others = {book.node(text) for text in store.cluster} - {book.node(self.me)}
        super().__init__(
            book.node(self.me), others, conf, nodeClass=book.node, transportClass=self._environment.transport
        )
        self.transport = self._SyncObj__transport
        self.snapshots.room = self.transport.has_room
        self._SyncObj__serializer = self.snapshots
        self.journal.leads = lambda: self.is_leader
        if store.header is not None:
            self._SyncObj__loadDumpFile(clearJournal=False)
        self.journal.flush()

    def single_calls(
        self, on_answer: Callable[[Node, Any, Message], None], on_end: Callable[[Node], None] = lambda _node: None
    ) -> SingleCallsPort:
        """Make connections that carry one question each; the arguments are those of `single_call.SingleCalls`."""
        return self._environment.single_calls(self, on_answer, on_end)

    # -- queries and actions for the adapter and the parts

    @property
    def claim(self) -> CallerClaim:
        """This member's id and version, as sent to a called node before either side is authenticated."""
        return CallerClaim(self.me, self.version)

    @property
    def is_leader(self) -> bool:
        """Whether this member is the leader, by the library's state."""
        return bool(self._isLeader())

    @property
    def is_candidate(self) -> bool:
        """Whether this member has asked for votes, and the election is still open."""
        return bool(self._SyncObj__raftState == _CANDIDATE)

    def hears_leader(self) -> bool:
        """Whether this member leads, or has heard the leader within `timing.quorum_s`."""
        heard_lately = self.clock() - self.inbound.leader_heard_s < self.timing.quorum_s
        return self.is_leader or (heard_lately and self.leader_node() is not None)

    def is_settled(self) -> bool:
        """Whether this process may take part in elections, since it is the member's only one (`start_claim`)."""
        return self.transport.duplicate_starts.settled

    def fence(self) -> int:
        """Return the latest term in which another process of this member may have voted (`start_claim`)."""
        return self.transport.duplicate_starts.claim.fence

    def leader_node(self) -> Node | None:
        """Return the leader that was heard last in this term."""
        node: Node | None = self._getLeader()
        return node

    def standing(self) -> Standing:
        """Return the term and index of the log's last entry."""
        return Standing(self.journal[-1][2], self.journal[-1][1])

    @property
    def applied_in_term(self) -> bool:
        """Whether an entry of the present term is applied. Then all entries committed in earlier terms are applied too.

        False while committed entries wait to be applied, as after a start.
        """
        index: int = self.raftLastApplied
        term: int = self.raftCurrentTerm
        return not self.behind and index >= self.journal.first_index and self.journal.term_at(index) == term > 0

    def voted_in(self, term: int) -> bool:
        """Whether this member has given its vote in a term."""
        return bool(self.raftCurrentTerm == term and self._SyncObj__votedForNodeId is not None)

    def join_cluster(self, cluster_id: str) -> None:
        """Note this member's cluster, unless it is known already. Durable at the journal's next flush."""
        if cluster_id and not self.cluster.known:
            self.cluster.known = cluster_id
            self.journal.set_note(CLUSTER_ID, cluster_id)
            self.transport.announce()

    def agreed_members(self) -> list[str]:
        """Return the members as of the last entry that is known to be committed, each as "id host port"."""
        if self.is_changing:
            return list(self._cluster_at(self.raftCommitIndex))
        return sorted(self.book.text(member) for member in self.members())

    def begin_with(self, cluster: Iterable[str]) -> None:
        """Set the initial members of the empty log, each as "id host port". Durable at the journal's next flush."""
        first = tuple(sorted(cluster))
        if first == self._first_cluster:
            return
        self._first_cluster = first
        self.journal.set_note("cluster", "\n".join(first))
        others = {self.book.node(member) for member in first} - {self.book.node(self.me)}
        self._SyncObj__updateClusterConfiguration(others)

    def next_index(self, node: Node) -> int:
        """Return the index of the next entry to send to a member."""
        return int(self._SyncObj__raftNextIndex.get(node, 0))

    def keep_next_index(self, node: Node, index: int) -> None:
        """Move a member's next index to `index` at least, because the library moves it back on each acknowledgement.

        Otherwise entries that are under way would be sent again.
        """
        known = self._SyncObj__raftNextIndex
        if node in known:
            known[node] = max(known[node], index)

    def adopt_term(self, term: int) -> None:
        """Become a follower in a later term, without having voted in it."""
        self._SyncObj__setCurrentTerm(term, None)
        self._SyncObj__setState(_FOLLOWER)
        self._SyncObj__raftLeader = None

    def connection_lost(self, node: Node) -> None:
        """Note that a member's connection has ended. If the member is the leader, ask for votes soon."""
        if node == self.leader_node() and not self.is_leader:
            self.inbound.leader_heard_s = float("-inf")
            self.elections.hasten()

    def send_to_all(self, message: Message) -> None:
        """Send a message to all other members."""
        for node in self._SyncObj__otherNodes:
            self.transport.send(node, message)

    def put(self, data: bytes) -> None:
        """Propose an entry. The caller learns that it is committed when it is applied."""
        self._applyCommand(membership.REGULAR + data, None)

    def change(self, packed: bytes, answer: Callable[[Any, int], None]) -> None:
        """Propose a change of membership (`membership.change_command`)."""
        self._applyCommand(packed, answer, membership.MEMBERSHIP)

    def is_committed(self, there: bool, member: str) -> bool:
        """Whether the log has `member` (or, if not `there`, lacks it), and all changes in the log are committed."""
        return bool(not self.is_changing and self.applied_in_term and (member in self.members()) == there)

    # -- one turn

    def wake(self) -> None:
        """Wake the thread that waits in `tick`. May be called from any thread."""
        self._SyncObj__pipeNotifier.notify()

    @property
    def waited_s(self) -> float:
        """The time that the last tick waited for messages."""
        return float(self._poller.waited_s)

    def tick(self, wait_s: float) -> None:
        """Do the work that is due. Then wait for messages until the next work is due, but at most `wait_s`."""
        complete = self._is_complete()
        now_s = self.clock()
        if not complete or now_s >= self._care_s:
            self._care_s = now_s + CARE_S
            self._care(now_s)
        self.elections.step()
        self.doTick(self._wait_s(wait_s, complete))
        if self._log_is_long() and not self.snapshots.writing:
            self.forceLogCompaction()

    def _is_complete(self) -> bool:
        """Whether this member has its cluster, its vote, a leader and a connection with each other member."""
        settled = self.cluster.known and self.recovery.votes and self.is_settled() and self.hears_leader()
        return bool(settled) and all(map(self.transport.reached, self.transport.others()))

    def _care(self, now_s: float) -> None:
        """Continue the work on founding, recovery, dials and other starts of this member."""
        self.transport.duplicate_starts.step()
        self.inquiry.step()
        self.recovery.step()
        self.transport.care(now_s)

    def _wait_s(self, longest_s: float, complete: bool) -> float:
        """Return how long this tick may wait: at most `tick_s` while a dial, founding or snapshot is under way."""
        if self.behind:
            return 0.0
        tick_s = min(longest_s, self.timing.tick_s)
        if tick_s == longest_s or not complete or self.snapshots.writing:
            return tick_s
        now = self.clock()
        if self.is_leader:
            next_s = self._SyncObj__newAppendEntriesTime
            due_s = next_s if next_s > now else now + self.timing.heartbeat_s  # a due heartbeat is sent now
        else:
            due_s = min(self.elections.due_s, self.inbound.leader_heard_s + self.timing.quorum_s)
        return float(min(longest_s, max(due_s - now, _SHORTEST_WAIT_S)))

    def _log_is_long(self) -> bool:
        """Whether the log is due for compaction. Each member has its own limit, so that they compact one by one.

        While committed entries wait to be applied, as after a start, the log may be twice as long, because a snapshot
        would delay these entries and would soon be outdated.
        """
        entries = len(self.journal) / self.timing.log_entries
        size = self.journal.bytes / max(self.timing.log_bytes, self.snapshots.bytes // 2)
        filled = max(entries, size) / (2.0 if self.behind else 1.0)
        if filled <= 1.0:
            return False
        members = sorted(self.members())
        return filled > 1.0 + APART * members.index(self.me) / len(members)

    def _cut_at(self, index: int) -> int:
        """Return the index of the first entry to keep after a snapshot. Some older entries stay for slow followers."""
        return self.journal.reaching_back(index, self.timing.log_entries // 5, self.timing.log_bytes // 4)

    def _cluster_at(self, index: int) -> tuple[str, ...]:
        """Return the members as of an index of the log, each as "id host port". A snapshot stores them."""
        header = self.snapshots.header
        entries = [entry for entry in self.journal.after(header.index if header else 0) if entry[1] <= index]
        known = membership.after(header.cluster if header else self._first_cluster, entries)
        return tuple(self.book.text(member.split(" ", 1)[0]) for member in known)

    def close(self) -> None:
        """Close all connections and files."""
        self.inquiry.close()
        self.destroy()
        self.snapshots.close()
        self.journal.close()
        notifier = self._SyncObj__pipeNotifier
        self._poller.unsubscribe(notifier._PipeNotifier__pipeR)
        os.close(notifier._PipeNotifier__pipeR)
        os.close(notifier._PipeNotifier__pipeW)
