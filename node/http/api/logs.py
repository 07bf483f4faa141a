"""Logs of attempts: read here, or fetched from the member that ran the attempt."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, BinaryIO, Final

from aiohttp import web
from pydantic import Field

from node.http.api.event_hub import EventHub
from node.http.api.runs import find_run
from node.http.api.shapes import RequestModel
from node.http.door.endpoint import Endpoints, ResponseSpec
from node.http.door.problems import Problem
from node.http.door.request_context import RequestContext
from node.http.door.streaming import stream
from node.peer.protocol import NoSuchLog, PeerAway
from node.state.value import Attempt, EndedRun, Run
from tasks.definition.run import HELD

TailBytes = Annotated[int | None, Field(ge=1, le=2**40)]


class LogQuery(RequestModel):
    """Which log to read."""

    attempt: Annotated[int, Field(ge=1)] | None = Field(default=None, description="Default: the latest")
    follow: bool = Field(default=False, description="Stream until the attempt has ended")
    tail_bytes: TailBytes = Field(default=None, description="Only the last bytes, this many, from the next whole line")


endpoints = Endpoints("runs")

TEXT: Final = {"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff"}
PIECE: Final = 65_536


@endpoints.add(
    "GET",
    "/v1/runs/{run_id}/log",
    {200: ResponseSpec("The log as written so far", str, "text/plain")},
    ("not-found", "invalid", "member-away", "overloaded"),
)
async def log(context: RequestContext, query: LogQuery) -> web.StreamResponse:
    """Return the log of an attempt. With `follow=true`, stream it until the attempt has ended.

    Logs stay on the member that ran the attempt; any member fetches them.
    """
    with context.server.streams.one(context.request.remote):
        return await _log(context, context.path("run_id"), query)


async def _log(context: RequestContext, run_id: str, query: LogQuery) -> web.StreamResponse:
    attempt = await _attempt(context, run_id, query)
    if attempt.node == context.node.settings.node:
        return await local(context, run_id, attempt.attempt, follow=query.follow, tail_bytes=query.tail_bytes)
    limit_s = context.server.limits.peer_log_s
    try:
        fetching = context.server.peers.log(
            attempt.node,
            run_id,
            attempt.attempt,
            follow=query.follow,
            tail_bytes=query.tail_bytes,
            timeout_s=limit_s,
        )
        async with fetching as pieces:
            return await _stream(context, _relayed(context, pieces, run_id, attempt) if query.follow else pieces)
    except NoSuchLog:
        raise _no_log(attempt.node) from None
    except PeerAway as away:
        detail = f"{away.member} has the log of this attempt and does not answer ({away}): try again when it is back"
        raise Problem("member-away", detail, member=away.member) from None


async def local(
    context: RequestContext, run_id: str, attempt: int, *, follow: bool, tail_bytes: int | None = None
) -> web.StreamResponse:
    """Return the log of an attempt that ran on this member, or its last `tail_bytes`. Raises `Problem` not-found."""
    path = context.node.log_path(run_id, attempt)
    if not await asyncio.to_thread(_is_file, path) and not _held(context, run_id, attempt):
        raise _no_log(context.node.settings.node)
    return await _stream(context, _pieces(context, path, run_id, attempt, follow=follow, tail_bytes=tail_bytes))


async def _attempt(context: RequestContext, run_id: str, query: LogQuery) -> Attempt:
    """Return the requested attempt. With `follow`, wait up to `attempt_s` for the first attempt of a run."""
    deadline_s = asyncio.get_running_loop().time() + context.server.limits.attempt_s
    while True:
        found = await find_run(context, run_id)
        attempts = (found.run if isinstance(found, EndedRun) else found).attempts
        chosen = [each for each in attempts if each.attempt == (query.attempt or attempts[-1].attempt)]
        if chosen:
            return chosen[0]
        over = isinstance(found, EndedRun) or asyncio.get_running_loop().time() >= deadline_s
        if query.attempt is not None or not query.follow or over:
            raise Problem("not-found", "there is no such attempt" if attempts else "no attempt has been made yet")
        await context.node.wait_index(context.state.index + 1, context.server.limits.poll_log_s)


async def _stream(context: RequestContext, pieces: AsyncIterator[bytes]) -> web.StreamResponse:
    return await stream(context.request, web.StreamResponse(headers=TEXT), pieces)


async def _relayed(
    context: RequestContext, pieces: AsyncIterator[bytes], run_id: str, attempt: Attempt
) -> AsyncIterator[bytes]:
    """Yield a followed log from another member. Raises `PeerAway` if the member stays silent after the attempt's end.

    The other member ends the log when the attempt ends, unless it has lost its power or its network.
    """
    limits, clock = context.server.limits, asyncio.get_running_loop().time
    over_s: float | None = None
    coming = asyncio.ensure_future(anext(pieces, None))
    try:
        while True:
            if (await asyncio.wait((coming,), timeout=limits.poll_log_s))[0]:
                if (piece := coming.result()) is None:
                    return
                yield piece
                over_s = None
                coming = asyncio.ensure_future(anext(pieces, None))
            elif context.server.kept(EventHub).closed:
                return
            elif _held(context, run_id, attempt.attempt):
                over_s = None
            elif over_s is None:
                over_s = clock()
            elif clock() - over_s > limits.peer_log_s:
                raise PeerAway(attempt.node, "the attempt has ended, but its log does not end")
    finally:
        coming.cancel()


async def _pieces(
    context: RequestContext, path: Path, run_id: str, attempt: int, *, follow: bool, tail_bytes: int | None
) -> AsyncIterator[bytes]:
    file: BinaryIO | None = None
    try:
        while True:
            # Checked before reading, so that the rest of the log is still read once the attempt is known to have ended.
            live = follow and _held(context, run_id, attempt) and not context.server.kept(EventHub).closed
            if file is None:
                file = await asyncio.to_thread(open_log, path, tail_bytes)
            while file is not None and (piece := await asyncio.to_thread(file.read, PIECE)):
                yield piece
            if not live:
                return
            await asyncio.sleep(context.server.limits.poll_log_s)
    finally:
        if file is not None:
            file.close()


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False  # the name is longer than the file system allows


def open_log(path: Path, tail_bytes: int | None) -> BinaryIO | None:
    """Open a log at its beginning, or at the first line that begins in its last `tail_bytes`; None if it is missing."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return None
    if tail_bytes is not None and (from_byte := file.seek(0, os.SEEK_END) - tail_bytes) > 0:
        file.seek(from_byte - 1)
        if not file.readline(tail_bytes + 1).endswith(b"\n"):
            file.seek(from_byte)  # the tail is within one long line
    else:
        file.seek(0)
    return file


def _held(context: RequestContext, run_id: str, attempt: int) -> bool:
    run: Run | None = context.state.runs.get(run_id)
    return run is not None and run.state in HELD and run.attempts[-1].attempt == attempt


def _no_log(member: str) -> Problem:
    return Problem(
        "not-found", f"{member} ran this attempt and has no log of it: it wrote none, or the log was deleted since"
    )
