"""The last lines of an attempt's log, from whichever member has it."""

import asyncio
import re
from pathlib import Path
from typing import Final

from node.http.api.logs import open_log
from node.http.door.request_context import RequestContext
from node.peer.protocol import NoSuchLog, PeerAway
from node.state.value import Attempt

LINES_MAX: Final = 12
BYTES_MAX: Final = 4096
"""How much of a log is read for its last lines."""


_STYLE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
"""What a terminal takes for colours, titles and moves of its cursor (ECMA-48)."""


async def last_lines(context: RequestContext, run_id: str, attempt: Attempt) -> list[str]:
    """The last lines of the log; none if there is no log, or its member does not answer."""
    if attempt.node == context.node.facts.node:
        data = await asyncio.to_thread(_read, context.node.log_path(run_id, attempt.attempt))
    else:
        data = await _fetched(context, run_id, attempt)
    return readable(data.decode(errors="replace"))[-LINES_MAX:]


def readable(text: str) -> list[str]:
    r"""The lines of a log as a terminal would leave them, without colours; no empty ones.

    >>> readable("10 %\r20 %\r\n\n\x1b[31mfailed\x1b[0m\n")
    ['20 %', 'failed']
    """
    lines = (_STYLE.sub("", line).rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return [line for line in lines if line.strip()]


def _read(path: Path) -> bytes:
    try:
        file = open_log(path, BYTES_MAX)
    except OSError:
        return b""  # a name that is too long for the file system, or a disk that fails
    if file is None:
        return b""
    with file:
        return file.read(BYTES_MAX)


async def _fetched(context: RequestContext, run_id: str, attempt: Attempt) -> bytes:
    limit_s, data = context.server.limits.peer_s, b""
    fetching = context.server.peers.log(
        attempt.node, run_id, attempt.attempt, follow=False, timeout_s=limit_s, tail_bytes=BYTES_MAX
    )
    try:
        async with asyncio.timeout(2 * limit_s), fetching as pieces:
            async for piece in pieces:
                data += piece
                if len(data) >= BYTES_MAX:
                    break
    except (NoSuchLog, PeerAway, TimeoutError):
        return data
    return data
