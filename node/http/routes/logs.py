"""Logs of attempts: read here, or fetched from the member that ran."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO, Final

from aiohttp import web

from node.http.endpoint import Endpoints, Says
from node.http.problems import Problem
from node.http.request_context import Call
from node.http.requests import LogQuery
from node.http.routes.runs import find
from node.http.streaming import stream
from node.peer.protocol import NoSuchLog, PeerAway
from node.state.value import Attempt, EndedRun, Run
from tasks.run import HELD

endpoints = Endpoints("runs")

TEXT: Final = {"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff"}
PIECE: Final = 65_536


@endpoints.add(
    "GET",
    "/v1/runs/{run_id}/log",
    {200: Says("The log, as far as it goes", str, "text/plain")},
    ("not-found", "invalid", "member-away", "overloaded"),
)
async def log(call: Call, query: LogQuery) -> web.StreamResponse:
    """What an attempt wrote. With `follow=true`, streamed until the attempt has ended.

    Logs stay on the member that ran; any member fetches them.
    """
    with call.service.streams.one():
        return await _log(call, call.path("run_id"), query)


async def _log(call: Call, run_id: str, query: LogQuery) -> web.StreamResponse:
    attempt = await _attempt(call, run_id, query)
    if attempt.node == call.node.facts.node:
        return await local(call, run_id, attempt.attempt, follow=query.follow)
    limit_s = call.service.limits.peer_log_s
    try:
        fetching = call.service.peers.log(attempt.node, run_id, attempt.attempt, follow=query.follow, timeout_s=limit_s)
        async with fetching as pieces:
            return await _stream(call, _relayed(call, pieces, run_id, attempt) if query.follow else pieces)
    except NoSuchLog:
        raise _no_log(attempt.node) from None
    except PeerAway as away:
        detail = (
            f"{away.member} ran this attempt and has its log, and does not answer ({away}): try again when it is back"
        )
        raise Problem("member-away", detail, member=away.member) from None


async def local(call: Call, run_id: str, attempt: int, *, follow: bool) -> web.StreamResponse:
    """The log of an attempt that ran on this member. Raises `Problem` not-found."""
    path = call.node.log_path(run_id, attempt)
    if not await asyncio.to_thread(_is_file, path) and not _held(call, run_id, attempt):
        raise _no_log(call.node.facts.node)
    return await _stream(call, _pieces(call, path, run_id, attempt, follow=follow))


async def _attempt(call: Call, run_id: str, query: LogQuery) -> Attempt:
    """The attempt that is asked for; with `follow`, a run that waits for its first one is waited for a while."""
    patience = asyncio.get_running_loop().time() + call.service.limits.attempt_s
    while True:
        found = await find(call, run_id)
        attempts = (found.run if isinstance(found, EndedRun) else found).attempts
        chosen = [each for each in attempts if each.attempt == (query.attempt or attempts[-1].attempt)]
        if chosen:
            return chosen[0]
        over = isinstance(found, EndedRun) or asyncio.get_running_loop().time() >= patience
        if query.attempt is not None or not query.follow or over:
            raise Problem("not-found", "there is no such attempt" if attempts else "no attempt has been made yet")
        await call.node.wait_index(call.state.index + 1, call.service.limits.poll_log_s)


async def _stream(call: Call, pieces: AsyncIterator[bytes]) -> web.StreamResponse:
    return await stream(call.request, web.StreamResponse(headers=TEXT), pieces)


async def _relayed(call: Call, pieces: AsyncIterator[bytes], run_id: str, attempt: Attempt) -> AsyncIterator[bytes]:
    """A log that is followed on another member. Raises `PeerAway` if that is silent for long after the attempt is over.

    It ends the log itself when the attempt has ended; one that has lost its power, or its network, cannot.
    """
    limits, clock = call.service.limits, asyncio.get_running_loop().time
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
            elif call.service.hub.closed:
                return
            elif _held(call, run_id, attempt.attempt):
                over_s = None
            elif over_s is None:
                over_s = clock()
            elif clock() - over_s > limits.peer_log_s:
                raise PeerAway(attempt.node, "the attempt is over, and its log does not end")
    finally:
        coming.cancel()


async def _pieces(call: Call, path: Path, run_id: str, attempt: int, *, follow: bool) -> AsyncIterator[bytes]:
    file: BinaryIO | None = None
    try:
        while True:
            # Before reading: what was written until the attempt ended is read after it was seen to have ended.
            live = follow and _held(call, run_id, attempt) and not call.service.hub.closed
            if file is None:
                file = await asyncio.to_thread(_opened, path)
            while file is not None and (piece := await asyncio.to_thread(file.read, PIECE)):
                yield piece
            if not live:
                return
            await asyncio.sleep(call.service.limits.poll_log_s)
    finally:
        if file is not None:
            file.close()


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False  # a name that is longer than a file's can be


def _opened(path: Path) -> BinaryIO | None:
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None


def _held(call: Call, run_id: str, attempt: int) -> bool:
    run: Run | None = call.state.runs.get(run_id)
    return run is not None and run.state in HELD and run.attempts[-1].attempt == attempt


def _no_log(member: str) -> Problem:
    return Problem(
        "not-found", f"{member} ran this attempt, and has no log of it: it wrote none, or it was removed since"
    )
