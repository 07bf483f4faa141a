# ruff: noqa: N802, N803 - the library's names
"""PySyncObj's consensus, with what it lacks put in through the names that its source uses for its private parts.

`_SyncObj__...` are those private parts (Python's mangled names). The library offers no other way to bring a
journal and a serializer of one's own, or to apply bytes as they are. A unit test notices if a version of the
library has not got them.
"""

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pysyncobj import SyncObj, SyncObjConf, syncobj
from pysyncobj.journal import Journal
from pysyncobj.monotonic import monotonic
from pysyncobj.node import Node

from node.identity.cluster_id import ClusterId
from node.raft import membership, snapshot
from node.raft.addresses import Book
from node.raft.amnesia_recovery import Recovery
from node.raft.elections import Elections
from node.raft.encryption import mend_encryptor
from node.raft.errors import Broken
from node.raft.founding_inquiry import Inquiry
from node.raft.inbound import Intake
from node.raft.log_store import CLUSTER_ID, LogStore
from node.raft.messages import COMMAND_BYTES
from node.raft.ports import RaftTiming
from node.raft.prevote import Standing
from node.raft.snapshots import Capture, Snapshots
from node.raft.transport import Transport

logger = logging.getLogger(__name__)

BATCH_BYTES = COMMAND_BYTES
"""Entries beyond this take a path in the library that pickles them and cuts them wrongly; ours stay under 1 MiB."""

APPLIED_AT_ONCE = 64
APPLIED_BYTES = 128 << 10
"""So many committed entries, and about so many bytes of them, are applied before messages are looked at again. After a
start there are thousands, and this thread answers nobody meanwhile."""

APART = 0.5
"""The members compact one by one: the log of the last may grow beyond the limit by nearly this share of it."""

_FOLLOWER, _CANDIDATE = 0, 1

_NEVER = 1 << 62  # `tick` says when

_create_journal = syncobj.createJournal


def _our_journal(journal: object) -> object:
    """Lets `SyncObjConf.journalFile` be a journal."""
    return journal if isinstance(journal, Journal) else _create_journal(journal)


syncobj.createJournal = _our_journal
mend_encryptor()


def configuration(timing: RaftTiming, secret: str, bind: str, journal: Journal) -> SyncObjConf:
    """The library's settings. `bind` is "host:port"."""
    return SyncObjConf(
        password=secret,
        autoTick=False,
        bindAddress=bind,
        maxBindRetries=1,
        journalFile=journal,
        raftMinTimeout=timing.election_min_s,
        raftMaxTimeout=timing.election_max_s,
        appendEntriesPeriod=timing.heartbeat_s,
        appendEntriesUseBatch=False,
        appendEntriesBatchSizeBytes=BATCH_BYTES,
        leaderFallbackTimeout=timing.fallback_s,
        connectionTimeout=timing.silent_s,
        connectionRetryTime=timing.redial_s,
        dynamicMembershipChange=True,
        logCompactionMinEntries=_NEVER,
        logCompactionMinTime=_NEVER,
        sendBufferSize=256 << 10,
        recvBufferSize=256 << 10,
    )


class Consensus(SyncObj):  # type: ignore[misc]  # the library ships no types
    """One member's part in the consensus. All of it is used in one thread, once it is made."""

    _SyncObj__raftCommitIndex: int

    def __init__(
        self,
        me: str,
        folder: LogStore,
        book: Book,
        timing: RaftTiming,
        conf: SyncObjConf,
        cluster: ClusterId,
        apply: Callable[[bytes], None],
        capture: Capture,
        restore: Callable[[Iterator[bytes]], None],
        on_term: Callable[[int], None] = lambda _term: None,
        start_id: str = "",
    ) -> None:
        self.me = me
        self.start_id = start_id
        self._on_term = on_term
        self.timing = timing
        self.journal = folder.journal
        self.cluster = cluster
        self.snapshots = Snapshots(folder.snapshot, capture, self._cluster_at, self._cut_at)
        self.snapshots.header = folder.header
        self.behind = False
        self.elections = Elections(self)
        self.recovery = Recovery(self, folder.journal, self._SyncObj__setCurrentTerm)
        self.inquiry = Inquiry(self, folder.journal)
        self.intake = Intake(self)
        self.transport: Transport
        self.book = book
        self._apply = apply
        self._restore = restore
        self._first_cluster = tuple(folder.journal.note("cluster").split("\n"))
        others = {book.node(member) for member in folder.cluster} - {book.node(me)}
        super().__init__(book.node(me), others, conf, nodeClass=book.node, transportClass=Transport)
        self.transport = self._SyncObj__transport
        self.snapshots.room = self.transport.has_room
        self._SyncObj__serializer = self.snapshots
        self.journal.leads = lambda: self.is_leader
        if folder.header is not None:
            self._SyncObj__loadDumpFile(clearJournal=False)
        self.journal.flush()

    # -- what the adapter and the intake ask

    @property
    def is_leader(self) -> bool:
        """Whether the library says so."""
        return bool(self._isLeader())

    @property
    def is_candidate(self) -> bool:
        """Whether this member has asked for votes, and has not heard what came of it."""
        return bool(self._SyncObj__raftState == _CANDIDATE)

    def hears_leader(self) -> bool:
        """Whether this member leads, or has heard who leads a moment ago."""
        heard_lately = monotonic() - self.intake.leader_heard_s < self.timing.quorum_s
        return self.is_leader or (heard_lately and self.leader_node() is not None)

    def is_settled(self) -> bool:
        """Whether this start of the member may take part in elections (`claim`)."""
        return self.transport.namesakes.settled

    def fence(self) -> int:
        """The latest term in which another start of this member may have voted (`claim`)."""
        return self.transport.namesakes.claim.fence

    def leader_node(self) -> Node | None:
        """The leader that was heard last in this term."""
        node: Node | None = self._getLeader()
        return node

    def members(self) -> set[str]:
        """The ids of all members, by the log as it is here."""
        return {node.id for node in self._SyncObj__otherNodes} | {self.me}

    def standing(self) -> Standing:
        """How far the log is."""
        return Standing(self.journal[-1][2], self.journal[-1][1])

    @property
    def applied_in_term(self) -> bool:
        """Whether an entry of the present term is applied: then all that was committed before it is, too.

        But not while something waits for its turn to be applied, which was committed when this member started.
        """
        index: int = self.raftLastApplied
        term: int = self.raftCurrentTerm
        return not self.behind and index >= self.journal.first_index and self.journal.term_at(index) == term > 0

    def voted_in(self, term: int) -> bool:
        """Whether this member has given its vote in a term."""
        return bool(self.raftCurrentTerm == term and self._SyncObj__votedForNodeId is not None)

    def belong_to(self, cluster_id: str) -> None:
        """Be of a cluster from now on, unless this member is of one. With the next flush of the journal, for good."""
        if cluster_id and not self.cluster.known:
            self.cluster.known = cluster_id
            self.journal.set_note(CLUSTER_ID, cluster_id)
            self.transport.announce()

    def agreed_members(self) -> list[str]:
        """The members by what is known to be committed: "id host port" each."""
        if self._changing:
            return list(self._cluster_at(self.raftCommitIndex))
        return sorted(self.book.text(member) for member in self.members())

    def begin_with(self, cluster: Iterable[str]) -> None:
        """Nothing is in the log here: it begins with these members ("id host port" each). With the next flush."""
        first = tuple(sorted(cluster))
        if first == self._first_cluster:
            return
        self._first_cluster = first
        self.journal.set_note("cluster", "\n".join(first))
        others = {self.book.node(member) for member in first} - {self.book.node(self.me)}
        self._SyncObj__updateClusterConfiguration(others)

    def next_index(self, node: Node) -> int:
        """The index of the entry that a member is sent next."""
        return int(self._SyncObj__raftNextIndex.get(node, 0))

    def keep_next_index(self, node: Node, index: int) -> None:
        """Do not send again what is under way: the library moves back on every acknowledgement."""
        known = self._SyncObj__raftNextIndex
        if node in known:
            known[node] = max(known[node], index)

    def _SyncObj__setCurrentTerm(self, term: int, voted: str | None) -> None:
        """Term and vote are kept, and a new term told, before anything is sent in it.

        The heartbeats must not answer in a term that this member has left with its vote (DESIGN.md, section 7).
        """
        before = self.raftCurrentTerm
        super()._SyncObj__setCurrentTerm(term, voted)
        if term != before:
            self._on_term(term)

    def adopt(self, term: int) -> None:
        """A later term is known: follow, and vote for nobody yet."""
        self._SyncObj__setCurrentTerm(term, None)
        self._SyncObj__setState(_FOLLOWER)
        self._SyncObj__raftLeader = None

    def lost(self, node: Node) -> None:
        """A member's connection has ended. If it was the leader, it may be dead: ask for an election soon."""
        if node == self.leader_node() and not self.is_leader:
            self.intake.leader_heard_s = float("-inf")
            self.elections.hasten()

    def tell_all(self, message: dict[str, Any]) -> None:
        """Send a message to all other members."""
        for node in self._SyncObj__otherNodes:
            self.transport.send(node, message)

    def put(self, data: bytes) -> None:
        """Propose an entry; whether it gets anywhere shows when it is applied."""
        self._applyCommand(membership.REGULAR + data, None)

    def change(self, packed: bytes, answer: Callable[[Any, int], None]) -> None:
        """Propose a change of membership (`membership.pack`)."""
        self._applyCommand(packed, answer, membership.MEMBERSHIP)

    def is_committed(self, there: bool, member: str) -> bool:
        """Whether the log has made somebody a member (or not one), and all changes in it are committed."""
        return bool(not self._changing and self.applied_in_term and (member in self.members()) == there)

    @property
    def _changing(self) -> bool:
        """Whether a change of membership is in the log that is not committed yet, as far as is known here."""
        return membership.changes(self.journal.after(self.raftCommitIndex))

    def wake(self) -> None:
        """End the present tick's waiting. May be called from any thread."""
        self._SyncObj__pipeNotifier.notify()

    def tick(self, wait_s: float) -> None:
        """Do what is due, then wait for messages for so long at most."""
        self.transport.namesakes.step()
        self.inquiry.step()
        self.recovery.step()
        self.elections.step()
        self.doTick(0.0 if self.behind else wait_s)
        if self._log_is_long() and not self.snapshots.writing:
            self.forceLogCompaction()

    def _log_is_long(self) -> bool:
        """Whether the log is to be compacted. Each member has its own measure, so that they do it one by one.

        While committed entries wait to be applied, as after a start, the log may be twice as long: a snapshot of what
        is applied by then would take the time from them, and be followed by another.
        """
        entries = len(self.journal) / self.timing.log_entries
        size = self.journal.bytes / max(self.timing.log_bytes, self.snapshots.bytes // 2)
        filled = max(entries, size) / (2.0 if self.behind else 1.0)
        if filled <= 1.0:
            return False
        members = sorted(self.members())
        return filled > 1.0 + APART * members.index(self.me) / len(members)

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

    # -- put in the place of the library's own

    @property
    def _SyncObj__raftElectionDeadline(self) -> float:
        return self.elections.deadline_s

    @_SyncObj__raftElectionDeadline.setter
    def _SyncObj__raftElectionDeadline(self, deadline_s: float) -> None:
        """What puts the deadline off ends a handing over, too: the library would heed no heartbeat, and stand later."""
        self.elections.deadline_s = deadline_s
        self._SyncObj__transferInProgress = False

    def _SyncObj__doApplyCommand(self, command: bytes) -> None:
        """Apply entries as bytes. Changes of membership count from the moment they are in the log, not from here."""
        if command[:1] == membership.REGULAR:
            self._apply(command[1:])

    def _SyncObj__parseChangeClusterRequest(self, command: bytes) -> list[str] | None:
        """The change of membership in a command; None if it is of another kind. The library unpickles it.

        Raises UnreadableChange: only for what is in the log already. `messages` lets no such thing in.
        """
        return list(membership.unpack(command)) if command[0] == membership.MEMBERSHIP else None

    def _SyncObj__applyLogEntries(self) -> bool:
        """As leader, tell the others what is committed before applying it here: one of them may be waited for.

        The library applies all of it at once; here `behind` says that some is left to the next tick. Returns whether
        the others have yet to be told.
        """
        committed: int = self.raftCommitIndex
        told = self.is_leader and committed > self.raftLastApplied
        if told:
            self._SyncObj__sendAppendEntries()
        self._SyncObj__raftCommitIndex = min(committed, self._portion_end())
        try:
            applied = bool(SyncObj._SyncObj__applyLogEntries(self))
        finally:
            self._SyncObj__raftCommitIndex = committed
        self.behind = self.raftLastApplied < committed
        return applied and not told

    def _portion_end(self) -> int:
        """The index of the last entry that is applied in this tick, if it is committed."""
        index: int = self.raftLastApplied
        first, size = index + 1 - self.journal.first_index, 0
        for command, *_ in self.journal[first : first + APPLIED_AT_ONCE]:
            index, size = index + 1, size + len(command)
            if size >= APPLIED_BYTES:
                break
        return index

    def _SyncObj__changeCluster(self, request: list[str]) -> bool:
        """Take a change as leader. One that is to go itself hands over first: the next one will remove it.

        The majorities of two configurations have a member in common only if they differ by one. So a change waits until
        the one before is committed; and until an entry of this term is, which the library sees to: before that, a
        change of an earlier leader may count elsewhere (Ongaro's correction of 2015 to section 4.1 of his thesis).
        """
        if request[0] == "rem" and self.book.node(request[1]).id == self.me:
            self.transferLeadership()
            return False
        if self._changing or not self._may_follow(request):
            return False
        return bool(SyncObj._SyncObj__changeCluster(self, request))

    def _may_follow(self, request: list[str]) -> bool:
        """Whether enough of the members know one another, by what they have acknowledged, for this change."""
        before, other = self.members(), {self.book.node(request[1]).id}
        after = before | other if request[0] == "add" else before - other
        known = membership.latest(self.journal[:], self.journal.first_index)
        matched = self._SyncObj__raftMatchIndex
        knowing = {node.id for node in self._SyncObj__otherNodes if matched.get(node, 0) >= known}
        return membership.may_follow(before, after, knowing | {self.me})

    def _SyncObj__loadDumpFile(self, clearJournal: bool) -> None:
        """Load the snapshot in place. The library's own takes a damaged one for an empty one."""
        header = self.snapshots.header
        assert header is not None
        try:
            self._restore(snapshot.pieces(self.snapshots.place))
        except Exception as error:
            raise Broken(
                f"the snapshot {self.snapshots.place} is whole, and holds no state that can be read ({error}): "
                "is it of another version of Rota?"
            ) from error
        if clearJournal:
            self.journal.replace([header.prev, header.last])
            others = {self.book.node(member) for member in header.cluster} - {self.book.node(self.me)}
            self._SyncObj__updateClusterConfiguration(others)
            self._SyncObj__raftElectionDeadline = monotonic() + self.timing.election_max_s
        self._SyncObj__raftLastApplied = header.index
        self._SyncObj__raftCommitIndex = max(self._SyncObj__raftCommitIndex, header.index)

    def _cut_at(self, index: int) -> int:
        """The entry that the log is to begin with after a snapshot: some more are kept for members a little behind."""
        return self.journal.reaching_back(index, self.timing.log_entries // 5, self.timing.log_bytes // 4)

    def _cluster_at(self, index: int) -> tuple[str, ...]:
        """The members by the log up to an index, for a snapshot: "id host port" each."""
        header = self.snapshots.header
        entries = [entry for entry in self.journal.after(header.index if header else 0) if entry[1] <= index]
        known = membership.after(header.cluster if header else self._first_cluster, entries)
        return tuple(self.book.text(member.split(" ", 1)[0]) for member in known)
