"""Forgets what is older than `history_days`: finished runs, and the logs of attempts."""

import asyncio
import logging
import shutil
import sqlite3
from collections.abc import Awaitable, Callable, Container
from pathlib import Path
from typing import Final

from node.execution.order import logs_path
from node.history.store import History
from node.state.value import State
from node.wall_clock import CLOCK, now_us

_log = logging.getLogger("rota.history")

FIRST_S: Final = 60.0
"""After the start, which is to be quick."""

ROUND_S: Final = 3600.0
UNSURE_S: Final = 60.0
"""Until the next round, where the time is not known for sure."""

_DAY_US: Final = 86_400_000_000


class Retention:
    """Once an hour, and a minute after the start; but only at a time that most members' clocks agree on.

    A clock that is ahead by a month would have it delete all that there is. `agreed` tells whether they do; a member
    that is alone in its cluster has only its own to go by.
    """

    def __init__(
        self,
        folder: Path,
        history: History,
        state: Callable[[], State],
        agreed: Callable[[], bool] = lambda: CLOCK.agreed,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
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
