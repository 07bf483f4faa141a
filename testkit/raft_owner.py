"""An owner of a Raft for tests: `node.raft.ports.RaftOwner`, with callables for what a test wants to see."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from node.raft.ports import RaftRole
from node.state.entries import Proposal


def _pack_nothing(_proposals: Sequence[Proposal]) -> bytes:
    return b""


@dataclass(frozen=True, slots=True)
class Owner:
    """Never waits for room on the disk."""

    packing: Callable[[Sequence[Proposal]], bytes] = _pack_nothing
    on_role: Callable[[RaftRole], None] = lambda _role: None
    on_failure: Callable[[Exception], None] = lambda _error: None

    def pack(self, proposals: Sequence[Proposal]) -> bytes:
        return self.packing(proposals)

    def role_changed(self, role: RaftRole) -> None:
        self.on_role(role)

    def failed(self, error: Exception) -> None:
        self.on_failure(error)

    def wait_for_room(self, _error: Exception) -> bool:
        return False
