"""Keeps the parts of open pages up to date: renders each part once for all its pages, and sends the changed parts.

If each page fetched its own parts, two hundred open pages would cost a node more than its work does.
"""

import asyncio
import json
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from time import thread_time
from typing import Final

from node.http.api.event_hub import EventHub
from node.http.door.session import Role
from node.web.assets import page_version

_log = logging.getLogger(__name__)

SETTLE_S: Final = 0.05
"""The wait after an event, in seconds, so that events that follow within this time are shown together."""

STILL_S: Final = 3.0
"""Parts are made anew after this time even without an event: progress grows, and tasks become due."""

SHARE: Final = 11
"""After parts are made and sent, the pause is this many times the processor time that they took, so that they take at
most 8% of a core. The overview takes about 10 ms, so that an event is seen within 200 ms."""

REST_S_MAX: Final = 5.0
"""The longest pause after parts are made. On a busy node the measured time includes other work of the thread."""

MAKE_S: Final = 5.0
"""How long making a part may take. A disk that does not answer would otherwise hold up all other parts."""

SEND_S: Final = 60e-6
"""The processor time that sending a part to one page takes."""

BEAT_S: Final = 4.0
"""An open page gets at least one event in this time. If it gets none for longer, it knows that its node is unreachable,
stopped or dead: its TCP connection may not show that for hours.
"""


_STAMP: Final = re.compile(rb'data-now=\\?"[^"]*"')
"""Matches the time when a part was made: a part that differs only in this has not changed."""


@dataclass(frozen=True, slots=True)
class Unmade:
    """A part that cannot be made, and why, such as: its task was deleted. The page says so above the old content."""

    why: str


_NOT_NOW: Final = Unmade("the node cannot make it now; its log says why")

Make = Callable[[], Awaitable[str | Unmade]]
"""Makes the HTML of a part."""


@dataclass(frozen=True, slots=True)
class PartKey:
    """Identifies a part that is made once for all pages: the role that sees it, and its path and query."""

    role: Role
    url: str


@dataclass(eq=False)
class LivePart:
    """A part of a page that is kept up to date."""

    #: Which part it is.
    key: PartKey
    #: By open page that shows the part, the function with which that page makes it.
    makers: dict[object, Make] = field(default_factory=dict)
    #: The number of its latest content.
    version: int = 0
    #: Its latest content as an event.
    event: bytes = b""
    stamped: bytes = b""
    """`event` without the time when the part was made."""
    broken: bool = False
    """Whether the last try to make it failed: then the next failure is not logged."""


class LiveParts:
    """The parts of all open pages of one server. Used on the loop.

    `spent_s` reads the processor time of this thread; `make_s` is how long making a part may take, in seconds.
    """

    def __init__(self, spent_s: Callable[[], float] = thread_time, make_s: float = MAKE_S) -> None:
        self._spent_s, self._make_s = spent_s, make_s
        self._parts: dict[PartKey, LivePart] = {}
        self._task: asyncio.Task[None] | None = None
        self._newly_made = asyncio.Event()
        self._newly_wanted = asyncio.Event()

    @contextmanager
    def follow(
        self, makers: Mapping[PartKey, Make], hub: EventHub, beat_s: float = BEAT_S
    ) -> Iterator[AsyncGenerator[bytes, None]]:
        """Yield the events of one page: each part at once, and again whenever it has changed.

        `hub` reports updates, and the stop of the server, which ends the events. An event `beat` is sent at once, and
        every `beat_s` seconds.
        """
        me = object()
        parts = [self._parts.setdefault(key, LivePart(key)) for key in makers]
        for part in parts:
            part.makers[me] = makers[part.key]
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._keep_up(hub), name="live-parts")
        self._newly_wanted.set()
        try:
            yield self._events(parts, hub, beat_s)
        finally:
            for part in parts:
                del part.makers[me]
                if not part.makers:
                    self._parts.pop(part.key, None)

    async def _events(self, parts: list[LivePart], hub: EventHub, beat_s: float) -> AsyncGenerator[bytes, None]:
        yield b"retry: 1000\n" + beat()
        sent, clock = dict.fromkeys(parts, 0), asyncio.get_running_loop().time
        next_beat_s = clock() + beat_s
        while not hub.closed:
            made = self._newly_made
            for part in parts:
                if sent[part] != part.version:
                    sent[part] = part.version
                    yield part.event
            # Send beats on time, whether parts are sent or not.
            if clock() >= next_beat_s:
                next_beat_s = clock() + beat_s
                yield beat()
            with suppress(TimeoutError):
                async with asyncio.timeout(next_beat_s - clock()):
                    await made.wait()

    async def _keep_up(self, hub: EventHub) -> None:
        """Make the parts after each update, or after `STILL_S`, until no page is open or the server stops."""
        with hub.watcher():
            updates = hub.updates
            while self._parts and not hub.closed:
                self._newly_wanted.clear()
                began_s, sendings = self._spent_s(), 0
                for part in list(self._parts.values()):
                    if await self._make(part):
                        sendings += len(part.makers)
                self._made()
                spent_s = self._spent_s() - began_s + SEND_S * sendings
                await self._rest(min(REST_S_MAX, SHARE * spent_s))
                updates = await self._something(hub, updates)
                await asyncio.sleep(SETTLE_S)
        self._made()

    def _made(self) -> None:
        self._newly_made.set()
        self._newly_made = asyncio.Event()

    async def _rest(self, seconds: float) -> None:
        """Wait for `seconds`, or until a page is opened with a part that was not made yet."""
        try:
            async with asyncio.timeout(seconds):
                while not any(part.version == 0 for part in self._parts.values()):
                    await self._newly_wanted.wait()
                    self._newly_wanted.clear()
        except TimeoutError:
            pass

    async def _something(self, hub: EventHub, updates: int) -> int:
        """Wait for an update, a newly opened page, or `STILL_S`. Returns the number of updates so far."""
        happened = asyncio.ensure_future(hub.after(updates, STILL_S))
        wanted = asyncio.ensure_future(self._newly_wanted.wait())
        try:
            await asyncio.wait((happened, wanted), return_when=asyncio.FIRST_COMPLETED)
            return hub.updates
        finally:
            happened.cancel()
            wanted.cancel()

    async def _make(self, part: LivePart) -> bool:
        """Make a part for all of its pages. Returns whether it differs from the content that was sent before."""
        make = next(iter(part.makers.values()), None)
        if make is None:
            return False  # its last page was closed meanwhile
        made: str | Unmade = _NOT_NOW
        try:
            async with asyncio.timeout(self._make_s):
                made = await make()
            part.broken = False
        except Exception as error:  # noqa: BLE001 - a part that cannot be made must not stop the others
            if not part.broken:  # only the first of several failures in a row
                _log.warning("%s cannot be shown: %s: %s", part.key.url, type(error).__name__, error, exc_info=True)
            part.broken = True
        event = part_bytes(part.key.url, made)
        stamped = _STAMP.sub(b"", event)
        if stamped == part.stamped and part.version:
            return False
        part.event, part.stamped, part.version = event, stamped, part.version + 1
        return True


def beat() -> bytes:
    """Return the event that shows that the node is alive; it has the version of the node's page."""
    return f'event: beat\ndata: {{"page":"{page_version()}"}}\n\n'.encode()


def part_bytes(url: str, made: str | Unmade) -> bytes:
    r"""Return a part as a server-sent event.

    >>> part_bytes("/?part=a", "<p>")
    b'event: part\ndata: {"url":"/?part=a","html":"<p>"}\n\n'
    >>> part_bytes("/?part=b", Unmade("it was deleted"))
    b'event: part\ndata: {"url":"/?part=b","why":"it was deleted"}\n\n'
    """
    content = {"why": made.why} if isinstance(made, Unmade) else {"html": made}
    data = json.dumps({"url": url, **content}, ensure_ascii=False, separators=(",", ":"))
    return f"event: part\ndata: {data}\n\n".encode()
