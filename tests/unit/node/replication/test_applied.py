"""Waiting until an entry is applied here."""

import asyncio

from node.replication.applied import Reached
from tests.unit.node.loop import serving, turns


def test_who_waits_is_told_once_it_is_there_and_not_before() -> None:
    async def scenario() -> None:
        reached = Reached(lambda: 3)
        assert await reached.wait(3, 0)
        assert not reached
        waiting = asyncio.ensure_future(reached.wait(5, 60))
        await turns()
        assert reached
        reached.tell(4)
        await turns()
        assert not waiting.done()
        reached.tell(6)
        assert await waiting
        assert not reached

    serving(scenario())


def test_who_waits_too_long_is_told_so() -> None:
    async def scenario() -> None:
        reached = Reached(lambda: 3)
        assert not await reached.wait(4, 0)
        assert not reached

    serving(scenario())
