"""The runner: the node's side of a member's attempts. Call it on the event loop, except for `renew`.

Each attempt has a supervisor with a channel of its own. No function in this module blocks on a channel.
"""

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgpack

from node.execution import attempt_events, frames, order
from node.execution.attempt_events import Event
from node.execution.cgroup import NOTHING_DELEGATED, Delegation
from node.execution.domain import Commands
from node.execution.leftovers import NO_UIDS, LeftoversRemain, kill_attempt
from node.execution.nursery_link import Handout, NurseryLink
from node.execution.order import AttemptLimits, Brief, Order
from node.execution.preparation import Preparation
from node.execution.prepared import Prepared, PreparedProcesses
from tasks.access import NOTHING, Access
from tasks.definition.run import AttemptEnd
from tasks.kind import RESULT_BYTES_MAX

log = logging.getLogger(__name__)

CLOSE_S: Final = 15.0
"""How long `close` waits for supervisors. If they cannot kill a process in that time, it hangs in the kernel."""

CLEAR_AGAIN_S: Final = 1.0
"""The pause after an unexpected error before the processes of a killed supervisor are killed again."""

READS_MAX: Final = 16
"""The most frames that are read from one attempt before the event loop serves others."""

CheckpointCode = str
"""The outcome of a checkpoint: `ok`, `fenced`, `unknown` (the worker retries), or the reason of a refusal."""


@dataclass(eq=False, slots=True)
class _Attempt:
    order: Order
    channel: socket.socket
    supervisor: int | None = None
    ended: bool = False
    prepared: Prepared | None = None

    @property
    def id(self) -> tuple[str, int]:
        return self.order.run_id, self.order.token


class Runner:
    """Launches attempts, sends them requests, and reports their events.

    `on_event` is called on the event loop. Every launch is followed by exactly one `AttemptEnded`. A request to an
    attempt that has ended, or was never launched here, is dropped. `preparations` are by name. Prepared processes are
    confined to `access`: the paths and addresses that any attempt may reach. `command_roots` limits the folders that
    commands may use. Attempts get their cgroups below `delegation`.
    """

    def __init__(
        self,
        folder: Path,
        on_event: Callable[[Event], None],
        limits: AttemptLimits | None = None,
        preparations: Mapping[str, Preparation] | None = None,
        access: Access = NOTHING,
        command_roots: tuple[str, ...] = (),
        delegation: Delegation = NOTHING_DELEGATED,
    ) -> None:
        self._folder = folder.resolve()
        self._on_event = on_event
        self._limits = limits or AttemptLimits()
        self._nursery = NurseryLink(
            self._folder,
            lambda why: log.error("attempts are given back: %s", why),
            Commands(access.own, command_roots, self._limits.landlock),
            delegation,
        )
        self._prepared = PreparedProcesses(self._folder, self._limits, self._nursery, preparations or {}, access)
        self._attempts: dict[tuple[str, int], _Attempt] = {}
        self._open: dict[int, _Attempt] = {}
        self._changing = threading.Lock()
        self._all_gone = asyncio.Event()
        self._all_gone.set()
        self._clearing: set[asyncio.Future[None]] = set()

    @property
    def nursery_pid(self) -> int | None:
        """The nursery's process id; None while there is no nursery."""
        return self._nursery.pid

    async def start(self) -> None:
        """Start the nursery. Raises `NurseryFailed`.

        Call this from the main thread: the kernel ends the nursery with the thread that started it.
        """
        await self._nursery.start()

    async def close(self, wait_s: float = CLOSE_S) -> None:
        """Kill every attempt, then end the nursery. Returns when no process of the attempts is left.

        Raises `LeftoversRemain` after `wait_s`.
        """
        try:
            await self.kill_all(wait_s)
            await self._prepared.close(wait_s)
        finally:
            await self._nursery.close()

    async def kill_all(self, wait_s: float = CLOSE_S) -> None:
        """Kill every attempt, and wait until their processes are gone. Raises `LeftoversRemain` after `wait_s`."""
        for run_id, token in list(self._attempts):
            self.kill(run_id, token)
        self._prepared.end_all()
        try:
            # Not asyncio.wait_for: before Python 3.12 it loses a cancellation that comes just as the wait ends.
            async with asyncio.timeout(wait_s):
                await self._all_gone.wait()
        except TimeoutError:
            left = ", ".join(sorted({attempt.order.run_id for attempt in self._open.values()}))
            raise LeftoversRemain(
                "attempts cannot be killed: their processes hang in the kernel, or this node may not signal them "
                f"(its log says which): {left}"
            ) from None

    def launch(self, what: Order) -> None:
        """Start an attempt.

        Raises `ValueError` if an attempt with this run and token runs already, and `OSError` if no file descriptors are
        left. If it raises, no process was started.
        """
        if (what.run_id, what.token) in self._attempts:
            raise ValueError(f"an attempt at run {what.run_id} with token {what.token} runs already")
        brief = Brief(what, self._limits, str(self._folder))
        if (process := self._prepared.give(what.preparation, brief, what.needs)) is not None:
            self._add(_Attempt(what, process.channel, prepared=process))
            return
        ours, theirs = frames.new_channel()
        ours.setblocking(False)
        try:
            handout = Handout(theirs, brief)
        except BaseException:
            ours.close()
            theirs.close()
            raise
        self._add(_Attempt(what, ours))
        self._nursery.launch(handout)

    def _add(self, attempt: _Attempt) -> None:
        with self._changing:
            self._attempts[attempt.id] = attempt
            self._open[attempt.channel.fileno()] = attempt
        self._all_gone.clear()
        asyncio.get_running_loop().add_reader(attempt.channel.fileno(), self._hear, attempt)

    def expect(self) -> None:
        """Announce that an attempt will begin soon, so that a process is ready for it."""
        self._nursery.expect()

    def prepare(self, name: str, start: int, keep: int) -> None:
        """Set how many processes of a preparation are needed soon (`start`), and how many may stay (`keep`)."""
        self._prepared.want(name, start, keep)

    def lead_s(self, name: str) -> float:
        """Return a preparation's lead time: how many seconds before an occurrence is due its process is started."""
        return self._prepared.lead_s(name)

    def prepared_ready(self, name: str) -> int:
        """Return how many processes of a preparation are ready and wait for an attempt."""
        return self._prepared.ready(name)

    def prepared_folders(self, run_id: str, token: int) -> tuple[Path, ...]:
        """Return the folder of the prepared process that runs an attempt; empty if its process was not prepared."""
        attempt = self._attempts.get((run_id, token))
        return () if attempt is None or attempt.prepared is None else (attempt.prepared.brief.scratch,)

    @property
    def uids(self) -> frozenset[int]:
        """The user ids that belong to one attempt each. An id is free again once no process of its attempt is left."""
        return frozenset(each.order.uid for each in self._open.values() if each.order.uid is not None)

    def cancel(self, run_id: str, token: int) -> None:
        """Ask an attempt to stop, and kill it after `AttemptLimits.stop_s`. It ends as `cancelled`."""
        self._tell(run_id, token, frames.StopFrame("cancelled"))

    def hand_over(self, run_id: str, token: int) -> None:
        """Ask an attempt to stop within `AttemptLimits.hand_over_s`, so that another member can continue the run."""
        self._tell(run_id, token, frames.StopFrame("handed_over"))

    def kill(self, run_id: str, token: int) -> None:
        """Kill an attempt now. It ends as `handed_over` or `not_started`, which do not count as failures."""
        self._tell(run_id, token, frames.KillFrame())

    def fail(self, run_id: str, token: int, error: str) -> None:
        """Kill an attempt now, such as one that has exceeded a limit. It ends as `failed` with `error`."""
        self._tell(run_id, token, frames.FailFrame(error))

    def checkpoint_done(self, run_id: str, token: int, sequence: int, code: CheckpointCode) -> None:
        """Answer a `CheckpointAsked`. The code `fenced` also stops the attempt."""
        self._tell(run_id, token, frames.CheckpointDoneFrame(sequence, code))

    def renew(self, deadline_s: float) -> None:
        """Tell every attempt that the lease lasts until `deadline_s` on CLOCK_BOOTTIME; frozen attempts are thawed.

        May be called from any thread. Does not block.
        """
        packet = frames.to_packet(frames.RenewFrame(float(deadline_s)))
        with self._changing:
            for attempt in self._attempts.values():
                try:
                    attempt.channel.send(packet)
                except OSError:
                    # The channel is full or closing. Without the renewal the attempt will be frozen, which is safe.
                    continue
        self._prepared.renew(deadline_s, packet)

    def _tell(self, run_id: str, token: int, frame: frames.Frame) -> None:
        attempt = self._attempts.get((run_id, token))
        if attempt is None:
            return
        try:
            attempt.channel.send(frames.to_packet(frame))
        except BlockingIOError:
            # Its supervisor does not read: it was stopped, or the machine is overloaded. Send the frame later.
            asyncio.get_running_loop().call_later(0.1, self._tell, run_id, token, frame)
        except OSError:
            log.debug("run %s: its supervisor is gone", run_id)

    def _hear(self, attempt: _Attempt) -> None:
        for _ in range(READS_MAX):
            try:
                frame = frames.receive(attempt.channel)
            except BlockingIOError:
                return
            except (OSError, frames.BadFrame) as error:
                log.error("run %s: reading from its supervisor failed: %s", attempt.order.run_id, error)  # noqa: TRY400
                frame = None
            if frame is None:
                self._closed(attempt)
                return
            self._heard(attempt, frame)

    def _heard(self, attempt: _Attempt, frame: frames.Frame) -> None:
        run_id, token = attempt.id
        match frame:
            case frames.HelloFrame(pid=pid):
                attempt.supervisor = pid
            case frames.PreparingFrame() | frames.PreparedFrame():
                if attempt.prepared is not None:
                    self._prepared.hear(attempt.prepared, frame)
            case frames.StartedFrame():
                self._on_event(attempt_events.AttemptStarted(run_id, token))
            case frames.ProgressFrame(done=done, total=total, unit=unit):
                self._on_event(attempt_events.Progressed(run_id, token, done, total, unit))
            case frames.CheckpointAskFrame(sequence=sequence, data=data):
                self._on_event(attempt_events.CheckpointAsked(run_id, token, sequence, data))
            case frames.FrozenFrame():
                self._on_event(attempt_events.AttemptFrozen(run_id, token))
            case frames.OutOfReachFrame(pids=pids):
                log.error(
                    "run %s: some of its processes belong to another user (sudo?), and this node may not signal them: "
                    "they continue even if the lease lapses, and the run lasts until they end. To end them, as root: "
                    "kill -9 %s",
                    run_id,
                    pids,
                )
            case frames.ThawedFrame():
                self._on_event(attempt_events.AttemptThawed(run_id, token))
            case frames.EndedFrame():
                if frame.log_error is not None:
                    log.warning("run %s: the log is not complete: %s", run_id, frame.log_error)
                truncated = frame.log_error is not None
                self._end(attempt, _end(frame.end), frame.result, frame.error, frame.retry, frame.starved, truncated)

    def _end(
        self,
        attempt: _Attempt,
        end: AttemptEnd,
        result: str | None,
        error: str | None,
        retry: bool = True,
        starved: bool = False,
        log_truncated: bool = False,
    ) -> None:
        try:
            values = None if result is None else _values(result)
        except (ValueError, OverflowError, RecursionError) as wrong:
            end, values, error, retry = "failed", None, f"the worker sent a result that cannot be read: {wrong}", False
        attempt.ended = True
        with self._changing:
            del self._attempts[attempt.id]
        run_id, token = attempt.id
        self._on_event(
            attempt_events.AttemptEnded(
                run_id=run_id,
                token=token,
                end=end,
                result=values,
                error=error,
                retry=retry,
                starved=starved,
                log_truncated=log_truncated,
            )
        )

    def _closed(self, attempt: _Attempt) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(attempt.channel.fileno())
        if attempt.ended:
            self._gone(attempt)
        elif attempt.supervisor is None and attempt.prepared is not None:
            self._gone(attempt)
            self._prepared.clear(attempt.prepared)
            self._end(attempt, "not_started", None, "the process that was prepared for it had ended")
        elif attempt.supervisor is None:
            self._gone(attempt)
            self._end(attempt, "not_started", None, "no supervisor could be started", starved=True)
        else:
            task = loop.create_task(self._clear(attempt, attempt.supervisor))
            self._clearing.add(task)
            task.add_done_callback(self._clearing.discard)

    async def _clear(self, attempt: _Attempt, supervisor: int) -> None:
        """Kill the processes of an attempt whose supervisor was killed, and then end the attempt as failed.

        Retries without end, because the run would never end without an `AttemptEnded`.
        """
        run_id, token = attempt.id
        scratch, uid = order.scratch_path(self._folder, attempt.order), attempt.order.uid
        kill = partial(kill_attempt, uids=NO_UIDS if uid is None else range(uid, uid + 1))
        while True:
            try:
                await asyncio.to_thread(kill, self._folder, supervisor, f"{run_id}:{token}", scratch)
                if attempt.prepared is not None:
                    brief = attempt.prepared.brief
                    await asyncio.to_thread(kill_attempt, self._folder, supervisor, brief.mark, brief.scratch)
                break
            except LeftoversRemain as error:
                log.error("run %s: %s", run_id, error)  # noqa: TRY400  no traceback needed
            except Exception:
                log.exception(
                    "run %s: killing the processes that its supervisor left behind failed; retrying in %g s",
                    run_id,
                    CLEAR_AGAIN_S,
                )
                await asyncio.sleep(CLEAR_AGAIN_S)
        self._gone(attempt)
        self._end(attempt, "failed", None, "its supervisor was killed")

    def _gone(self, attempt: _Attempt) -> None:
        with self._changing:
            del self._open[attempt.channel.fileno()]
            attempt.channel.close()
        if not self._open:
            self._all_gone.set()


def _values(result: str) -> dict[str, Any]:
    """Decode a worker's result from JSON. Raises `ValueError`, `OverflowError` or `RecursionError` if it is invalid."""
    if len(result.encode("utf-8", "surrogatepass")) > RESULT_BYTES_MAX:
        raise ValueError(f"it has more than {RESULT_BYTES_MAX} bytes")
    values = json.loads(result, parse_constant=_no_number)
    if not isinstance(values, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004  the text is wrong, not a type of ours
    msgpack.packb(values)  # results are replicated as msgpack; raises for values that it cannot hold
    return values


def _no_number(name: str) -> None:
    raise ValueError(f"it holds {name}")


def _end(name: str) -> AttemptEnd:
    match name:
        case "succeeded" | "failed" | "away" | "cancelled" | "timed_out" | "not_started" | "handed_over" as end:
            return end
    raise frames.BadFrame(f"an attempt cannot end as {name!r}")
