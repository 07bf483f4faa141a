"""The state machine that Raft drives. It holds the present `State`, and reports the changes of each entry.

`apply`, `capture` and `restore` are called in Raft's thread. The state is immutable, so that any thread may read
`state` at any time. `AppliedWaiters` lets the event loop wait until an entry is applied.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from node.state.apply import Batch, apply_batch
from node.state.codec import from_pieces, snapshot_pieces
from node.state.entries import ProposalId
from node.state.value import DeadlineEvent, EndedRun, Result, State


@dataclass(frozen=True, slots=True)
class StateChange:
    """A change of the state by one entry or one snapshot."""

    #: The state before.
    before: State
    #: The state after.
    after: State
    #: The tasks that may have changed; None: all tasks (a snapshot).
    touched: frozenset[str] | None
    #: Runs that ended, each with the index of the entry that ended it.
    ended: tuple[tuple[int, EndedRun], ...] = ()
    #: Deadlines that became breached, or stopped being so, each with the index of the entry.
    deadlines: tuple[tuple[int, DeadlineEvent], ...] = ()


class StateMachine:
    """Implements `node.raft.ports.StateMachinePort`. `on_change` is called in Raft's thread after every entry."""

    def __init__(self, on_change: Callable[[StateChange], None]) -> None:
        self.state = State()
        self._on_change = on_change

    @property
    def cluster_id(self) -> str:
        """The id of the cluster; empty while it is not founded."""
        return self.state.cluster_id

    def apply(self, entry: bytes) -> Sequence[tuple[ProposalId, Result]]:
        """Apply one Raft entry. Returns the id and result of each proposal in it."""
        before = self.state
        batch: Batch = apply_batch(before, entry)
        self.state = batch.state
        self._on_change(StateChange(before, batch.state, batch.touched, tuple(batch.ended), tuple(batch.deadlines)))
        return batch.results

    def capture(self) -> Callable[[], Iterator[bytes]]:
        """Keep the present state. Returns a function that packs it in pieces, for another thread."""
        state = self.state
        return lambda: snapshot_pieces(state)

    def restore(self, pieces: Iterable[bytes]) -> None:
        """Replace the state by the one in a snapshot. Raises `DamagedSnapshot`."""
        before = self.state
        self.state = from_pieces(pieces)
        self._on_change(StateChange(before, self.state, None))


class AppliedWaiters:
    """Lets callers on the event loop wait for an index. `index` returns the index of the last entry applied here."""

    def __init__(self, index: Callable[[], int]) -> None:
        self._index = index
        self._waits: dict[asyncio.Future[None], int] = {}

    def __bool__(self) -> bool:
        """Whether a caller waits. May be called in any thread."""
        return bool(self._waits)

    def applied(self, index: int) -> None:
        """Wake the callers that wait for `index` or an earlier one."""
        for wait, until in list(self._waits.items()):
            if until <= index and not wait.done():
                wait.set_result(None)

    async def wait(self, index: int, timeout_s: float) -> bool:
        """Wait until `index` is applied here. Returns False if this takes longer than `timeout_s`."""
        if self._index() >= index:
            return True
        wait = asyncio.get_running_loop().create_future()
        self._waits[wait] = index
        try:
            async with asyncio.timeout(timeout_s):
                await wait
        except TimeoutError:
            return False
        finally:
            del self._waits[wait]
        return True
