"""A stopped member's part of the log: read, and made that of a cluster of one."""

from pathlib import Path

from node.raft import membership, snapshot
from node.raft.adapter import PROPOSALS
from node.raft.journal import SqliteJournal
from node.raft.log_store import CLUSTER_ID, LOST, LogStore, open_folder
from node.raft.ports import StateMachinePort


class OfflineLog:
    """What member `me` has in its folder `path`. Close it when done. Raises what `open_folder` raises."""

    def __init__(self, path: Path, me: str) -> None:
        self._me = me
        self._folder: LogStore = open_folder(path, me, ())

    @property
    def term(self) -> int:
        """The term of the last entry: of two members, the one with the later last entry has all that the other has."""
        return self._journal.term_at(self.last_index) if len(self._journal) else 0

    @property
    def last_index(self) -> int:
        """The index of the last entry, committed or not."""
        return self._journal.last_index if len(self._journal) else 0

    @property
    def members(self) -> tuple[str, ...]:
        """Who is a member by the log: ids."""
        return tuple(member.split(" ", 1)[0] for member in self._folder.cluster)

    @property
    def caught_up(self) -> bool:
        """Whether it ever had all that was committed: not so where it lost its folder, and has not been sent all."""
        return self._journal.note("votes") == "yes"

    @property
    def _journal(self) -> SqliteJournal:
        return self._folder.journal

    def replay(self, machine: StateMachinePort) -> None:
        """Have all of it applied, in order; also what is not known to be committed. Raises `DamagedSnapshot`."""
        after = 0
        if self._folder.header is not None:
            machine.restore(snapshot.pieces(self._folder.snapshot))
            after = self._folder.header.index
        for command, _, _ in self._journal.after(after):
            if command[:2] == membership.REGULAR + PROPOSALS:
                machine.apply(command[2:])

    def end_with(self, entry: bytes, cluster_id: str) -> None:
        """Put an end to it, all at once or not at all: nobody else is a member, and then comes this entry.

        All that is in the log is committed by that, since a majority of one has it.
        """
        journal = self._journal
        index, term = journal.last_index, max(journal.getCurrentTerm(), self.term) + 1
        journal.setCurrentTerm(term, self._me)
        others = [member for member in self.members if member != self._me]
        commands = [bytes([membership.MEMBERSHIP]) + membership.pack("rem", other) for other in others]
        for command in [*commands, membership.REGULAR + PROPOSALS + entry]:
            index += 1
            journal.add(command, index, term)
        journal.set_note(CLUSTER_ID, cluster_id)
        journal.set_note("votes", "yes")
        journal.set_note(LOST, "")
        journal.flush()

    def close(self) -> None:
        """Close the folder."""
        self._journal.close()
