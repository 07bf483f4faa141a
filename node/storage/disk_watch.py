"""Watches a node's disk: drains the node while there is little space, and stops attempts before the disk is full.

Attempts and the node's records share a file system. Without space for its Raft log, a node cannot be a member, and the
next node to take over the run would run into the same problem. So an attempt that fills the disk fails, and is retried
as its task says. An attempt that exceeds its own limit fails even while there is space.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple, Protocol

from node.storage.reserve import Reserve
from node.storage.room import POLL_S, Bounds, Level, Space, level, poll_s, size, to_stop
from node.storage.usage import held_bytes, trim_logs

_log = logging.getLogger("rota.disk")

LOGS_S: Final = 60.0
"""The interval between two measurements of the logs of all runs."""

LOW_LOGS_S: Final = 2.0
"""The same interval while there is little space."""

PAUSE_TIMES: Final = 20
"""The pause after measuring files, as a multiple of the time that the measuring took."""

QUIET_S: Final = 2.0
"""The time for which there must have been ample space before this node takes on work again."""

DYING_S: Final = 2.0
"""The time that a stopped attempt has to end and free its space, before more attempts are stopped."""

Attempt = tuple[str, int]
"""A run's id and the attempt's token."""


class AttemptFiles(NamedTuple):
    """An attempt's folders and log on this node. `scratch_bytes`: its task's limit on the folders; None: no limit."""

    scratch: tuple[Path, ...]
    log: Path
    scratch_bytes: int | None = None


Running = Mapping[Attempt, AttemptFiles]
"""The attempts that run on this node, with their files."""


class Held(NamedTuple):
    """The bytes that an attempt holds on the disk."""

    scratch: int
    log: int

    @property
    def total(self) -> int:
        """The sum of both."""
        return self.scratch + self.log


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """One measurement: the file system's space, and the bytes that each attempt holds; empty if not measured."""

    space: Space
    held: Mapping[Attempt, Held]


@dataclass(frozen=True, slots=True)
class WatchedFolder:
    """A watched data folder: its member, its path, the folder of logs, and the limits on its use of the disk."""

    me: str
    path: Path
    logs: Path
    bounds: Bounds


class DiskOwner(Protocol):
    """The node whose disk is watched. Called on the event loop."""

    def running(self) -> Running:
        """Return the attempts that run on this node."""

    def stop_attempt(self, run_id: str, error: str) -> None:
        """Stop an attempt, which fails with this error."""

    def stand_aside(self, why: str | None) -> None:
        """Take on no new work, for the reason `why`; None: take on work again."""


class DiskWatch:
    """Measures the disk and acts on it. `wake` may be called from any thread.

    measure: returns the space of a folder's file system; called in a separate thread.
    """

    def __init__(
        self,
        folder: WatchedFolder,
        reserve: Reserve,
        owner: DiskOwner,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        measure: Callable[[Path], Space] | None = None,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._me = folder.me
        self._folder = folder.path
        self._logs = folder.logs
        self._set = folder.bounds
        self._bounds = folder.bounds  # until the size of the file system is known
        self._reserve = reserve
        self._owner = owner
        self._sleep = sleep
        self._measure = measure or space_of
        self._now = now
        self._level = Level.AMPLE
        self._short = False
        self._short_s = 0.0
        self._stopped: dict[Attempt, float] = {}
        self._measure_next_s = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "disk")
        self.space: Space | None = None
        """The latest measurement."""

    def wake(self) -> None:
        """Measure at once."""
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(self._woken.set)
            except RuntimeError:
                return  # the loop is closed, because the process is ending

    async def run(self) -> None:
        """Measure and act until cancelled."""
        self._loop = asyncio.get_running_loop()
        try:
            while True:
                wait_s = POLL_S
                try:
                    wait_s = await self.step()
                except OSError as error:
                    _log.error("the free space of the disk cannot be measured: %s; retrying", error)
                await self._rest(wait_s)
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def bound_logs(self) -> None:
        """Keep the logs of all runs within their limit, until cancelled.

        It is separate from `run`, because measuring many logs takes long.
        """
        while True:
            begun_s = self._now()
            try:
                await self.trim()
            except OSError as error:
                _log.error("the logs of old runs cannot be deleted: %s; retrying", error)
            rest_s = LOGS_S if self._level is Level.AMPLE else LOW_LOGS_S
            await self._sleep(max(rest_s, PAUSE_TIMES * (self._now() - begun_s)))

    async def trim(self) -> None:
        """Delete the oldest logs if all logs together exceed their limit. Raises `OSError`."""
        limit_bytes = self._bounds.logs_bytes
        running = {run_id for run_id, _ in self._owner.running()}
        cut, freed = await asyncio.to_thread(trim_logs, self._logs, limit_bytes, running)
        if cut:
            _log.warning(
                "deleted the logs of the %d oldest runs, %s: the logs of all runs may hold %s on this node "
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
        """Measure the disk and act on it. Returns the seconds until the next measurement. Raises `OSError`."""
        running = dict(self._owner.running())
        usage = await asyncio.get_running_loop().run_in_executor(self._thread, self._measured, running)
        self.space = usage.space
        self._bounds = self._set.on(usage.space.total_bytes)
        reserve = self._bounds.reserve_bytes
        self._level = level(usage.space, reserve, self._level)
        self._drain(usage.space)
        self._stopped = {attempt: at_s for attempt, at_s in self._stopped.items() if attempt in running}
        self._enforce_limits(usage, running)
        if self._level is Level.CRITICAL:
            self._free_space(usage)
        return poll_s(usage.space, reserve, idle=not running and self._level is Level.AMPLE)

    # -- in the "disk" thread

    def _measured(self, running: Running) -> DiskUsage:
        """Measure the file system and, while there is space only rarely, the attempts' files, as they may be many."""
        space = self._measure(self._folder)
        bounds = self._set.on(space.total_bytes)
        now_level = level(space, bounds.reserve_bytes, self._level)
        begun_s = self._now()
        if now_level is Level.AMPLE:
            self._hold(bounds.reserve_bytes // 2)
        if now_level is not Level.CRITICAL and begun_s < self._measure_next_s:
            return DiskUsage(space, {})
        held = {
            attempt: Held(sum(map(held_bytes, files.scratch)), held_bytes(files.log))
            for attempt, files in running.items()
        }
        self._measure_next_s = begun_s + max(POLL_S, PAUSE_TIMES * (self._now() - begun_s))
        return DiskUsage(space, held)

    def _hold(self, reserve_bytes: int) -> None:
        try:
            self._reserve.hold(reserve_bytes)
        except OSError as error:
            _log.debug("no space can be reserved: %s", error)

    # -- on the loop

    def _drain(self, space: Space) -> None:
        now_s = self._now()
        if self._level is not Level.AMPLE:
            self._short_s = now_s
            if not self._short:
                self._short = True
                self._owner.stand_aside(f"no room on its disk: {_room(space)} when that began")
        elif self._short and now_s - self._short_s >= QUIET_S:
            self._short = False
            _log.info("the disk has free space again: %s", _room(space))
            self._owner.stand_aside(None)

    def _enforce_limits(self, usage: DiskUsage, running: Running) -> None:
        for attempt, held in usage.held.items():
            own = running[attempt].scratch_bytes
            limit = self._bounds.scratch_bytes if own is None else own
            if held.scratch > limit:
                allows = f"ROTA_SCRATCH_BYTES on {self._me}" if own is None else "limits.scratch"
                had = size(held.scratch) if size(held.scratch) != size(limit) else f"{held.scratch:,} bytes"
                error = f"over its limit of scratch: its scratch folder held {had}, and {allows} allows {size(limit)}"
                self._end(attempt, error)

    def _free_space(self, usage: DiskUsage) -> None:
        now_s = self._now()
        if any(now_s - at_s < DYING_S for at_s in self._stopped.values()):
            return
        missing_bytes = 2 * self._bounds.reserve_bytes - usage.space.free_bytes
        held = {attempt: held.total for attempt, held in usage.held.items() if attempt not in self._stopped}
        for attempt in to_stop(held, missing_bytes):
            self._end(
                attempt,
                f"no room on {self._me}: {_room(usage.space)}, and this attempt held {size(held[attempt])} in its "
                "scratch folder and log",
            )

    def _end(self, attempt: Attempt, error: str) -> None:
        if attempt not in self._stopped:
            self._stopped[attempt] = self._now()
            self._owner.stop_attempt(attempt[0], error)


def space_of(folder: Path) -> Space:
    """Return the size and free space of a folder's file system. Raises `OSError`."""
    found = os.statvfs(folder)
    return Space(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize, found.f_files, found.f_favail)


def _room(space: Space) -> str:
    files = f", and {space.files_free} of {space.files_total} files" if space.files_total else ""
    few = files if space.files_total and space.files_free < space.files_total // 16 else ""
    return f"{size(space.free_bytes)} of {size(space.total_bytes)} are free{few}"
