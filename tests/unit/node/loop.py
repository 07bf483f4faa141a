"""Running small services in a test: no clock, no sleeping."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


def serving(scenario: Coroutine[Any, Any, None]) -> None:
    """Run a scenario to its end; one that hangs fails."""
    asyncio.run(asyncio.wait_for(scenario, 5))


async def until(condition: Callable[[], object], turns: int = 500) -> None:
    """Give the loop its turns until a condition holds."""
    for _ in range(turns):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it has not come about")


async def turns(count: int = 30) -> None:
    """Let happen what is about to."""
    for _ in range(count):
        await asyncio.sleep(0)


class Naps:
    """Stands in for `asyncio.sleep`: returns at once, and remembers for how long it was asked.

    While `held`, sleepers sleep on until `wake`.
    """

    def __init__(self, held: bool = False) -> None:
        self.asked: list[float] = []
        self.held = held
        self._woken = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        self.asked.append(seconds)
        if self.held:
            await self._woken.wait()
        else:
            await asyncio.sleep(0)

    def wake(self) -> None:
        """Let all who sleep go on, once."""
        self._woken.set()
        self._woken = asyncio.Event()
