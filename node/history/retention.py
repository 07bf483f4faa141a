"""Deletes finished runs and attempt logs older than `history_days`; the oldest runs sooner if the file is too large."""

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Container
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from node.execution.order import logs_path
from node.history.store import HISTORY, HistoryStore
from node.liveness.wall_clock import CLOCK, now_us
from node.state.value import State
from node.storage.removal import remove_tree
from node.storage.room import Bounds, size

_log = logging.getLogger("rota.history")

FIRST_S: Final = 60.0
"""Seconds from the start to the first round, so that the start is quick."""

ROUND_S: Final = 3600.0
UNSURE_S: Final = 60.0
"""Seconds until the next round while the clocks of the members disagree."""

BOUND_S: Final = 60.0
"""Seconds between two checks of the size of the file."""

_DAY_US: Final = 86_400_000_000


class Retention:
    """Deletes old runs and logs once an hour, first a minute after the start, while most members' clocks agree.

    With a clock that is a month ahead, a member would delete all runs, so it waits until `agreed` says that the clocks
    agree. The only member of a cluster trusts its own clock. `history_bytes` limits the size of the file.
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
        """Delete by age, once an hour. Run until cancelled."""
        await self._sleep(FIRST_S)
        while True:
            sure = self._agreed() or len(self._state().members) == 1
            if sure:
                await self.delete_older(now_us())
            await self._sleep(ROUND_S if sure else UNSURE_S)

    async def bound(self) -> None:
        """Limit the size of the file, whatever the clocks say. Run until cancelled."""
        while True:
            await self._sleep(BOUND_S)
            await self.trim()

    async def trim(self) -> None:
        """Delete the oldest runs if the file is too large."""
        try:
            count, through_us = await asyncio.to_thread(self._history.trim, self._history_bytes)
        except sqlite3.Error as error:
            _log.error("finished runs cannot be deleted: %s; retrying later", error)
            return
        if count:
            _log.warning(
                "the %d oldest finished runs, up to %s, are deleted here: %s may use %s (ROTA_HISTORY_BYTES, at most a "
                "quarter of the file system)",
                count,
                datetime.fromtimestamp(through_us / 1e6, UTC).isoformat(timespec="seconds"),
                HISTORY,
                size(self._history_bytes),
            )

    async def delete_older(self, at_us: int) -> None:
        """Delete the runs and logs that were too old at `at_us`."""
        state = self._state()
        before_us = at_us - state.settings.history_days * _DAY_US
        try:
            await asyncio.to_thread(self._history.delete_older, at_us, before_us)
            await asyncio.to_thread(delete_logs, self._logs, before_us, state.runs)
        except (OSError, sqlite3.Error) as error:
            _log.error("old runs and logs cannot be deleted: %s; retrying later", error)


def delete_logs(logs: Path, before_us: int, keep: Container[str]) -> None:
    """Delete the logs of runs that were last written before `before_us`, except those of the runs in `keep`.

    Raises `OSError`, once the others are deleted, for logs that cannot be removed.
    """
    if not logs.is_dir():
        return
    kept: list[str] = []
    for run in logs.iterdir():
        if run.name in keep or not run.is_dir():
            continue
        latest_ns = max((one.stat().st_mtime_ns for one in (run, *run.iterdir())), default=0)
        if latest_ns // 1000 < before_us and not remove_tree(run):
            kept.append(run.name)
    if kept:
        raise OSError(f"some logs in {logs} cannot be removed: {', '.join(kept[:10])}")
