"""Makes member, owner, run and deadline events from updates of the cluster, and sends them to clients from a hub."""

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from time import monotonic
from typing import Any, Final

from pydantic_core import to_json

from node.http.api.members import held_by_member, member_view
from node.http.api.runs import ended_view, run_view
from node.http.api.tasks import breach_view
from node.http.node_port import ClusterUpdate, PlacementComputed
from node.replication.state_machine import StateChange
from node.state.times import rfc3339
from node.state.value import DeadlineEvent, State


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """Something that happened. `name` is member, owner, run or deadline; `index` is of the first state to show it."""

    name: str
    index: int
    data: dict[str, Any]


def events_of(update: ClusterUpdate) -> Iterator[ClusterEvent]:
    """Yield the events of one update."""
    if isinstance(update, PlacementComputed):
        yield from _owner_events(update)
        return
    if update.before.members is not update.after.members:
        yield from _member_events(update.before, update.after)
    yield from _run_events(update)
    for index, judged in update.deadlines:
        yield ClusterEvent("deadline", index, _deadline_data(judged))


def event_bytes(event_id: str, event: ClusterEvent) -> bytes:
    """Return an event in the text/event-stream format.

    >>> event_bytes("7-b-1", ClusterEvent("owner", 7, {"task": "a"})).splitlines()
    [b'id: 7-b-1', b'event: owner', b'data: {"task":"a"}', b'']
    """
    data = to_json(event.data, inf_nan_mode="null").decode()
    return f"id: {event_id}\nevent: {event.name}\ndata: {data}\n\n".encode()


def _member_events(before: State, after: State) -> Iterator[ClusterEvent]:
    held = held_by_member(after.runs.values())
    for name, member in sorted(after.members.items()):
        if before.members.get(name) != member:
            view: dict[str, Any] = {**member_view(member, {}, held, {})}
            del view["load"]  # the placement is computed later, and has events of its own
            del view["bootstrap"]  # not a part of the state
            yield ClusterEvent("member", after.index, view)
    for name, member in sorted(before.members.items()):
        if name not in after.members:
            yield ClusterEvent("member", after.index, {"id": name, "slot": member.slot, "status": "left"})


def _run_events(change: StateChange) -> Iterator[ClusterEvent]:
    before, after = change.before, change.after
    touched = change.touched if change.touched is not None else {*before.runs_of, *after.runs_of}
    for _, ended in change.ended:
        yield ClusterEvent("run", after.index, _summary(dict(ended_view(ended))))
    for task in sorted(touched):
        for run_id in after.runs_of.get(task, ()):
            run = after.runs[run_id]
            if before.runs.get(run_id) is not run:
                yield ClusterEvent("run", after.index, _summary(dict(run_view(run))))


def _deadline_data(judged: DeadlineEvent) -> dict[str, Any]:
    """Return the data of an event about a deadline that was breached, or is no longer breached."""
    return {
        "task": judged.task,
        "change": judged.change,
        "at": rfc3339(judged.at_us),
        **breach_view(judged.breach),
    }


def _summary(run: dict[str, Any]) -> dict[str, Any]:
    """Return a run without its long fields (attempts, checkpoint) and without fields that only its member knows."""
    left_out = ("attempts", "checkpoint", "progress", "frozen_since")
    return {name: value for name, value in run.items() if name not in left_out}


def _owner_events(update: PlacementComputed) -> Iterator[ClusterEvent]:
    before, after = update.before, update.after
    if before is None:
        return
    state = after.state
    tasks = list(state.tasks)
    deleted = set(before.state.tasks).difference(tasks) if before.state.tasks is not state.tasks else set()
    tasks += sorted(deleted)
    # `map` saves a step of Python for each task, since each placement compares the owners of all tasks.
    for task, old, new in zip(tasks, map(before.owner, tasks), map(after.owner, tasks), strict=True):
        if old != new:
            yield ClusterEvent("owner", state.index, {"task": task, "from": old, "to": new, "epoch": state.epoch})


KEPT: Final = 10_000
"""How many events are kept for replay."""

RECONNECT_S: Final = 120.0
"""How long events are kept after the last client has disconnected, in seconds."""

BATCH: Final = 500
"""How many events a stream reads at once from the kept events."""

_NUMBER: Final = re.compile(r"[0-9]{1,18}")
"""A number in an event's id. `int` would accept more, such as other scripts' digits, and fail on very long numbers."""


@dataclass(frozen=True, slots=True)
class NumberedEvent:
    """An event, its number in this process, and when this node noted it."""

    number: int
    event: ClusterEvent
    at_us: int = 0


@dataclass(frozen=True, slots=True)
class KeptEvents:
    """The events that a node keeps, oldest first: all since `since_us`; None: no events, as no client follows them.

    `forgotten`: some events since the first client came are no longer kept.
    """

    events: tuple[NumberedEvent, ...]
    since_us: int | None
    forgotten: bool


class EventHub:
    """Numbers events and keeps the latest `kept`. `boot` identifies this process, `node` is the member's id.

    `now_s` is a monotonic clock, `now_us` the wall clock in microseconds. Used on the event loop.
    """

    def __init__(
        self,
        boot: str,
        node: str,
        kept: int = KEPT,
        now_s: Callable[[], float] = monotonic,
        now_us: Callable[[], int] = lambda: 0,
    ) -> None:
        self._boot = boot
        self._node = node
        self._now_s = now_s
        self._now_us = now_us
        self._since_us: int | None = None
        self._clients = 0
        self._last_left_s: float | None = None
        self._ring: deque[NumberedEvent] = deque(maxlen=kept)
        self._next = 1
        self._new_events = asyncio.Event()
        self._update_count = 0
        self._new_updates = asyncio.Event()
        self._closed = False
        self._updates: Callable[[], AsyncIterator[ClusterUpdate]] | None = None
        self._subscription: AsyncIterator[ClusterUpdate] | None = None
        self._subscribed = asyncio.Event()

    @property
    def closed(self) -> bool:
        """Whether the process is stopping, so that streams should end."""
        return self._closed

    def publish(self, update: ClusterUpdate) -> None:
        """Turn an update into events and wake the clients' streams. Without a client, nothing is computed or kept."""
        if self._is_needed():
            self._keep(events_of(update))
            self._updated()

    async def follow(self, updates: Callable[[], AsyncIterator[ClusterUpdate]]) -> None:
        """Publish the updates that `updates()` yields, until it ends.

        `updates` is called, which subscribes to the updates, only while a client is connected or may reconnect. Most of
        the time there is no client, so commits do not wake this task.
        """
        self._updates = updates
        if self._clients:
            self._subscribe()
        while True:
            await self._subscribed.wait()
            self._subscribed.clear()
            assert self._subscription is not None
            async for update in self._subscription:
                if not self._is_needed():
                    self._subscription = None
                    break
                if isinstance(update, PlacementComputed):  # in a thread, because it compares the owners of all tasks
                    self._keep(await asyncio.to_thread(list, events_of(update)))
                    self._updated()
                else:
                    self.publish(update)
            else:
                return

    def close(self) -> None:
        """End every client's stream."""
        self._closed = True
        self._wake()
        self._updated()

    def kept(self) -> KeptEvents:
        """Return the events that are kept for replay."""
        events = tuple(self._ring)
        forgotten = self._ring.maxlen is not None and len(events) == self._ring.maxlen
        since_us = events[0].at_us if forgotten and events else self._since_us
        return KeptEvents(events, since_us, forgotten)

    def id_of(self, numbered: NumberedEvent) -> str:
        """Return the id with which an event is sent."""
        return f"{numbered.event.index}-{self._boot}-{numbered.number}"

    def position_after(self, last_id: str | None) -> int | None:
        """Return the number of the first event to send to a client whose last event was `last_id` (None: a new client).

        Returns None if events in between may be lost: the client must read the whole state again.
        """
        if last_id is None:
            return self._next
        index, _, rest = last_id.partition("-")
        boot, _, number = rest.rpartition("-")
        if boot == self._boot and _NUMBER.fullmatch(number):
            position = int(number) + 1
            return position if self._first() <= position <= self._next else None
        if not _NUMBER.fullmatch(index) or not self._ring or self._ring[0].event.index >= int(index):
            return None
        return next((one.number for one in self._ring if one.event.index >= int(index)), self._next)

    @contextmanager
    def listener(self, last_id: str | None, index: int, ping_s: float) -> Iterator[AsyncGenerator[bytes, None]]:
        """Yield one client's stream of pieces. It has all events since the block was entered, even if it is read later.

        `last_id` is the last event that the client saw, `index` the index applied here. A comment is sent at once, and
        after every `ping_s` seconds without an event.
        """
        position = self.position_after(last_id)
        self._clients += 1
        self._subscribe()
        try:
            yield self._stream(position, index, ping_s)
        finally:
            self._clients -= 1
            self._last_left_s = self._now_s()

    @property
    def updates(self) -> int:
        """The number of updates of the cluster so far, whether they made events or not."""
        return self._update_count

    @contextmanager
    def watcher(self) -> Iterator[None]:
        """Count updates while the block runs, for a caller that waits with `after` for any change."""
        self._clients += 1
        self._subscribe()
        try:
            yield
        finally:
            self._clients -= 1
            self._last_left_s = self._now_s()

    async def after(self, updates: int, within_s: float) -> None:
        """Wait until the number of updates exceeds `updates`, the server stops, or `within_s` seconds are over."""
        if self._update_count <= updates and not self._closed:
            with suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await self._new_updates.wait()

    def _subscribe(self) -> None:
        if self._since_us is None:
            self._since_us = self._now_us()
        if self._subscription is None and self._updates is not None:
            self._subscription = self._updates()
            self._subscribed.set()

    def _is_needed(self) -> bool:
        """Return whether a client is connected, or may reconnect. If not, drop the kept events: no more are added."""
        if self._clients or (self._last_left_s is not None and self._now_s() < self._last_left_s + RECONNECT_S):
            return True
        if self._ring:
            self._ring.clear()
        self._last_left_s = self._since_us = None
        self._next += 1
        return False

    def _keep(self, events: Iterable[ClusterEvent]) -> None:
        at_us = self._now_us()
        for event in events:
            self._ring.append(NumberedEvent(self._next, event, at_us))
            self._next += 1
        self._wake()

    async def _stream(self, position: int | None, index: int, ping_s: float) -> AsyncGenerator[bytes, None]:
        # The comment shows that the stream works, even if nothing changes for a long time.
        yield f"retry: 1000\n: connected to {self._node} at index {index}; events follow as they happen\n\n".encode()
        if position is None:
            position = self._next
            yield self._reset()
        while not self._closed:
            if position < self._first():
                position = self._next
                yield self._reset()
            begin = position - self._first()
            for numbered in list(islice(self._ring, begin, begin + BATCH)):
                yield event_bytes(self.id_of(numbered), numbered.event)
                position = numbered.number + 1
            if position == self._next and not await self._woken(ping_s):
                yield b": still here\n\n"

    def _first(self) -> int:
        return self._next - len(self._ring)

    def _reset(self) -> bytes:
        index = self._ring[-1].event.index if self._ring else 0
        return f"id: {index}-{self._boot}-{self._next - 1}\nevent: reset\ndata: {{}}\n\n".encode()

    def _updated(self) -> None:
        self._update_count += 1
        self._new_updates.set()
        self._new_updates = asyncio.Event()

    def _wake(self) -> None:
        self._new_events.set()
        self._new_events = asyncio.Event()

    async def _woken(self, within_s: float) -> bool:
        if self._closed:
            return True
        try:
            async with asyncio.timeout(within_s):
                await self._new_events.wait()
        except TimeoutError:
            return False
        return True
