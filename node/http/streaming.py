"""Answers that are sent piece by piece."""

from collections.abc import AsyncIterable, Awaitable, Iterator
from contextlib import contextmanager

from aiohttp import web

from node.http.problems import Problem


class Streams:
    """How many answers are being streamed: each may last for as long as its client likes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        """A stream, for as long as the block lasts. Raises `Problem` overloaded where there are too many."""
        if self._open >= self._most:
            raise Problem("overloaded", f"{self._most} streams are open here, which is the limit: ask another member")
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1


async def stream(
    request: web.Request, response: web.StreamResponse, pieces: AsyncIterable[bytes]
) -> web.StreamResponse:
    """Send the pieces as they come. A client that leaves before the end is no fault of anybody's."""
    if not await _sent(response.prepare(request)):
        return response
    try:
        async for piece in pieces:
            if not await _sent(response.write(piece)):
                return response
    except Exception:
        # It has begun: another answer would stand in the middle of this one. Breaking it off says that it is not all.
        if request.transport is not None:
            request.transport.close()
        raise
    await _sent(response.write_eof())
    return response


async def _sent(sending: Awaitable[object]) -> bool:
    # Only this: where the pieces come from another member, its leaving is another matter.
    try:
        await sending
    except ConnectionResetError:
        return False
    return True
