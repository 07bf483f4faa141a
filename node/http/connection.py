"""One client's connection: aiohttp's protocol with the deadlines that it lacks.

aiohttp waits without a limit for the rest of a body, for a client that does not read, and for the last bytes of a
closing connection. It answers bytes that are not HTTP in plain text, with the versions of what runs here.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from aiohttp import EMPTY_PAYLOAD, StreamReader, web
from aiohttp.http_exceptions import BadHttpMethod, LineTooLong
from aiohttp.web_protocol import RequestHandler, _ErrInfo  # the only way to recognise what could not be parsed

from node.http.connection_limits import ConnectionLimits
from node.http.problems import Problem

HEAD_BYTES: Final = 65_536
"""The limit of a request line and its headers together. aiohttp limits only each header and their number: 1 MiB in all.
"""


@dataclass(frozen=True, slots=True)
class ConnectionTimeouts:
    """The deadlines of a connection, in seconds.

    `request_s`: until the head of the next request has arrived, whether or not it has begun. `reader_s`: until a client
    that does not read takes more of a response. `rest_s`: for reading and dropping the rest of a body that was answered
    before its end (a client whose connection is reset does not read the response). `closing_s`: until a closed
    connection is gone. `garbage_s`: until bytes that are not HTTP are answered, plus or minus a half; it slows down a
    client that sends them and reconnects at once.
    """

    request_s: float = 15.0
    reader_s: float = 30.0
    rest_s: float = 1.0
    closing_s: float = 5.0
    garbage_s: float = 2.0


class ClientConnection(RequestHandler):
    """A connection to the API.

    `limits` counts it, under `origin`. `common_headers` gives the headers of a response that no route makes.
    `rng` draws how long the answer to what is not HTTP is delayed.
    """

    __slots__ = (
        "_body",
        "_common_headers",
        "_garbage",
        "_gone",
        "_head_bytes",
        "_idle",
        "_limits",
        "_origin",
        "_rng",
        "_stalled",
        "_timeouts",
        "_wire",
        "closing_since_s",
    )

    def __init__(
        self,
        manager: Any,
        limits: "ConnectionLimits[ClientConnection]",
        origin: str,
        timeouts: ConnectionTimeouts,
        common_headers: Callable[[], Mapping[str, str]],
        rng: Random,
        **more: Any,
    ) -> None:
        super().__init__(
            manager,
            # Bodies are never decompressed: a few kilobytes of gzip can be gigabytes of zeros.
            auto_decompress=False,
            keepalive_timeout=timeouts.request_s,
            lingering_time=timeouts.rest_s,
            **more,
        )
        self._limits = limits
        self._origin = origin
        self._timeouts = timeouts
        self._common_headers = common_headers
        self._rng = rng
        self._idle = True
        self._body: StreamReader = EMPTY_PAYLOAD
        self._head_bytes = 0
        self._stalled: asyncio.TimerHandle | None = None
        self._wire: asyncio.Transport | None = None
        self._garbage = False
        self._gone = asyncio.Event()
        self.closing_since_s: float | None = None
        """Since when it is known to be closing, set by the listener's sweep."""

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        assert isinstance(transport, asyncio.Transport)
        self._wire = transport
        self._limits.add(self, self._origin, self._loop.time())
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """The connection has ended."""
        self._limits.remove(self)
        self._gone.set()
        self._cancel_stalled()
        transport: Any = self.transport
        super().connection_lost(exc)
        # asyncio's transport refers to itself by this method, and only the garbage collector would free it. What is
        # open while the collector freezes what there is (`node.runtime.gc_tuning`) would never be freed.
        if hasattr(transport, "_read_ready_cb"):
            transport._read_ready_cb = None

    def data_received(self, data: bytes) -> None:
        """Part of a head or of a body has arrived, or several requests."""
        if self._garbage or self._head_bytes > HEAD_BYTES:
            return  # it is, or will be, answered with an error
        before = len(self._messages)
        super().data_received(data)
        if len(self._messages) > before:
            self._head_arrived()
        elif self._idle and self._body.is_eof():
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self._refuse_head()

    def pause_writing(self) -> None:
        """The client does not read the response."""
        super().pause_writing()
        self._stalled = self._loop.call_later(self._timeouts.reader_s, self.abort)

    def resume_writing(self) -> None:
        """The client reads again."""
        self._cancel_stalled()
        super().resume_writing()

    # -- deadlines

    @property
    def closing(self) -> bool:
        """Whether it is closed on this side while its last bytes are still being sent."""
        return self._wire is not None and self._wire.is_closing()

    def abort(self) -> None:
        """End it at once, and drop what is still to be sent."""
        if self._wire is not None:
            self._wire.abort()

    def _cancel_stalled(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    # -- aiohttp's side

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send the rest of a response; after that the connection is idle until the client's next request."""
        if self._garbage:
            await self._delay_garbage_response()
        finished = await super().finish_response(request, resp, start_time)
        if not self._messages:
            self._idle = True
            self._limits.mark_idle(self, self._loop.time())
        return finished

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer bytes that are not HTTP with a problem document, as all other errors."""
        if status != 400:
            return super().handle_error(request, status, exc, message)
        self._garbage = True
        self.logger.debug("bytes that are not HTTP from %s: %s", request.remote, exc)
        if request.writer.output_size > 0:
            raise ConnectionError("part of the response is already sent")
        response = Problem("bad-request", _parse_error(exc), headers=self._common_headers()).response()
        response.force_close()
        return response

    async def _delay_garbage_response(self) -> None:
        """Wait before answering bytes that are not HTTP, or until the client has disconnected.

        With an answer at once, hundreds of clients that reconnect at once fill the queue in which all others wait to be
        accepted. Meanwhile the connection counts as idle, so that it is the first to be closed when there is no room.
        """
        self._limits.mark_idle(self, self._loop.time())
        # Random, so that clients that came together do not come back together.
        delay_s = self._timeouts.garbage_s * self._rng.uniform(0.5, 1.5)
        with suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._gone.wait()

    def _head_arrived(self) -> None:
        """The head of a request has arrived, or bytes that do not parse as one."""
        self._idle, self._head_bytes = False, 0
        self._limits.mark_busy(self)
        message, body = self._messages[-1]
        if isinstance(message, _ErrInfo):
            if not self._body.is_eof():
                # Without this, aiohttp lets the handler wait for the rest of a body that can no longer be parsed.
                self._body.set_exception(web.RequestPayloadError(message.message))
            return
        self._body = body

    def _refuse_head(self) -> None:
        error = LineTooLong("the headers of this request", HEAD_BYTES)
        self._messages.append((_ErrInfo(400, error, error.message), EMPTY_PAYLOAD))
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _parse_error(error: BaseException | None) -> str:
    """What is wrong with bytes that do not parse as a request, without quoting them."""
    if isinstance(error, LineTooLong):
        return (
            "the request line or a header is too long: the limits are 8190 bytes for each and 64 KiB for all of them; "
            "send long values in the body"
        )
    if isinstance(error, BadHttpMethod):
        return "this is not HTTP: the request line is METHOD PATH HTTP/1.1, and nodes speak no TLS (use http://)"
    return "this is not HTTP/1.1: the request line, a header, or the length of a chunk cannot be parsed"
