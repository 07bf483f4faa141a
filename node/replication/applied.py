"""Waiting until an entry of the log is applied on this member."""

import asyncio
from collections.abc import Callable


class AppliedWaiters:
    """Waits for indexes. `index` returns that of the last entry applied here; all else is for the event loop."""

    def __init__(self, index: Callable[[], int]) -> None:
        self._index = index
        self._waits: dict[asyncio.Future[None], int] = {}

    def __bool__(self) -> bool:
        """Whether a caller waits. Any thread may ask."""
        return bool(self._waits)

    def applied(self, index: int) -> None:
        """Wake the callers that wait for `index` or an earlier one."""
        for wait, until in list(self._waits.items()):
            if until <= index and not wait.done():
                wait.set_result(None)

    async def wait(self, index: int, timeout_s: float) -> bool:
        """Wait until `index` is applied here. Whether it was within `timeout_s`."""
        if self._index() >= index:
            return True
        wait = asyncio.get_running_loop().create_future()
        self._waits[wait] = index
        try:
            async with asyncio.timeout(timeout_s):
                await wait
        except TimeoutError:
            return False
        finally:
            del self._waits[wait]
        return True
