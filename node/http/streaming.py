"""Answers that are sent piece by piece."""

from collections.abc import AsyncIterable, Awaitable

from aiohttp import web


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
