"""Computes the placement of each new state, off the event loop, once for changes that arrive together."""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

from node.duty.ownership import Ownership
from node.replication.state_machine import StateChange
from node.state.value import State

OnPlaced = Callable[[State, Ownership, frozenset[str] | None], None]

REST_TIMES: Final = 9.0
REST_S: Final = 1.0


def rest_after(took_s: float) -> float:
    """Return how long to rest after a placement that took `took_s`: nine times as long, at most `REST_S`.

    Changes of tasks alone wait for the end of the rest, so that placing takes a tenth of the time while tasks are
    registered one by one.
    """
    return min(REST_S, REST_TIMES * took_s)


class PlacementWorker(Protocol):
    """Computes placements off the event loop, one at a time."""

    def follow(self, before: Ownership, state: State, touched: set[str] | None, /) -> "asyncio.Future[Ownership]":
        """Compute the placement of `state`. `touched`: the tasks changed since `before` (None: maybe all)."""


class PlacementThread:
    """Computes placements in a thread of its own, so that a failover does not wait for reads of logs and history."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "placing")

    def follow(self, before: Ownership, state: State, touched: set[str] | None, /) -> "asyncio.Future[Ownership]":
        """Compute the placement of `state`. `touched`: the tasks changed since `before` (None: maybe all)."""
        return asyncio.get_running_loop().run_in_executor(self._thread, before.follow, state, touched)

    def close(self) -> None:
        """Let the thread end after its present placement."""
        self._thread.shutdown(wait=False, cancel_futures=True)


class PlacementService:
    """Computes the `Ownership` of the newest epoch. `on_placed(state, ownership, touched)` is called on the loop.

    `on_placed` is called for every change of state, with the tasks `touched` since the previous call: at once for a
    change of runs, and after its placement for a change of members or settings. The ownership is of the state's epoch,
    with one exception: while changes of tasks alone are being placed, or wait to be placed together (`rest_after`), it
    is the previous ownership. While a caller waits in `placed`, changes do not wait.

    Before `caught_up` is called, no placement is computed unless a caller waits in `placed`. The reason: at the start
    of a member most placements would be out of date at once, and would take processor time from Raft's thread, which
    applies the log.
    """

    def __init__(
        self, on_placed: OnPlaced, worker: PlacementWorker, rest: Callable[[float], float] = rest_after
    ) -> None:
        self.ownership = Ownership.of(State())
        self._on_placed = on_placed
        self._worker = worker
        self._rest = rest
        self._state = State()
        self._touched: set[str] | None = set()
        self._unplaced: set[str] | None = set()
        """The tasks that changed since the latest placement was begun; None: maybe all."""
        self._under_way: asyncio.Future[Ownership] | None = None
        self._begun_s = 0.0
        self._asked = 0
        self._caught_up = False
        self._rests_until_s = 0.0
        self._dirty = asyncio.Event()
        self._alarm: asyncio.TimerHandle | None = None
        self._placed = asyncio.Condition()

    def observe(self, change: StateChange) -> None:
        """Use the state after `change` from now on."""
        self._state = change.after
        self._touched = _with(self._touched, change.touched)
        self._dirty.set()

    def caught_up(self) -> None:
        """Note that the state includes all entries committed when this member started. Call it on the loop."""
        if not self._caught_up:
            self._caught_up = True
            self._dirty.set()

    @property
    def asked(self) -> bool:
        """Whether a caller waits in `placed`. May be called from any thread."""
        return self._asked > 0

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            if not self._caught_up and not self._asked:
                continue
            if self._alarm is not None:
                self._alarm.cancel()
                self._alarm = None
            state, touched = self._state, self._touched
            self._touched = set()
            self._unplaced = _with(self._unplaced, touched)
            await self._keep_up(state)
            self._on_placed(state, self.ownership, None if touched is None else frozenset(touched))
            async with self._placed:
                self._placed.notify_all()

    def _wake_in(self, wait_s: float) -> None:
        """Have `run` do another round within `wait_s` seconds."""
        loop = asyncio.get_running_loop()
        at_s = loop.time() + wait_s
        if self._alarm is None or self._alarm.when() > at_s:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm = loop.call_at(at_s, self._dirty.set)

    async def _keep_up(self, state: State) -> None:
        """Begin to place `state` if it is time, and use finished placements. Waits only for urgent placements."""
        waits = self._unplaced is None or not _only_tasks(self.ownership.state, state)
        while self._under_way is not None or state.epoch != self.ownership.state.epoch or self._unplaced is None:
            if self._under_way is None:
                if not waits and (rest_s := self._rest_s()) > 0:
                    self._wake_in(rest_s)
                    return
                self._begin(state, waits=waits)
            assert self._under_way is not None
            if not waits and not self._under_way.done():
                return
            await self._take(self._under_way)

    def _begin(self, state: State, *, waits: bool) -> None:
        self._begun_s = asyncio.get_running_loop().time()
        touched, self._unplaced = self._unplaced, set()
        self._under_way = self._worker.follow(self.ownership, state, touched)
        if not waits:
            self._under_way.add_done_callback(lambda _: self._dirty.set())

    async def _take(self, placed: "asyncio.Future[Ownership]") -> None:
        self.ownership = await placed
        self._under_way = None
        now_s = asyncio.get_running_loop().time()
        self._rests_until_s = now_s + self._rest(now_s - self._begun_s)

    def _rest_s(self) -> float:
        return 0.0 if self._asked else self._rests_until_s - asyncio.get_running_loop().time()

    async def placed(self, epoch: int, timeout_s: float) -> Ownership:
        """Wait for the ownership of `epoch` or a later one. Returns the latest one after `timeout_s`."""

        async def reached() -> None:
            async with self._placed:
                await self._placed.wait_for(lambda: self.ownership.state.epoch >= epoch)

        if self.ownership.state.epoch < epoch:
            self._asked += 1
            self._dirty.set()
            try:
                await asyncio.wait_for(reached(), timeout_s)
            except TimeoutError:
                return self.ownership
            finally:
                self._asked -= 1
        return self.ownership


def only_tasks(change: StateChange) -> bool:
    """Whether only definitions of tasks have changed. Then a new placement is not urgent."""
    before, after = change.before, change.after
    return change.touched is not None and after.runs is before.runs and _only_tasks(before, after)


def _only_tasks(before: State, after: State) -> bool:
    """Whether the tasks are the only inputs of placement that have changed."""
    same = after.members is before.members and after.settings == before.settings
    return same and after.epoch != before.epoch


def _with(one: set[str] | None, other: Iterable[str] | None) -> set[str] | None:
    """Add `other` to `one`, and return the result; None stands for all tasks."""
    if one is None or other is None:
        return None
    one.update(other)
    return one
