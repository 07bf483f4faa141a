"""What a member's Raft asks of it, and tells it, in Raft's thread: `node.raft.ports.RaftOwner`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from node.raft.ports import RaftRole
from node.state.codec import pack_batch
from node.state.entries import Proposal


@dataclass(frozen=True, slots=True)
class MemberRaftOwner:
    """on_role: gets each role; on_failure: why Raft has stopped; room: waits for room on the disk, and whether to go on
    writing then.
    """

    on_role: Callable[[RaftRole], None]
    on_failure: Callable[[Exception], None]
    room: Callable[[Exception], bool]

    def pack(self, proposals: Sequence[Proposal]) -> bytes:
        """The bytes of one entry of several proposals."""
        return pack_batch(proposals)

    def role_changed(self, role: RaftRole) -> None:
        """The role is another one now."""
        self.on_role(role)

    def failed(self, error: Exception) -> None:
        """Raft cannot go on."""
        self.on_failure(error)

    def wait_for_room(self, error: Exception) -> bool:
        """Whether to write again, where the disk is full."""
        return self.room(error)
