"""One client's connection: aiohttp's protocol, with deadlines and memory limits added.

By itself, aiohttp waits without a limit for the rest of a body, for a client that does not read, and for the last bytes
of a closing connection. It answers bytes that are not HTTP in plain text, and names its own and Python's version.

A client is a *stranger* from the first byte of a request until `welcome` says that its sender is authenticated. Data of
strangers is read in small pieces, and the memory that it takes is counted (`ConnectionLimits.hold`).
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final

from aiohttp import EMPTY_PAYLOAD, StreamReader, web
from aiohttp.http_exceptions import BadHttpMethod, HttpProcessingError, LineTooLong
from aiohttp.web_protocol import RequestHandler, _ErrInfo

from node.http.door.connection_limits import ConnectionLimits
from node.http.door.problems import Problem

HEAD_BYTES: Final = 65_536
"""The limit of a request line and its headers together, give or take one read. aiohttp limits only each header and
their number: 1 MiB in all.
"""

STRANGER_READ_BYTES: Final = 4_096
"""The most bytes read at once from a stranger. Few, because the event loop reads all sockets before it closes one."""

READ_BYTES: Final = 65_536
"""The most bytes read at once from an authenticated client."""

SNIFF_NOTHING: Final = {"X-Content-Type-Options": "nosniff"}
"""Keeps browsers from taking JSON or a log, which quote text sent by clients, for an HTML page."""

LINE_BYTES: Final = 256
"""The memory counted for a header or a chunk beside its text, because many short ones take much as Python objects."""

REQUEST_BYTES: Final = 2_048
"""The memory counted for a request that waits for its turn, beside its head."""


@dataclass(frozen=True, slots=True)
class ConnectionTimeouts:
    """The deadlines of a connection, in seconds."""

    #: Until the head of the next request has arrived completely. A stranger's request has as long again, counted from
    #: its head, until its body has arrived and its answer is sent.
    request_s: float = 15.0
    #: How long a response waits for a client that does not read it.
    reader_s: float = 30.0
    #: For reading and dropping the rest of a body that was answered before its end: a client whose connection is reset
    #: instead does not read the response.
    rest_s: float = 1.0
    #: How long a closing connection may take to send its last bytes.
    closing_s: float = 5.0
    #: The mean delay of the answer to bytes that are not HTTP; the delay is drawn from 0.5 to 1.5 times this. It slows
    #: down a client that sends such bytes and reconnects at once.
    garbage_s: float = 2.0


class ClientConnection(RequestHandler):
    """A connection to the API.

    `limits` counts the connection, under `origin`, and the memory that it holds. `rng` draws the delay of the answer to
    bytes that are not HTTP.
    """

    __slots__ = (
        "_body",
        "_ended",
        "_garbage",
        "_gone",
        "_head_bytes",
        "_held_bytes",
        "_limits",
        "_origin",
        "_rng",
        "_stalled",
        "_stranger",
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
        rng: Random,
        **more: Any,
    ) -> None:
        super().__init__(
            manager,
            # Bodies are never decompressed: a few kilobytes of gzip can be gigabytes of zeros.
            auto_decompress=False,
            keepalive_timeout=timeouts.request_s,
            lingering_time=timeouts.rest_s,
            # How much of a body is buffered before its handler reads it; reading in larger pieces raises this limit.
            read_bufsize=STRANGER_READ_BYTES // 2,
            **more,
        )
        self._limits = limits
        self._origin = origin
        self._timeouts = timeouts
        self._rng = rng
        self._stranger = True
        self._held_bytes = 0
        self._ended = False
        self._body: StreamReader = EMPTY_PAYLOAD
        self._head_bytes = 0
        self._stalled: asyncio.TimerHandle | None = None
        self._wire: asyncio.Transport | None = None
        self._garbage = False
        self._gone: asyncio.Event | None = None
        """Set once the connection has ended. Made only when an answer is delayed, as an event takes 700 bytes."""
        self.closing_since_s: float | None = None
        """When the listener's sweep first saw the connection closing."""

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to count the connection, and treat its client as a stranger."""
        assert isinstance(transport, asyncio.Transport)
        self._wire = transport
        self._read_at_once(STRANGER_READ_BYTES)
        self._limits.add(self, self._origin, self._loop.time())
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop counting the connection, and break the reference cycles that would keep it in memory."""
        self._limits.remove(self)
        if self._gone is not None:
            self._gone.set()
        self._cancel_stalled()
        transport: Any = self._wire  # aiohttp drops its own reference when it closes the connection
        if self._task_handler is not None:
            self._task_handler.add_done_callback(partial(_forget_errors, self._body))
        self._body = EMPTY_PAYLOAD
        super().connection_lost(exc)
        # Through this bound method asyncio's transport refers to itself. So only the garbage collector would free it,
        # and not even that if it was open when the collector's objects were frozen (`node.runtime.gc_tuning`).
        if hasattr(transport, "_read_ready_cb"):
            transport._read_ready_cb = None

    def data_received(self, data: bytes) -> None:
        """Parse received bytes: part of a head or of a body, or several requests."""
        if self._ended or self._close or self._garbage or self._head_bytes > HEAD_BYTES:
            return  # the connection ends, or its last answer is an error
        before = len(self._messages)
        super().data_received(data)
        if (arrived := len(self._messages) - before) > 0:
            self._head_arrived()
        elif self._body.is_eof():
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self._refuse_head()
        if self._upgraded:  # a WebSocket or CONNECT: answered as any other request; the bytes after it are dropped
            self._message_tail = b""
            self.close()
        if self._stranger:
            self._hold(len(data) + data.count(b"\n") * LINE_BYTES + arrived * REQUEST_BYTES)

    def pause_writing(self) -> None:
        """Set a deadline, because the client does not read the response."""
        super().pause_writing()
        if self._stranger and self._wire is not None:
            self._hold(self._wire.get_write_buffer_size())
        self._stalled = self._loop.call_later(self._timeouts.reader_s, self.abort)

    def resume_writing(self) -> None:
        """Cancel the deadline, because the client reads again."""
        self._cancel_stalled()
        super().resume_writing()

    # -- deadlines

    @property
    def closing(self) -> bool:
        """Whether the connection is closed on this side, and its last bytes are still being sent."""
        return self._wire is not None and self._wire.is_closing()

    def abort(self) -> None:
        """End the connection at once, and drop bytes that are still to be sent."""
        if self._wire is not None:
            self._wire.abort()

    # -- authentication, and the memory that is held

    def welcome(self) -> None:
        """Lift the limits for strangers from the rest of the current request: its sender is authenticated now."""
        self._stranger = False
        self._held_bytes = 0
        self._read_at_once(READ_BYTES)
        self._limits.mark_busy(self)

    def _hold(self, more_bytes: int) -> None:
        self._held_bytes += more_bytes
        for connection in self._limits.hold(self, self._held_bytes):
            connection.end()

    def end(self) -> None:
        """End the connection and free its memory at once: its transport ends only after all other sockets are read."""
        self._ended = True
        self.abort()
        if self._task_handler is not None:
            self._task_handler.cancel()
        self._parser = None
        self._messages.clear()
        with suppress(Exception):  # raised if the body cannot be parsed or a handler waits for it: it holds no bytes
            self._body.read_nowait()
        self._body = EMPTY_PAYLOAD

    def _read_at_once(self, most_bytes: int) -> None:
        transport: Any = self._wire
        transport.max_size = most_bytes  # an attribute of asyncio's transport: there is no public way
        # With a limit of 0, sending to a stranger waits until the kernel has accepted all bytes; they count until then.
        transport.set_write_buffer_limits(None if most_bytes > STRANGER_READ_BYTES else 0)

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
        if not (self._stranger and self._messages):  # requests that a stranger has sent ahead stay counted
            self._held_bytes = 0
            self._limits.release(self)
        self._stranger = True
        if self._wire is not None:
            self._read_at_once(STRANGER_READ_BYTES)
        self._limits.mark_idle(self, self._loop.time())
        return finished

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer bytes that are not HTTP with a problem document, like all other errors."""
        if status != 400:
            return super().handle_error(request, status, exc, message)
        self._garbage = True
        self.logger.debug("bytes that are not HTTP from %s: %s", request.remote, exc)
        if request.writer.output_size > 0:
            raise ConnectionError("part of the response is already sent")
        document = Problem("bad-request", _parse_error(exc), headers=SNIFF_NOTHING).response()
        response = _Unnamed(body=document.body, status=document.status, headers=document.headers)
        response.force_close()
        return response

    async def _delay_garbage_response(self) -> None:
        """Wait before answering bytes that are not HTTP, or until the client has disconnected.

        Without the delay, hundreds of clients that reconnect at once fill the queue in which all others wait to be
        accepted. During the delay the connection counts as idle, so that it is closed first when there is no room.
        """
        if self.transport is None:
            return  # it has ended already
        self._gone = asyncio.Event()
        self._limits.mark_idle(self, self._loop.time())
        # Random, so that clients that connected together do not reconnect together.
        delay_s = self._timeouts.garbage_s * self._rng.uniform(0.5, 1.5)
        with suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._gone.wait()

    def _head_arrived(self) -> None:
        """Take the head of a request from the parser, or its error for bytes that are no head.

        A stranger's connection still counts as idle: those with unfinished bodies are closed first when there is no
        room.
        """
        self._head_bytes = 0
        if self._stranger:
            self._limits.mark_idle(self, self._loop.time())
        self._shorten_error()
        message, body = self._messages[-1]
        if isinstance(message, _ErrInfo):
            if not self._body.is_eof():
                # Without this, aiohttp lets the handler wait for the rest of a body that can no longer be parsed.
                self._body.set_exception(web.RequestPayloadError(message.message))
            return
        self._body = body

    def _shorten_error(self) -> None:
        """Drop the quoted bytes from a parser's error: it would keep copies of them until the request is answered."""
        if self._messages and isinstance(error := self._messages[-1][0], _ErrInfo):
            kept = error.exc.with_traceback(None)
            kept.args, kept.__context__, kept.__cause__ = (), None, None
            if isinstance(kept, HttpProcessingError):
                kept.message = ""
            self._messages[-1] = (_ErrInfo(error.status, kept, ""), self._messages[-1][1])

    def _refuse_head(self) -> None:
        error = LineTooLong("the headers of this request", HEAD_BYTES)
        self._messages.append((_ErrInfo(400, error, error.message), EMPTY_PAYLOAD))
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _forget_errors(body: StreamReader, task: "asyncio.Task[None]") -> None:
    """Replace the error of an unfinished body, and retrieve the error of a cancelled handler.

    Through their tracebacks these errors refer to the body and the connection, which refer back to them: a cycle that
    would stay in memory.
    """
    body.set_exception(web.RequestPayloadError())
    if task.cancelled():
        with suppress(asyncio.CancelledError):
            task.result()  # a task keeps its error until the error is retrieved


class _Unnamed(web.Response):
    """A response without the Server header, which would name versions; `app` removes it from the routes' responses."""

    async def _prepare_headers(self) -> None:
        await super()._prepare_headers()
        self.headers.pop("Server", None)


def _parse_error(error: BaseException | None) -> str:
    """Say why bytes do not parse as a request, without quoting them."""
    if isinstance(error, LineTooLong):
        return (
            "the request line or a header is too long: the limits are 8190 bytes for each and 64 KiB for all of them; "
            "send long values in the body"
        )
    if isinstance(error, BadHttpMethod):
        return "this is not HTTP: the request line is METHOD PATH HTTP/1.1, and nodes speak no TLS (use http://)"
    return "this is not HTTP/1.1: the request line, a header, or the length of a chunk cannot be parsed"
