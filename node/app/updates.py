"""Passes on the changes that a member's core reports: to the history, live updates, the log and the metrics."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Generic, Protocol, TypeVar
from weakref import WeakSet

from node.control.failure_log import log_failures
from node.duty.ownership import Ownership
from node.http.node_port import ClusterUpdate, PlacementComputed
from node.replication.state_machine import StateChange
from node.state.value import EndedRun, State
from node.telemetry.thread_lag import start_delays

T = TypeVar("T")


class HistoryWriter(Protocol):
    """The part of `node.history.store.HistoryStore` that updates need. Called in Raft's thread."""

    def record(self, index: int, ended: tuple[tuple[int, EndedRun], ...], /) -> None:
        """Store the runs that ended in the entries up to `index`."""

    def jumped(self, index: int, /) -> None:
        """Note that the state is from a snapshot at `index`: runs that ended before it are not known here."""


class ChangesTold(Protocol):
    """The part of `node.tracing.exports.Exports` that updates need."""

    def applied(self, change: StateChange, /) -> None:
        """See a change. Called in Raft's thread."""

    def delivered(self, changes: list[StateChange], /) -> None:
        """Tell of changes. Called on the event loop."""


class Updates:
    """Implements `node.app.core_ports.CoreObserver`. `ready`: whether this member has caught up."""

    def __init__(self, me: str, history: HistoryWriter, ready: Callable[[], bool], exports: ChangesTold) -> None:
        self._me = me
        self._history = history
        self._ready = ready
        self._exports = exports
        self._broadcast: Broadcast[ClusterUpdate] = Broadcast()
        self._placement: Ownership | None = None
        self.start_delay = start_delays()

    def listen(self) -> AsyncIterator[ClusterUpdate]:
        """Return the updates from this call on, until `close`."""
        return self._broadcast.listen()

    def close(self) -> None:
        """End the stream of every listener."""
        self._broadcast.close()

    def applied(self, change: StateChange, /) -> None:
        """Write ended runs into the history. Called in Raft's thread."""
        if change.touched is None:
            self._history.jumped(change.after.index)
        self._history.record(change.after.index, change.ended)
        self._exports.applied(change)

    def delivered(self, changes: list[StateChange], /) -> None:
        """Log failures, and pass the changes on."""
        if self._ready():  # until then, entries that were applied before this start are applied again
            log_failures(changes, self._me)
        self._exports.delivered(changes)
        for change in changes:
            self._broadcast.send(change)

    def placed(self, state: State, ownership: Ownership, /) -> None:
        """Pass a new placement on."""
        if ownership is not self._placement:
            self._broadcast.send(PlacementComputed(self._placement, ownership))
            self._placement = ownership

    def joined(self, incarnation: int, /) -> None:
        """Do nothing, because listeners see the join in the state."""

    def began_after(self, delay_s: float, /) -> None:
        """Add the delay of a start to the metrics."""
        self.start_delay.observe(delay_s)


class Broadcast(Generic[T]):
    """Passes every value to all present listeners, in order."""

    def __init__(self) -> None:
        # If a listener is dropped, even before it began to read, its queue is garbage-collected with it.
        self._queues: WeakSet[asyncio.Queue[T | None]] = WeakSet()
        self._closed = False

    def send(self, value: T) -> None:
        """Pass a value to all listeners."""
        for queue in self._queues:
            queue.put_nowait(value)

    def close(self) -> None:
        """End the iteration of every listener."""
        self._closed = True
        for queue in self._queues:
            queue.put_nowait(None)

    def listen(self) -> AsyncIterator[T]:
        """Return the values that are sent from this call on, until `close`."""
        queue: asyncio.Queue[T | None] = asyncio.Queue()
        if self._closed:
            queue.put_nowait(None)
        self._queues.add(queue)

        async def values() -> AsyncIterator[T]:
            try:
                while (value := await queue.get()) is not None:
                    yield value
            finally:
                self._queues.discard(queue)

        return values()
