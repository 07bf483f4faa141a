"""Forgets what is older than `history_days`: finished runs, and the logs of attempts; and the oldest runs sooner, where
they take more room than a node gives them.
"""

import asyncio
import logging
import shutil
import sqlite3
from collections.abc import Awaitable, Callable, Container
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from node.execution.order import logs_path
from node.history.store import HISTORY, HistoryStore
from node.liveness.wall_clock import CLOCK, now_us
from node.state.value import State
from node.storage.room import Bounds, size

_log = logging.getLogger("rota.history")

FIRST_S: Final = 60.0
"""After the start, which is to be quick."""

ROUND_S: Final = 3600.0
UNSURE_S: Final = 60.0
"""Until the next round, where the time is not known for sure."""

BOUND_S: Final = 60.0
"""Between two looks at how much room the finished runs take."""

_DAY_US: Final = 86_400_000_000


class Retention:
    """Once an hour, and a minute after the start; but only at a time that most members' clocks agree on.

    A clock that is ahead by a month would have it delete all that there is. `agreed` tells whether they do; a member
    that is alone in its cluster has only its own to go by.
    """

    def __init__(
        self,
        folder: Path,
        history: HistoryStore,
        state: Callable[[], State],
        agreed: Callable[[], bool] = lambda: CLOCK.agreed,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        history_bytes: int = Bounds().history_bytes,
    ) -> None:
        self._history_bytes = history_bytes
        self._logs = logs_path(folder)
        self._history = history
        self._state = state
        self._agreed = agreed
        self._sleep = sleep

    async def run(self) -> None:
        """Serve until cancelled."""
        await self._sleep(FIRST_S)
        while True:
            sure = self._agreed() or len(self._state().members) == 1
            if sure:
                await self.forget(now_us())
            await self._sleep(ROUND_S if sure else UNSURE_S)

    async def bound(self) -> None:
        """Keep the finished runs from taking too much room, whatever the time is. Serve until cancelled."""
        while True:
            await self._sleep(BOUND_S)
            await self.trim()

    async def trim(self) -> None:
        """Forget the oldest runs where all take too much room."""
        try:
            count, through_us = await asyncio.to_thread(self._history.trim, self._history_bytes)
        except sqlite3.Error as error:
            _log.error("finished runs cannot be deleted: %s; trying again later", error)
            return
        if count:
            _log.warning(
                "%d finished runs are forgotten here, the oldest, up to %s: %s holds %s at most (ROTA_HISTORY_BYTES, a "
                "quarter of the file system at most)",
                count,
                datetime.fromtimestamp(through_us / 1e6, UTC).isoformat(timespec="seconds"),
                HISTORY,
                size(self._history_bytes),
            )

    async def forget(self, at_us: int) -> None:
        """Forget what was too old at `at_us`."""
        state = self._state()
        before_us = at_us - state.settings.history_days * _DAY_US
        try:
            await asyncio.to_thread(self._history.forget, at_us, before_us)
            await asyncio.to_thread(forget_logs, self._logs, before_us, state.runs)
        except (OSError, sqlite3.Error) as error:
            _log.error("what is too old cannot be deleted: %s; trying again later", error)


def forget_logs(logs: Path, before_us: int, keep: Container[str]) -> None:
    """Delete the logs of the runs to which nothing was written since `before_us`, but for those in `keep`.

    Raises `OSError`.
    """
    if not logs.is_dir():
        return
    for run in logs.iterdir():
        if run.name in keep or not run.is_dir():
            continue
        latest_ns = max((one.stat().st_mtime_ns for one in (run, *run.iterdir())), default=0)
        if latest_ns // 1000 < before_us:
            shutil.rmtree(run)
