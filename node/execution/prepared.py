"""The node's side of processes that are prepared before their attempts exist.

Call it on the event loop, except for `renew`. The node has a channel to the supervisor of each process
(`node.execution.prepared_host`), which becomes the channel of the attempt.
"""

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from node.execution import frames
from node.execution.domain import prepared_since
from node.execution.leftovers import LeftoversRemain, kill_attempt, record_path
from node.execution.nursery_link import Handout, NurseryLink, send_attempt
from node.execution.order import AttemptLimits, Brief
from node.execution.preparation import Preparation, PreparationBrief
from node.execution.prepared_count import PreparedCount
from tasks.access import Access
from tasks.needs import Needs

log = logging.getLogger(__name__)

TOO_LONG_S: Final = 120.0
"""The longest time for a preparation. If it takes longer, its process is given up."""


@dataclass(eq=False, slots=True)
class Prepared:
    """A process that is prepared, or being prepared."""

    #: The brief that its supervisor was given.
    brief: PreparationBrief
    #: The node's end of the socket to its supervisor.
    channel: socket.socket
    #: When it was started, in seconds on the clock of the event loop.
    begun_s: float
    #: When it was started, in nanoseconds since the epoch, for comparison with the change times of folders.
    begun_ns: int
    #: The pid of its supervisor; None until the supervisor has sent it.
    supervisor: int | None = None
    #: Whether the preparation has succeeded.
    ready: bool = False
    #: Whether the preparation has failed.
    failed: bool = False
    #: Whether it was told to end.
    leaving: bool = False


class PreparedProcesses:
    """Starts prepared processes, gives them to attempts, and ends surplus ones.

    `preparations` are by name (`module:function`). `access` says which paths and addresses any attempt may reach.
    """

    def __init__(
        self,
        folder: Path,
        limits: AttemptLimits,
        nursery: NurseryLink,
        preparations: Mapping[str, Preparation],
        access: Access,
    ) -> None:
        self._folder = folder
        self._limits = limits
        self._nursery = nursery
        self._preparations = preparations
        self._access = access
        self._counts = {name: PreparedCount() for name in preparations}
        self._there: list[Prepared] = []
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._clearing: set[asyncio.Task[None]] = set()
        self._changing = threading.Lock()
        self._deadline_s = 0.0
        self._number = 0
        self._closed = False
        self._gone = asyncio.Event()
        self._gone.set()

    def lead_s(self, name: str) -> float:
        """Return the lead time: how many seconds before an occurrence is due its process is started."""
        return self._counts[name].lead_s

    def ready(self, name: str) -> int:
        """Return how many processes of this preparation are ready for an attempt."""
        return sum(each.ready for each in self._of(name))

    def want(self, name: str, start: int, keep: int) -> None:
        """Set how many processes of this preparation are needed soon (`start`), and how many may stay (`keep`)."""
        if not self._closed:
            self._change(name, self._counts[name].change(len(self._of(name)), start, keep, _now_s()))

    def give(self, name: str, brief: Brief, needs: Needs) -> Prepared | None:
        """Give the attempt of `brief` to a process of this preparation, preferably to one that is ready.

        Chooses a process that can open the paths in `needs`. Prepared processes have the network, so an attempt without
        network gets none. The caller then owns the process and its channel. Returns None if no process fits. Raises
        `OSError`.
        """
        if needs.confined and not needs.network:
            return None
        confined = self._limits.landlock > 0 and needs.confined
        while found := [
            each for each in self._of(name) if not confined or prepared_since(needs, self._access, each.begun_ns)
        ]:
            process = min(found, key=lambda each: not each.ready)
            try:
                send_attempt(process.channel, brief)
            except (BlockingIOError, ConnectionError):
                self._lost(process)  # the process has ended, and this was not noticed yet
                continue
            self._forget(process)
            return process
        return None

    def hear(self, process: Prepared, frame: frames.PreparingFrame | frames.PreparedFrame) -> None:
        """Handle a process's report on its preparation. It may come after the process was given its attempt."""
        if isinstance(frame, frames.PreparingFrame):
            process.supervisor = frame.pid
            return
        name, took_s = process.brief.target, _now_s() - process.begun_s
        if process.ready or process.failed:
            return
        if not frame.error:
            process.ready = True
            self._counts[name].took(took_s)
            log.debug("%s took %.1f s", name, took_s)
            return
        process.failed = True
        self._counts[name].failed(_now_s())
        log.warning("preparing a process (%s) failed, and attempts begin without one: %s", name, frame.error)
        if process in self._there:
            self._end(process)
        self._set_timer(name)

    def renew(self, deadline_s: float, packet: bytes) -> None:
        """Tell every process, by the frame `packet`, that the lease lasts until `deadline_s`. Works from any thread."""
        self._deadline_s = deadline_s
        with self._changing:
            for process in self._there:
                try:
                    process.channel.send(packet)
                except OSError:
                    continue  # a process that misses the renewal is frozen, like an attempt

    def end_all(self) -> None:
        """Ask all processes to end."""
        for count in self._counts.values():
            count.change(0, 0, 0, _now_s())
        for process in list(self._there):
            self._end(process)

    async def close(self, wait_s: float) -> None:
        """End all processes, and start no others. Returns when all are gone, or after `wait_s`."""
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        self.end_all()
        try:
            async with asyncio.timeout(wait_s):
                await self._gone.wait()
        except TimeoutError:
            log.error("prepared processes cannot be ended within %g s", wait_s)  # noqa: TRY400  no traceback needed

    def _of(self, name: str) -> list[Prepared]:
        return [each for each in self._there if each.brief.target == name and not each.leaving]

    def _change(self, name: str, by: int) -> None:
        for _ in range(by):
            self._begin(name)
        for process in sorted(self._of(name), key=lambda each: each.ready)[: max(0, -by)]:
            self._end(process)
        self._set_timer(name)

    def _set_timer(self, name: str) -> None:
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()
        wait_s = self._counts[name].wait_s(len(self._of(name)), _now_s())
        late_s = min((each.begun_s + TOO_LONG_S - _now_s() for each in self._of(name) if not each.ready), default=None)
        waits_s = [each for each in (wait_s, late_s) if each is not None]
        if waits_s and not self._closed:
            loop = asyncio.get_running_loop()
            self._timers[name] = loop.call_later(max(0.001, min(waits_s)), self._look_again, name)

    def _look_again(self, name: str) -> None:
        for process in self._of(name):
            if not process.ready and _now_s() >= process.begun_s + TOO_LONG_S:
                self._counts[name].failed(_now_s())
                log.warning("a process was not prepared (%s) within %g s, and is ended", name, TOO_LONG_S)
                self._end(process)
        self._change(name, self._counts[name].due(len(self._of(name)), _now_s()))

    def _begin(self, name: str) -> None:
        self._number += 1
        env, tools = self._preparations[name]
        brief = PreparationBrief(
            target=name,
            env=env,
            number=self._number,
            limits=self._limits,
            folder=str(self._folder),
            deadline_s=self._deadline_s,
            tools=tools,
            access=self._access,
        )
        ours, theirs = frames.new_channel()
        ours.setblocking(False)
        try:
            handout = Handout(theirs, brief)
        except OSError as error:
            ours.close()
            theirs.close()
            self._counts[name].failed(_now_s())
            log.warning("a process cannot be prepared (%s): %s", name, error)
            return
        process = Prepared(brief, ours, _now_s(), time.time_ns())
        with self._changing:
            self._there.append(process)
        self._gone.clear()
        asyncio.get_running_loop().add_reader(ours.fileno(), self._read, process)
        self._nursery.launch(handout)

    def _end(self, process: Prepared) -> None:
        """Ask a process to end. It counts as ended once its supervisor has ended."""
        process.leaving = True
        try:
            process.channel.send(frames.to_packet(frames.KillFrame()))
        except OSError:
            self._read(process)

    def _read(self, process: Prepared) -> None:
        try:
            frame = frames.receive(process.channel)
        except BlockingIOError:
            return
        except (OSError, frames.BadFrame):
            frame = None
        match frame:
            case frames.PreparingFrame() | frames.PreparedFrame():
                self.hear(process, frame)
            case None:
                self._lost(process)

    def _lost(self, process: Prepared) -> None:
        self._forget(process)
        process.channel.close()
        self.clear(process)
        if not process.leaving:
            self._counts[process.brief.target].failed(_now_s())
            log.warning("a prepared process has ended (%s)", process.brief.target)
            self._set_timer(process.brief.target)
        self._cleared(None)

    def _forget(self, process: Prepared) -> None:
        asyncio.get_running_loop().remove_reader(process.channel.fileno())
        with self._changing:
            self._there.remove(process)
        self._cleared(None)

    def clear(self, process: Prepared) -> None:
        """If the supervisor of a process without an attempt was killed, kill the processes that it left behind."""
        if process.supervisor is not None:
            task = asyncio.get_running_loop().create_task(self._clear(process))
            self._clearing.add(task)
            task.add_done_callback(self._cleared)
            self._gone.clear()

    async def _clear(self, process: Prepared) -> None:
        assert process.supervisor is not None
        # A supervisor that was not killed has removed its record itself.
        if not record_path(self._folder, process.supervisor).exists():
            return
        try:
            await asyncio.to_thread(
                kill_attempt, self._folder, process.supervisor, process.brief.mark, process.brief.scratch
            )
        except (LeftoversRemain, OSError) as error:
            log.error("a prepared process (%s): %s", process.brief.target, error)  # noqa: TRY400  no traceback needed

    def _cleared(self, task: "asyncio.Task[None] | None") -> None:
        if task is not None:
            self._clearing.discard(task)
        if not self._there and not self._clearing:
            self._gone.set()


def _now_s() -> float:
    return asyncio.get_running_loop().time()
