"""Responses that are sent piece by piece."""

from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterator
from contextlib import contextmanager

from aiohttp import web

from node.http.door.connection_limits import THIS_MACHINE, origin_of
from node.http.door.problems import Problem


class StreamLimit:
    """Counts the open streams, which last until their clients disconnect, and allows `most` at once.

    One remote address may have half of them, so that it cannot take them all from others.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: Counter[str] = Counter()

    @contextmanager
    def one(self, remote: str | None) -> Iterator[None]:
        """Count a stream to `remote` while the block runs. Raises `Problem` overloaded if a limit is reached."""
        origin = origin_of(remote or "")
        if self._open.total() >= self._most:
            raise Problem("overloaded", f"{self._most} streams are open here, which is the limit: ask another member")
        if origin != THIS_MACHINE and self._open[origin] >= max(1, self._most // 2):
            most = f"{max(1, self._most // 2)} streams are open from this address"
            raise Problem("overloaded", f"{most}, which is the limit: close some, or ask another member")
        self._open[origin] += 1
        try:
            yield
        finally:
            self._open[origin] -= 1
            if not self._open[origin]:
                del self._open[origin]


async def until(
    expires_s: int | None, now_us: Callable[[], int], pieces: AsyncGenerator[bytes, None]
) -> AsyncGenerator[bytes, None]:
    """Yield the pieces until the browser's session expires (None: never), which is checked at each piece only."""
    async for piece in pieces:
        if expires_s is not None and expires_s * 1_000_000 <= now_us():
            return
        yield piece


async def stream(
    request: web.Request, response: web.StreamResponse, pieces: AsyncIterable[bytes]
) -> web.StreamResponse:
    """Send the pieces as they come. A client that disconnects before the end is no error."""
    if not await _sent(response.prepare(request)):
        return response
    try:
        async for piece in pieces:
            if not await _sent(response.write(piece)):
                return response
    except Exception:
        # Part of the response is sent, so no problem document can follow: closing the connection marks it incomplete.
        if request.transport is not None:
            request.transport.close()
        raise
    await _sent(response.write_eof())
    return response


async def _sent(sending: Awaitable[object]) -> bool:
    # Catches only this client's disconnection: pieces may come from another member, which may disconnect as well.
    try:
        await sending
    except ConnectionResetError:
        return False
    return True
