# ruff: noqa: N802, N803 - the library's names
"""PySyncObj's consensus with its defective methods overridden, including private ones.

`_SyncObj__...` are Python's mangled names of private attributes. The library offers no other way to use another
serializer, or to apply plain bytes. A unit test fails if a version of the library lacks these names.
"""

from typing import Protocol

from pysyncobj import SyncObj

from node.raft.core.parts import Clock
from node.raft.errors import Broken
from node.raft.log import membership, snapshot
from node.raft.log.journal import SqliteJournal
from node.raft.log.snapshots import Snapshots
from node.raft.ports import EntryApplier, RaftTiming
from node.raft.wire.addresses import AddressBook

APPLIED_AT_ONCE = 64
APPLIED_BYTES = 128 << 10
"""The limits on the committed entries that one tick applies: their number, and roughly their total size. After a start,
thousands of entries wait, and Raft's thread answers no member while it applies entries."""


class DeadlinePort(Protocol):
    """Keeps the deadline of the next election."""

    deadline_s: float


class MendedSyncObj(SyncObj):  # type: ignore[misc]  # the library ships no types
    """The library's consensus, with overrides. A subclass sets the attributes below before this constructor runs."""

    me: str
    book: AddressBook
    timing: RaftTiming
    journal: SqliteJournal
    snapshots: Snapshots
    elections: DeadlinePort
    clock: Clock
    applier: EntryApplier
    behind: bool
    """Whether committed entries wait for the next tick to be applied."""

    _SyncObj__raftCommitIndex: int

    # -- terms and elections

    def _SyncObj__setCurrentTerm(self, term: int, voted: str | None) -> None:
        """Store the term and the vote, and announce a new term before any message is sent in it.

        Once this member has voted in a later term, its heartbeats must not answer in the old one: the old leader would
        count these answers as evidence of its majority (docs/explanation/raft.md).
        """
        before = self.raftCurrentTerm
        super()._SyncObj__setCurrentTerm(term, voted)
        if term != before:
            self.applier.term_began(term)

    @property
    def _SyncObj__raftElectionDeadline(self) -> float:
        return self.elections.deadline_s

    @_SyncObj__raftElectionDeadline.setter
    def _SyncObj__raftElectionDeadline(self, deadline_s: float) -> None:
        """Set the deadline, and end a transfer of leadership: otherwise the library would ignore heartbeats during it,
        and stand for election later.
        """
        self.elections.deadline_s = deadline_s
        self._SyncObj__transferInProgress = False

    # -- entries

    def _SyncObj__doApplyCommand(self, command: bytes) -> None:
        """Apply an entry as bytes. Changes of membership are skipped: they took effect when they entered the log."""
        if command[:1] == membership.REGULAR:
            self.applier.apply(command[1:])

    def _SyncObj__applyLogEntries(self) -> bool:
        """Apply a portion of the committed entries. A leader first announces them, as clients may wait on followers.

        The library would apply all entries at once; here `behind` is set if some are left to the next tick. Returns
        whether the commit has yet to be announced.
        """
        committed: int = self.raftCommitIndex
        announced = bool(self._isLeader()) and committed > self.raftLastApplied
        if announced:
            self._SyncObj__sendAppendEntries()
        self._SyncObj__raftCommitIndex = min(committed, self._portion_end())
        try:
            applied = bool(SyncObj._SyncObj__applyLogEntries(self))
        finally:
            self._SyncObj__raftCommitIndex = committed
        self.behind = self.raftLastApplied < committed
        return applied and not announced

    def _portion_end(self) -> int:
        """Return the index of the last entry to apply in this tick. The entries up to it need not be committed yet."""
        index: int = self.raftLastApplied
        first, size = index + 1 - self.journal.first_index, 0
        for command, *_ in self.journal[first : first + APPLIED_AT_ONCE]:
            index, size = index + 1, size + len(command)
            if size >= APPLIED_BYTES:
                break
        return index

    # -- changes of membership

    def _SyncObj__parseChangeClusterRequest(self, command: bytes) -> list[str] | None:
        """Return the change of membership in a command, or None for another kind of command.

        The library's own method would unpickle it. Raises UnreadableChange, but only for an entry in this log, since
        `messages` refuses such entries from others.
        """
        return list(membership.parse_change(command)) if command[0] == membership.MEMBERSHIP else None

    def _SyncObj__changeCluster(self, request: list[str]) -> bool:
        """Handle a change as leader. A leader that is to be removed hands over first, and the next leader removes it.

        Majorities of two configurations surely have a common member only if the configurations differ by one member. So
        a change waits until the previous one is committed. It also waits, in the library, for a committed entry of this
        term: before that, a change of an earlier leader may count elsewhere (Ongaro's correction of 2015 to section 4.1
        of his thesis).
        """
        if request[0] == "rem" and self.book.node(request[1]).id == self.me:
            self.transferLeadership()
            return False
        if self.is_changing or not self._may_follow(request):
            return False
        return bool(SyncObj._SyncObj__changeCluster(self, request))

    @property
    def is_changing(self) -> bool:
        """Whether the log has a change of membership that is not known to be committed."""
        return membership.any_change(self.journal.after(self.raftCommitIndex))

    def _may_follow(self, request: list[str]) -> bool:
        """Whether enough members have acknowledged all earlier changes of membership, so that this one may follow."""
        before, other = self.members(), {self.book.node(request[1]).id}
        after = before | other if request[0] == "add" else before - other
        known = membership.latest(self.journal[:], self.journal.first_index)
        matched = self._SyncObj__raftMatchIndex
        knowing = {node.id for node in self._SyncObj__otherNodes if matched.get(node, 0) >= known}
        return membership.may_follow(before, after, knowing | {self.me})

    def members(self) -> set[str]:
        """Return the ids of all members, by this member's log."""
        return {node.id for node in self._SyncObj__otherNodes} | {self.me}

    # -- snapshots

    def _SyncObj__loadDumpFile(self, clearJournal: bool) -> None:
        """Load the state from the snapshot file. The library's own method treats a damaged file as an empty state."""
        header = self.snapshots.header
        assert header is not None
        try:
            self.applier.restore(snapshot.pieces(self.snapshots.place))
        except Exception as error:
            raise Broken(
                f"the snapshot {self.snapshots.place} has correct checksums, and its state cannot be read ({error}): "
                "was it written by another version of Rota?"
            ) from error
        if clearJournal:
            self.journal.replace([header.prev, header.last])
            others = {self.book.node(member) for member in header.cluster} - {self.book.node(self.me)}
            self._SyncObj__updateClusterConfiguration(others)
            self._SyncObj__raftElectionDeadline = self.clock() + self.timing.election_max_s
        self._SyncObj__raftLastApplied = header.index
        self._SyncObj__raftCommitIndex = max(self._SyncObj__raftCommitIndex, header.index)
