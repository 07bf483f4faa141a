"""Watches a node's disk: stands aside while there is little room, and stops attempts before there is none.

Work and records share a file system. What an attempt takes too much of is taken from Raft's log, without which its
node is none; and the next node that took the run over would go the same way. So an attempt that fills the disk fails,
under its task's retries, and one that is over its own bounds fails where there is room still.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final

from node.storage.reserve import Reserve
from node.storage.room import LOOK_S, Bounds, Level, Space, level, look_s, size, to_stop
from node.storage.usage import held_bytes, trim_logs

_log = logging.getLogger("rota.disk")

LOGS_S: Final = 60.0
LOW_LOGS_S: Final = 2.0
"""How often the logs of all runs are measured together; how often while there is little room."""

RESTS: Final = 20
"""After each time that files were measured, a rest that is so many times as long."""

QUIET_S: Final = 2.0
"""How long there must have been room before this node takes on work again."""

DYING_S: Final = 2.0
"""How long what has been stopped may take to be gone, with what it held, before others are stopped as well."""

Attempt = tuple[str, int]
"""A run's id and the attempt's token."""

Running = Mapping[Attempt, tuple[Path, ...]]
"""What attempts write to here: their scratch folders and logs."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What there was to see: the file system, and what each attempt holds on it, where that was measured."""

    space: Space
    held: Mapping[Attempt, int]


class DiskWatch:
    """`running` gives the attempts that work here; `stop(run_id, error)` ends one as failed; `aside` is told why this
    node is to take on nothing new, or None. `wake` may be called from any thread.
    """

    def __init__(
        self,
        me: str,
        folder: Path,
        logs: Path,
        bounds: Bounds,
        reserve: Reserve,
        running: Callable[[], Running],
        stop: Callable[[str, str], None],
        aside: Callable[[str | None], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        look: Callable[[Path], Space] | None = None,
    ) -> None:
        self._me = me
        self._folder = folder
        self._logs = logs
        self._set = bounds
        self._bounds = bounds  # until the file system has been seen
        self._reserve = reserve
        self._running = running
        self._stop = stop
        self._aside = aside
        self._sleep = sleep
        self._look = look or space_of
        self._level = Level.AMPLE
        self._said = False
        self._short_s = 0.0
        self._stopped: dict[Attempt, float] = {}
        self._measure_next_s = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "disk")

    def wake(self) -> None:
        """Look at once."""
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(self._woken.set)
            except RuntimeError:
                return  # the loop is closed: the process is about to end

    async def run(self) -> None:
        """Serve until cancelled."""
        self._loop = asyncio.get_running_loop()
        try:
            while True:
                wait_s = LOOK_S
                try:
                    wait_s = await self.step()
                except OSError as error:
                    _log.error("the room on the disk cannot be measured: %s; trying again", error)
                await self._rest(wait_s)
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def bound_logs(self) -> None:
        """Keep the logs of all runs within their bounds. Serve until cancelled. There may be very many of them: the
        watch does not wait for it.
        """
        while True:
            begun_s = monotonic()
            try:
                await self.trim()
            except OSError as error:
                _log.error("the logs of old runs cannot be deleted: %s; trying again", error)
            rest_s = LOGS_S if self._level is Level.AMPLE else LOW_LOGS_S
            await self._sleep(max(rest_s, RESTS * (monotonic() - begun_s)))

    async def trim(self) -> None:
        """Delete the oldest logs, where all of them hold too much. Raises `OSError`."""
        limit_bytes = self._bounds.logs_bytes
        running = {run_id for run_id, _ in self._running()}
        cut, freed = await asyncio.to_thread(trim_logs, self._logs, limit_bytes, running)
        if cut:
            _log.warning(
                "the logs of %d runs are deleted, the oldest, which held %s: those of all runs are kept up to %s here "
                "(ROTA_LOGS_BYTES, an eighth of the file system at most)",
                cut,
                size(freed),
                size(limit_bytes),
            )

    async def _rest(self, wait_s: float) -> None:
        resting = asyncio.ensure_future(self._sleep(wait_s))
        woken = asyncio.ensure_future(self._woken.wait())
        try:
            await asyncio.wait((resting, woken), return_when=asyncio.FIRST_COMPLETED)
        finally:
            resting.cancel()
            woken.cancel()
        self._woken.clear()

    async def step(self) -> float:
        """Look, and do what follows. In how many seconds to look again. Raises `OSError`."""
        running = dict(self._running())
        seen = await asyncio.get_running_loop().run_in_executor(self._thread, self._see, running)
        self._bounds = self._set.on(seen.space.total_bytes)
        reserve = self._bounds.reserve_bytes
        self._level = level(seen.space, reserve, self._level)
        self._tell(seen.space)
        self._stopped = {attempt: at_s for attempt, at_s in self._stopped.items() if attempt in running}
        self._stop_what_is_over_its_bounds(seen)
        if self._level is Level.CRITICAL:
            self._make_room(seen)
        return look_s(seen.space, reserve)

    # -- in the thread

    def _see(self, running: Running) -> Seen:
        """Measure; what attempts hold only now and then, while there is room: it may be many files."""
        space = self._look(self._folder)
        bounds = self._set.on(space.total_bytes)
        now_level = level(space, bounds.reserve_bytes, self._level)
        begun_s = monotonic()
        if now_level is Level.AMPLE:
            self._hold(bounds.reserve_bytes // 2)
        if now_level is not Level.CRITICAL and begun_s < self._measure_next_s:
            return Seen(space, {})
        held = {attempt: sum(map(held_bytes, paths)) for attempt, paths in running.items()}
        self._measure_next_s = begun_s + max(LOOK_S, RESTS * (monotonic() - begun_s))
        return Seen(space, held)

    def _hold(self, reserve_bytes: int) -> None:
        try:
            self._reserve.hold(reserve_bytes)
        except OSError as error:
            _log.debug("nothing can be kept back: %s", error)

    # -- on the loop

    def _tell(self, space: Space) -> None:
        now_s = monotonic()
        if self._level is not Level.AMPLE:
            self._short_s = now_s
            if not self._said:
                self._said = True
                self._aside(f"no room on its disk: {_room(space)} when that began")
        elif self._said and now_s - self._short_s >= QUIET_S:
            self._said = False
            _log.info("there is room on the disk again: %s", _room(space))
            self._aside(None)

    def _stop_what_is_over_its_bounds(self, seen: Seen) -> None:
        limit = self._bounds.scratch_bytes + self._bounds.log_bytes
        for attempt, held in seen.held.items():
            if held > limit:
                self._end(
                    attempt,
                    f"too much on the disk of {self._me}: this attempt held {size(held)} in its scratch folder, where "
                    f"one may hold {size(self._bounds.scratch_bytes)} (ROTA_SCRATCH_BYTES)",
                )

    def _make_room(self, seen: Seen) -> None:
        now_s = monotonic()
        if any(now_s - at_s < DYING_S for at_s in self._stopped.values()):
            return
        missing_bytes = 2 * self._bounds.reserve_bytes - seen.space.free_bytes
        held = {attempt: held for attempt, held in seen.held.items() if attempt not in self._stopped}
        for attempt in to_stop(held, missing_bytes):
            self._end(
                attempt,
                f"no room on {self._me}: {_room(seen.space)}, and this attempt held {size(held[attempt])} in its "
                "scratch folder and log",
            )

    def _end(self, attempt: Attempt, error: str) -> None:
        if attempt not in self._stopped:
            self._stopped[attempt] = monotonic()
            self._stop(attempt[0], error)


def space_of(folder: Path) -> Space:
    """The file system that a folder is on, as it is now. Raises `OSError`."""
    found = os.statvfs(folder)
    return Space(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize, found.f_files, found.f_favail)


def _room(space: Space) -> str:
    files = f", and {space.files_free} of {space.files_total} files" if space.files_total else ""
    few = files if space.files_total and space.files_free < space.files_total // 16 else ""
    return f"{size(space.free_bytes)} of {size(space.total_bytes)} are free{few}"
