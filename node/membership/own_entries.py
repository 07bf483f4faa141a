"""Commits what this member says of itself, such as its places: an entry is proposed until the state has it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from node.raft.errors import RaftError
from node.replication.proposer import MemberPort
from node.state.entries import Entry

_log = logging.getLogger("rota.member")

PROPOSE_S: Final = 2.0
"""How long one proposal may take."""

AGAIN_S: Final = 1.0
"""The shortest wait between two proposals, so that changes cost at most one entry a second."""


async def keep_committed(
    member: MemberPort,
    lacking: Callable[[int], Entry | None],
    changed: asyncio.Event,
    sleep: Callable[[float], Awaitable[None]],
) -> None:
    """Each time that `changed` is set, propose what `lacking` returns, until it returns None. Runs until cancelled.

    `lacking` gets the present incarnation of this member, and returns the entry that the state does not have yet. None:
    it has it. While the member has not joined, nothing is proposed.
    """
    while True:
        await changed.wait()
        changed.clear()
        while (incarnation := member.standing()) is not None and (entry := lacking(incarnation)) is not None:
            try:
                await member.propose(entry, PROPOSE_S)
            except RaftError as error:
                _log.debug("%s is not committed yet, retrying: %s", type(entry).__name__, error)
            await sleep(AGAIN_S)
