"""Waiting until an entry is applied here."""

import asyncio

from node.replication.state_machine import AppliedWaiters
from tests.unit.node.loop import serving, turns


def test_who_waits_is_told_once_it_is_there_and_not_before() -> None:
    async def scenario() -> None:
        waiters = AppliedWaiters(lambda: 3)
        assert await waiters.wait(3, 0)
        assert not waiters
        waiting = asyncio.ensure_future(waiters.wait(5, 60))
        await turns()
        assert waiters
        waiters.applied(4)
        await turns()
        assert not waiting.done()
        waiters.applied(6)
        assert await waiting
        assert not waiters

    serving(scenario())


def test_who_waits_too_long_is_told_so() -> None:
    async def scenario() -> None:
        waiters = AppliedWaiters(lambda: 3)
        assert not await waiters.wait(4, 0)
        assert not waiters

    serving(scenario())
