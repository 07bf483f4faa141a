"""One client's connection: aiohttp's protocol, with deadlines for what it leaves without.

aiohttp waits for the rest of a body, for a reader that does not read, and for a closing connection's last bytes for as
long as it takes; it answers what is no HTTP in plain text, with the versions of what runs here.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import EMPTY_PAYLOAD, StreamReader, web
from aiohttp.http_exceptions import BadHttpMethod, LineTooLong
from aiohttp.web_protocol import RequestHandler, _ErrInfo  # the only way to tell what could not be parsed

from node.http.connection_limits import Doors
from node.http.problems import Problem

HEAD_BYTES: Final = 65_536
"""A request line and its headers, together. aiohttp limits each header and their number only: to 1 MiB in all."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a connection is waited for, in seconds.

    `request_s`: until the head of the next request has come, whether or not it has begun. `reader_s`: until a client
    takes some of an answer again. `rest_s`: while the rest of a body is thrown away that was answered before its end
    (a client that hears nothing but a reset does not read the answer). `closing_s`: until a closed connection is gone.
    `garbage_s`: until what is no HTTP is answered, give or take a half: whoever sends it and connects again at once
    spends its time waiting.
    """

    request_s: float = 15.0
    reader_s: float = 30.0
    rest_s: float = 1.0
    closing_s: float = 5.0
    garbage_s: float = 2.0


class ClientConnection(RequestHandler):
    """A connection to the API. `doors` counts it; `bear` gives the headers of an answer that no route makes."""

    __slots__ = (
        "_bear",
        "_body",
        "_bytes_of_head",
        "_doors",
        "_garbage",
        "_gone",
        "_origin",
        "_patience",
        "_stalled",
        "_waits",
        "_wire",
        "closing_since_s",
    )

    def __init__(
        self,
        manager: Any,
        doors: "Doors[ClientConnection]",
        origin: str,
        patience: Patience,
        bear: Callable[[], Mapping[str, str]],
        **more: Any,
    ) -> None:
        super().__init__(
            manager,
            # Nothing is inflated, ever: a few kilobytes of gzip are gigabytes of zeros.
            auto_decompress=False,
            keepalive_timeout=patience.request_s,
            lingering_time=patience.rest_s,
            **more,
        )
        self._doors = doors
        self._origin = origin
        self._patience = patience
        self._bear = bear
        self._waits = True
        self._body: StreamReader = EMPTY_PAYLOAD
        self._bytes_of_head = 0
        self._stalled: asyncio.TimerHandle | None = None
        self._wire: asyncio.Transport | None = None
        self._garbage = False
        self._gone = asyncio.Event()
        self.closing_since_s: float | None = None
        """Since when it has been seen to be closing, set by who looks."""

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is connected."""
        assert isinstance(transport, asyncio.Transport)
        self._wire = transport
        self._doors.enter(self, self._origin, self._loop.time())
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """It is over."""
        self._doors.leave(self)
        self._gone.set()
        self._let_be()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Something was sent: a part of a head, of a body, or several requests."""
        if self._garbage or self._bytes_of_head > HEAD_BYTES:
            return  # it is told so already, or will be
        before = len(self._messages)
        super().data_received(data)
        if len(self._messages) > before:
            self._begun()
        elif self._waits and self._body.is_eof():
            self._bytes_of_head += len(data)
            if self._bytes_of_head > HEAD_BYTES:
                self._refuse_head()

    def pause_writing(self) -> None:
        """The client does not read what it asked for."""
        super().pause_writing()
        self._stalled = self._loop.call_later(self._patience.reader_s, self.abort)

    def resume_writing(self) -> None:
        """It does again."""
        self._let_be()
        super().resume_writing()

    # -- deadlines

    @property
    def closing(self) -> bool:
        """Whether it is closed here, and its last bytes are still under way."""
        return self._wire is not None and self._wire.is_closing()

    def abort(self) -> None:
        """End it at once, whatever is under way."""
        if self._wire is not None:
            self._wire.abort()

    def _let_be(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    # -- aiohttp's side

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send the rest of an answer; after that the client's next request is waited for."""
        if self._garbage:
            await self._hold_back()
        finished = await super().finish_response(request, resp, start_time)
        if not self._messages:
            self._waits = True
            self._doors.waits(self, self._loop.time())
        return finished

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What is no HTTP is answered as everything else is: with a problem document."""
        if status != 400:
            return super().handle_error(request, status, exc, message)
        self._garbage = True
        self.logger.debug("no HTTP from %s: %s", request.remote, exc)
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun already")
        response = Problem("bad-request", _told(exc), headers=self._bear()).response()
        response.force_close()
        return response

    async def _hold_back(self) -> None:
        """Keep the answer to garbage for a while, or until the client is gone.

        Answered at once, hundreds of clients that connect again at once fill the queue in which all others wait to be
        accepted. Meanwhile the connection counts as one without a request, which goes first where there is no room.
        """
        self._doors.waits(self, self._loop.time())
        # Those that came together would otherwise all come back together.
        held_s = self._patience.garbage_s * random.uniform(0.5, 1.5)
        with suppress(TimeoutError):
            async with asyncio.timeout(held_s):
                await self._gone.wait()

    def _begun(self) -> None:
        """The head of a request has arrived, or what is none."""
        self._waits, self._bytes_of_head = False, 0
        self._doors.asks(self)
        message, body = self._messages[-1]
        if isinstance(message, _ErrInfo):
            if not self._body.is_eof():
                # aiohttp leaves the handler to wait for the rest of a body of which no more can be parsed.
                self._body.set_exception(web.RequestPayloadError(message.message))
            return
        self._body = body

    def _refuse_head(self) -> None:
        fault = LineTooLong("the headers of this request", HEAD_BYTES)
        self._messages.append((_ErrInfo(400, fault, fault.message), EMPTY_PAYLOAD))
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _told(fault: BaseException | None) -> str:
    """What is wrong with bytes that are no request, without those bytes."""
    if isinstance(fault, LineTooLong):
        return (
            "the request line or a header is too long: 8190 bytes are the limit for each, 64 KiB for all of them; "
            "send what is long in the body"
        )
    if isinstance(fault, BadHttpMethod):
        return "this is not HTTP: the request line is METHOD PATH HTTP/1.1, and TLS is not spoken here"
    return "this is not HTTP/1.1: the request line, a header, or the length of a chunk cannot be read"
