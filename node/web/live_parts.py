"""Keeps the parts of open pages up to date: each is made once for all pages that show it, and sent where it differs.

Were each page to fetch what it shows, two hundred open ones would take more of a node than its work does.
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
"""What happens within this time after an event is seen at once."""

STILL_S: Final = 3.0
"""Parts are made anew after this time though nothing has happened: progress grows, and things become due."""

SHARE: Final = 11
"""After parts were made and sent, this many times the processor time that it took passes before the next time: at most
8% of a core. The overview takes some 10 ms, so that an event is seen within 200 ms."""

REST_S_MAX: Final = 5.0
"""The longest such pause: on a busy node, other work of the thread is counted as well."""

MAKE_S: Final = 5.0
"""How long making a part may take. A disk that does not answer would otherwise hold up all other parts."""

SEND_S: Final = 60e-6
"""The processor time that sending a part to one page takes."""

BEAT_S: Final = 4.0
"""A page that is shown hears something after this time at the latest. One that hears nothing for longer knows that its
node is cut off, stands still or is gone, of which its connection may not tell it for hours.
"""


_STAMP: Final = re.compile(rb'data-now=\\?"[^"]*"')
"""When a part was made: a part that differs in this only has not changed."""


@dataclass(frozen=True, slots=True)
class Unmade:
    """A part that cannot be made any more, and why: its task was deleted. The page says so above what it has."""

    why: str


_NOT_NOW: Final = Unmade("the node cannot make it now; its log says why")

Make = Callable[[], Awaitable[str | Unmade]]
"""Makes a part: its HTML."""


@dataclass(frozen=True, slots=True)
class PartKey:
    """What is made once for all: what a role is shown at a path and query of the page."""

    role: Role
    url: str


@dataclass(eq=False)
class LivePart:
    """A part of a page that is kept up to date."""

    #: Which part it is.
    key: PartKey
    #: How each page that shows the part would make it, by page.
    makers: dict[object, Make] = field(default_factory=dict)
    #: The number of its latest content.
    version: int = 0
    #: Its latest content as an event.
    event: bytes = b""
    stamped: bytes = b""
    """`event` without the time when it was made."""
    broken: bool = False
    """Whether making it has failed, so that its log line is not repeated."""


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
        """The events of one page, while the block runs: each part as it is now, then whenever it differs.

        `hub` tells when something happens, and when the server stops, which ends the events. An event `beat` is sent at
        once, and every `beat_s` seconds.
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
            # Whatever is sent between two beats: parts are made every few seconds, and most do not differ.
            if clock() >= next_beat_s:
                next_beat_s = clock() + beat_s
                yield beat()
            with suppress(TimeoutError):
                async with asyncio.timeout(next_beat_s - clock()):
                    await made.wait()

    async def _keep_up(self, hub: EventHub) -> None:
        """Make the parts when something has happened, or after a while, until no page is open or the server stops."""
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
        """Wait for `seconds`, or until a page is opened with a part that no other page shows."""
        try:
            async with asyncio.timeout(seconds):
                while not any(part.version == 0 for part in self._parts.values()):
                    await self._newly_wanted.wait()
                    self._newly_wanted.clear()
        except TimeoutError:
            pass

    async def _something(self, hub: EventHub, updates: int) -> int:
        """Wait until something has happened, a page was opened, or `STILL_S` are over. Returns the count of updates."""
        happened = asyncio.ensure_future(hub.after(updates, STILL_S))
        wanted = asyncio.ensure_future(self._newly_wanted.wait())
        try:
            await asyncio.wait((happened, wanted), return_when=asyncio.FIRST_COMPLETED)
            return hub.updates
        finally:
            happened.cancel()
            wanted.cancel()

    async def _make(self, part: LivePart) -> bool:
        """Make a part as one of its pages would. Returns whether it differs from what was sent before."""
        make = next(iter(part.makers.values()), None)
        if make is None:
            return False  # its last page was closed meanwhile
        made: str | Unmade = _NOT_NOW
        try:
            async with asyncio.timeout(self._make_s):
                made = await make()
            part.broken = False
        except Exception as error:  # noqa: BLE001 - one part that cannot be made must not stop the others
            if not part.broken:  # not each time that it is tried again
                _log.warning("%s cannot be shown: %s: %s", part.key.url, type(error).__name__, error, exc_info=True)
            part.broken = True
        event = part_bytes(part.key.url, made)
        stamped = _STAMP.sub(b"", event)
        if stamped == part.stamped and part.version:
            return False
        part.event, part.stamped, part.version = event, stamped, part.version + 1
        return True


def beat() -> bytes:
    """The event that says that the node is there, with the version of the page that it has."""
    return f'event: beat\ndata: {{"page":"{page_version()}"}}\n\n'.encode()


def part_bytes(url: str, made: str | Unmade) -> bytes:
    r"""A part as a server-sent event.

    >>> part_bytes("/?part=a", "<p>")
    b'event: part\ndata: {"url":"/?part=a","html":"<p>"}\n\n'
    >>> part_bytes("/?part=b", Unmade("it was deleted"))
    b'event: part\ndata: {"url":"/?part=b","why":"it was deleted"}\n\n'
    """
    content = {"why": made.why} if isinstance(made, Unmade) else {"html": made}
    data = json.dumps({"url": url, **content}, ensure_ascii=False, separators=(",", ":"))
    return f"event: part\ndata: {data}\n\n".encode()
