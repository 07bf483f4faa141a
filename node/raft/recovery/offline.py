"""Reads the log of a stopped member, and changes it into the log of a cluster with this member only."""

from pathlib import Path

from node.raft.core.requests import PROPOSALS
from node.raft.log import membership, snapshot
from node.raft.log.journal import SqliteJournal
from node.raft.log.log_store import CLUSTER_ID, LOST, VOTES, LogStore, open_folder
from node.raft.ports import StateMachinePort


class OfflineLog:
    """The log of member `me` in its folder `path`. Close it after use. Raises the errors of `open_folder`."""

    def __init__(self, path: Path, me: str) -> None:
        self._me = me
        self._store: LogStore = open_folder(path, me, ())

    @property
    def term(self) -> int:
        """The term of the last entry. Of two members, the one with the later last entry has all committed entries."""
        return self._journal.term_at(self.last_index) if len(self._journal) else 0

    @property
    def last_index(self) -> int:
        """The index of the last entry, committed or not."""
        return self._journal.last_index if len(self._journal) else 0

    @property
    def members(self) -> tuple[str, ...]:
        """The ids of the members, by the log."""
        return tuple(member.split(" ", 1)[0] for member in self._store.cluster)

    @property
    def caught_up(self) -> bool:
        """Whether the log is complete: False if the member has lost its folder, and not caught up since."""
        return self._journal.note(VOTES) == "yes"

    @property
    def _journal(self) -> SqliteJournal:
        return self._store.journal

    def replay(self, machine: StateMachinePort) -> None:
        """Apply all entries in order, even those not known to be committed. Raises `DamagedData`."""
        after = 0
        if self._store.header is not None:
            machine.restore(snapshot.pieces(self._store.snapshot))
            after = self._store.header.index
        for command, _, _ in self._journal.after(after):
            if command[:2] == membership.REGULAR + PROPOSALS:
                machine.apply(command[2:])

    def end_with(self, entry: bytes, cluster_id: str) -> None:
        """Append the removal of all other members, and then this entry, in one transaction.

        This commits all entries in the log, since its member is then the majority.
        """
        journal = self._journal
        index, term = journal.last_index, max(journal.getCurrentTerm(), self.term) + 1
        journal.setCurrentTerm(term, self._me)
        others = [member for member in self.members if member != self._me]
        commands = [bytes([membership.MEMBERSHIP]) + membership.change_command("rem", other) for other in others]
        for command in [*commands, membership.REGULAR + PROPOSALS + entry]:
            index += 1
            journal.add(command, index, term)
        journal.set_note(CLUSTER_ID, cluster_id)
        journal.set_note(VOTES, "yes")
        journal.set_note(LOST, "")
        journal.flush()

    def close(self) -> None:
        """Close the folder."""
        self._journal.close()
