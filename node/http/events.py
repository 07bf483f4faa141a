"""Server-sent events: what changed, as `member`, `owner` and `run` events, with a replay of the latest.

`events_of` turns one update into events; it is pure. `Hub` numbers them and keeps the latest in a ring, which all
who listen read at their own pace: a slow listener costs nothing, and is told with a `reset` when it missed some.

An event's id is `INDEX-BOOT-NUMBER`. A listener that comes back to the same process continues exactly; at another
member, or after a restart, it is sent what is there from that index on (some of it again), or a `reset`.
"""

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from time import monotonic
from typing import Any, Final

from pydantic_core import to_json

from node.http.node_port import Placed, Update
from node.http.views import ended_view, held_by_member, member_view, run_view
from node.replication.state_machine import StateChange
from node.state.value import State

KEPT: Final = 10_000
COMES_BACK_S: Final = 120.0
"""How long events are kept after the last listener has left."""
AT_ONCE: Final = 500
_NUMBER: Final = re.compile(r"[0-9]{1,18}")
"""What may be read as a number: `int` would take, and stumble over, more."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened: `name` is member, owner or run; `index` is the state's that has it."""

    name: str
    index: int
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sent:
    """An event and its place in the process's sequence."""

    number: int
    event: Event


def events_of(update: Update) -> Iterator[Event]:
    """What an update means to those who listen."""
    if isinstance(update, Placed):
        yield from _owners(update)
        return
    if update.before.members is not update.after.members:
        yield from _members(update.before, update.after)
    yield from _runs(update)


def _members(before: State, after: State) -> Iterator[Event]:
    held = held_by_member(after.runs.values())
    for name, member in sorted(after.members.items()):
        if before.members.get(name) != member:
            told: dict[str, Any] = {**member_view(member, {}, held)}
            del told["load"]  # placement comes later, with its own events
            yield Event("member", after.index, told)
    for name, member in sorted(before.members.items()):
        if name not in after.members:
            yield Event("member", after.index, {"id": name, "slot": member.slot, "status": "left"})


def _runs(change: StateChange) -> Iterator[Event]:
    before, after = change.before, change.after
    touched = change.touched if change.touched is not None else {*before.runs_of, *after.runs_of}
    for _, ended in change.ended:
        yield Event("run", after.index, _short(dict(ended_view(ended))))
    for task in sorted(touched):
        for run_id in after.runs_of.get(task, ()):
            run = after.runs[run_id]
            if before.runs.get(run_id) is not run:
                yield Event("run", after.index, _short(dict(run_view(run))))


def _short(run: dict[str, Any]) -> dict[str, Any]:
    """A run without what is long (its attempts, its checkpoint) and what only its member knows (its progress)."""
    return {
        name: value for name, value in run.items() if name not in ("attempts", "checkpoint", "progress", "frozen_since")
    }


def _owners(placed: Placed) -> Iterator[Event]:
    before, after = placed.before, placed.after
    if before is None:
        return
    state = after.state
    tasks = list(state.tasks)
    gone = set(before.state.tasks).difference(tasks) if before.state.tasks is not state.tasks else set()
    tasks += sorted(gone)
    # All tasks are looked at, for each placement: kept to what maps do without a step of Python for each.
    for task, was, now in zip(tasks, map(before.owner, tasks), map(after.owner, tasks), strict=True):
        if was != now:
            yield Event("owner", state.index, {"task": task, "from": was, "to": now, "epoch": state.epoch})


class Hub:
    """Numbers events and keeps the latest `kept`. `boot` names this process."""

    def __init__(self, boot: str, kept: int = KEPT, now_s: Callable[[], float] = monotonic) -> None:
        self._boot = boot
        self._now_s = now_s
        self._listening = 0
        self._left_at_s: float | None = None
        self._ring: deque[Sent] = deque(maxlen=kept)
        self._next = 1
        self._more = asyncio.Event()
        self._closed = False
        self._updates: Callable[[], AsyncIterator[Update]] | None = None
        self._followed: AsyncIterator[Update] | None = None
        self._wanted = asyncio.Event()

    @property
    def closed(self) -> bool:
        """Whether the process is about to end, and streams should."""
        return self._closed

    def tell(self, update: Update) -> None:
        """Take in an update, and wake those who listen. While nobody does, nothing is worked out or kept."""
        if self._heard():
            self._keep(events_of(update))

    async def follow(self, updates: Callable[[], AsyncIterator[Update]]) -> None:
        """Take in what `updates` tells from its call on, while somebody listens or may come back, until it ends.

        Nobody listens most of the time: then it is not called, and no commit wakes anybody here.
        """
        self._updates = updates
        if self._listening:
            self._subscribe()
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            assert self._followed is not None
            async for update in self._followed:
                if not self._heard():
                    self._followed = None
                    break
                if isinstance(update, Placed):  # compares the owners of all tasks
                    self._keep(await asyncio.to_thread(list, events_of(update)))
                else:
                    self.tell(update)
            else:
                return

    def _subscribe(self) -> None:
        if self._followed is None and self._updates is not None:
            self._followed = self._updates()
            self._wanted.set()

    def _heard(self) -> bool:
        """Whether anybody listens, or may come back; if not, what is kept is let go, as it has a gap from now on."""
        left_at_s = self._left_at_s
        if self._listening or (left_at_s is not None and self._now_s() < left_at_s + COMES_BACK_S):
            return True
        if self._ring:
            self._ring.clear()
        self._left_at_s = None
        self._next += 1
        return False

    def _keep(self, events: Iterable[Event]) -> None:
        for event in events:
            self._ring.append(Sent(self._next, event))
            self._next += 1
        self._wake()

    def close(self) -> None:
        """Let every listener's stream end."""
        self._closed = True
        self._wake()

    def id_of(self, sent: Sent) -> str:
        """The id under which an event is sent."""
        return f"{sent.event.index}-{self._boot}-{sent.number}"

    def place_of(self, last_id: str | None) -> int | None:
        """The number of the first event to send to one who saw `last_id` (None: to a new one, what comes next).

        None if events may be lost in between: the listener must read afresh.
        """
        if last_id is None:
            return self._next
        index, _, rest = last_id.partition("-")
        boot, _, number = rest.rpartition("-")
        if boot == self._boot and _NUMBER.fullmatch(number):
            place = int(number) + 1
            return place if self._first() <= place <= self._next else None
        if not _NUMBER.fullmatch(index) or not self._ring or self._ring[0].event.index >= int(index):
            return None
        return next((sent.number for sent in self._ring if sent.event.index >= int(index)), self._next)

    @contextmanager
    def listener(self, last_id: str | None, ping_s: float) -> Iterator[AsyncGenerator[bytes, None]]:
        """The stream for one listener, in pieces; a comment every `ping_s` seconds without an event.

        It begins where the block is entered, not where the stream is first read.
        """
        place = self.place_of(last_id)
        self._listening += 1
        self._subscribe()
        try:
            yield self._pieces(place, ping_s)
        finally:
            self._listening -= 1
            self._left_at_s = self._now_s()

    async def _pieces(self, place: int | None, ping_s: float) -> AsyncGenerator[bytes, None]:
        yield b"retry: 1000\n\n"
        if place is None:
            place = self._next
            yield self._reset()
        while not self._closed:
            if place < self._first():
                place = self._next
                yield self._reset()
            begin = place - self._first()
            for sent in list(islice(self._ring, begin, begin + AT_ONCE)):
                yield packed(self.id_of(sent), sent.event)
                place = sent.number + 1
            if place == self._next and not await self._woken(ping_s):
                yield b": still here\n\n"

    def _first(self) -> int:
        return self._next - len(self._ring)

    def _reset(self) -> bytes:
        index = self._ring[-1].event.index if self._ring else 0
        return f"id: {index}-{self._boot}-{self._next - 1}\nevent: reset\ndata: {{}}\n\n".encode()

    def _wake(self) -> None:
        self._more.set()
        self._more = asyncio.Event()

    async def _woken(self, within_s: float) -> bool:
        if self._closed:
            return True
        try:
            async with asyncio.timeout(within_s):
                await self._more.wait()
        except TimeoutError:
            return False
        return True


def packed(event_id: str, event: Event) -> bytes:
    """An event as it goes over the wire.

    >>> packed("7-b-1", Event("owner", 7, {"task": "a"})).splitlines()
    [b'id: 7-b-1', b'event: owner', b'data: {"task":"a"}', b'']
    """
    data = to_json(event.data, inf_nan_mode="null").decode()
    return f"id: {event_id}\nevent: {event.name}\ndata: {data}\n\n".encode()
