"""Changes of membership that callers wait for. They are proposed one at a time, and retried until committed."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from pysyncobj.config import FAIL_REASON

from node.raft.core.proposals import timeout_error
from node.raft.errors import ChangeRefused
from node.raft.log import membership

_AGAIN_S = 0.1
_UNANSWERED_S = 1.0


@dataclass(slots=True, eq=False)
class MembershipChange:
    """A change of membership that a caller waits for."""

    #: Whether the member is added or removed.
    what: Literal["add", "rem"]
    #: The id of the member.
    member: str
    #: The member as written in the log: "id host port" if it is added, else its id.
    text: str
    #: When the caller stops waiting, in seconds on Raft's clock.
    deadline_s: float
    #: Done once the change is committed, refused or cancelled by `give_up`.
    future: "Future[None]" = field(default_factory=Future)
    #: When the change is proposed again, in seconds on Raft's clock.
    next_s: float = 0.0
    #: Whether the change has been proposed.
    sent: bool = False
    #: Whether the library refused the latest proposal.
    denied: bool = False


class ChangesConsensus(Protocol):
    """The part of the consensus that `Changes` needs."""

    def leader_node(self) -> object | None:
        """Return the leader that was heard last in this term."""

    def is_committed(self, there: bool, member: str) -> bool:
        """Whether the log has `member` (or, if not `there`, lacks it), and all changes in the log are committed."""

    def change(self, packed: bytes, answer: Callable[[Any, int], None]) -> None:
        """Propose a change of membership (`membership.change_command`)."""


class Changes:
    """The changes that callers on this member wait for, oldest first. Used in Raft's thread, except for `add`."""

    def __init__(self) -> None:
        self._queue: deque[MembershipChange] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, change: MembershipChange) -> None:
        """Queue a change, which `step` will propose."""
        self._queue.append(change)

    def step(self, consensus: ChangesConsensus, now_s: float) -> None:
        """Propose the oldest change if it is time, and drop the changes that are done or past their deadlines."""
        while self._queue:
            change = self._queue[0]
            if not change.future.done() and change.deadline_s > now_s:
                break
            self._queue.popleft()
            if not change.future.done():
                change.future.set_exception(_refused(change))
        else:
            return
        if change.next_s > now_s or consensus.leader_node() is None:
            return
        change.next_s = now_s + _UNANSWERED_S
        change.sent = True

        def answer(_result: Any, reason: int) -> None:
            if change.future.done():
                return
            if reason == FAIL_REASON.SUCCESS:
                change.future.set_result(None)
                return
            change.denied = reason == FAIL_REASON.REQUEST_DENIED
            change.next_s = now_s + _AGAIN_S

        if consensus.is_committed(change.what == "add", change.member):
            change.future.set_result(None)
        else:
            consensus.change(membership.change_command(change.what, change.text), answer)

    def give_up(self) -> "list[Future[None]]":
        """Remove all changes, and return the futures that are not done."""
        left = [change.future for change in self._queue if not change.future.done()]
        self._queue.clear()
        return left


def _refused(change: MembershipChange) -> Exception:
    if change.denied:
        return ChangeRefused(
            f"the leader refused the change of {change.member}: another one may be under way, or a member that is "
            "needed for it does not have the last one yet; try again"
        )
    return timeout_error(change.sent)
