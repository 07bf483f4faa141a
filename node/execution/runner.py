"""The runner: a member's attempts, as its node sees them. Used from the asyncio loop, but for `renew`.

Each attempt has a channel of its own to its supervisor; nothing here waits for one.
"""

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from node.execution import frames, order
from node.execution.leftovers import LeftoversRemain, kill_attempt
from node.execution.nursery_link import Handout, NurseryLink
from node.execution.order import AttemptLimits, Brief, Event, Order
from node.state.entries import AttemptEnd

log = logging.getLogger(__name__)

CLOSE_S: Final = 15.0
"""How long `close` waits for supervisors. What they cannot kill in that time hangs in the kernel."""

CLEAR_AGAIN_S: Final = 1.0
"""Between two tries to clear away what a killed supervisor left, where the first could not even look."""

READS_MAX: Final = 16
"""Frames taken from one attempt before others, and the rest of the node, have their turn."""

CheckpointCode = str
"""`ok`, `fenced`, `unknown` (asked again), or any other refusal's."""


@dataclass(eq=False, slots=True)
class _Attempt:
    order: Order
    channel: socket.socket
    supervisor: int | None = None
    ended: bool = False

    @property
    def id(self) -> tuple[str, int]:
        return self.order.run_id, self.order.token


class Runner:
    """Launches attempts, passes on what they say, and what they are told.

    `on_event` is called on the loop. Every launch is followed by exactly one `Ended`. What is said to an
    attempt that has ended, or never was here, is dropped: its end is on its way already.
    """

    def __init__(self, folder: Path, on_event: Callable[[Event], None], limits: AttemptLimits | None = None) -> None:
        self._folder = folder.resolve()
        self._on_event = on_event
        self._limits = limits or AttemptLimits()
        self._nursery = NurseryLink(self._folder, lambda why: log.error("attempts are given back: %s", why))
        self._attempts: dict[tuple[str, int], _Attempt] = {}
        self._open: dict[int, _Attempt] = {}
        self._changing = threading.Lock()
        self._all_gone = asyncio.Event()
        self._all_gone.set()
        self._clearing: set[asyncio.Future[None]] = set()

    @property
    def nursery_pid(self) -> int | None:
        """The nursery's process id while there is one."""
        return self._nursery.pid

    async def start(self) -> None:
        """Start the nursery: from the main thread, since it dies with its starter. Raises `NurseryFailed`."""
        await self._nursery.start()

    async def close(self, wait_s: float = CLOSE_S) -> None:
        """Kill every attempt, then the nursery. Returns when nothing of them is left.

        Raises `LeftoversRemain` after `wait_s`.
        """
        try:
            await self.kill_all(wait_s)
        finally:
            await self._nursery.close()

    async def kill_all(self, wait_s: float = CLOSE_S) -> None:
        """Kill every attempt and wait until nothing of them is left. Raises `LeftoversRemain` after `wait_s`."""
        for run_id, token in list(self._attempts):
            self.kill(run_id, token)
        try:
            # Not wait_for: before Python 3.12 it loses a cancellation that comes as the wait ends.
            async with asyncio.timeout(wait_s):
                await self._all_gone.wait()
        except TimeoutError:
            left = ", ".join(sorted({attempt.order.run_id for attempt in self._open.values()}))
            raise LeftoversRemain(
                "attempts cannot be killed: they hang in the kernel, or have processes that this node may not signal "
                f"(its log says which): {left}"
            ) from None

    def launch(self, what: Order) -> None:
        """Make an attempt. Raises `ValueError` if this very claim is being worked on already, `OSError` if there are
        no file descriptors left for it; then there is none.
        """
        if (what.run_id, what.token) in self._attempts:
            raise ValueError(f"token {what.token} of run {what.run_id} is being worked on already")
        ours, theirs = frames.channel()
        ours.setblocking(False)
        try:
            handout = Handout(theirs, Brief(what, self._limits, str(self._folder)).pack())
        except BaseException:
            ours.close()
            theirs.close()
            raise
        attempt = _Attempt(what, ours)
        with self._changing:
            self._attempts[attempt.id] = attempt
            self._open[ours.fileno()] = attempt
        self._all_gone.clear()
        asyncio.get_running_loop().add_reader(ours.fileno(), self._hear, attempt)
        self._nursery.launch(handout)

    def cancel(self, run_id: str, token: int) -> None:
        """Ask an attempt to stop; it is killed if it does not within `AttemptLimits.stop_s`. It ends as `cancelled`."""
        self._tell(run_id, token, frames.Stop("cancelled"))

    def hand_over(self, run_id: str, token: int) -> None:
        """Ask an attempt to stop where another member can go on; it has `AttemptLimits.hand_over_s` for it."""
        self._tell(run_id, token, frames.Stop("handed_over"))

    def kill(self, run_id: str, token: int) -> None:
        """Kill an attempt now. It ends as `handed_over`, or `not_started`: neither counts as a failure."""
        self._tell(run_id, token, frames.KillFrame())

    def fail(self, run_id: str, token: int, error: str) -> None:
        """Kill an attempt now. It ends as `failed`, with that error: it has taken what was not its own."""
        self._tell(run_id, token, frames.Fail(error))

    def checkpoint_done(self, run_id: str, token: int, sequence: int, code: CheckpointCode) -> None:
        """Answer a `CheckpointAsked`. `fenced` also has the attempt stopped."""
        self._tell(run_id, token, frames.CheckpointDone(sequence, code))

    def renew(self, deadline_s: float) -> None:
        """The lease lasts until `deadline_s` on CLOCK_BOOTTIME: thaws what was frozen. From any thread; never waits."""
        packet = frames.pack(frames.Renew(float(deadline_s)))
        with self._changing:
            for attempt in self._attempts.values():
                try:
                    attempt.channel.send(packet)
                except OSError:
                    # Full, or closing. A renewal that does not arrive freezes the attempt: the safe side.
                    continue

    def _tell(self, run_id: str, token: int, frame: frames.Frame) -> None:
        attempt = self._attempts.get((run_id, token))
        if attempt is None:
            return
        try:
            attempt.channel.send(frames.pack(frame))
        except BlockingIOError:
            # Its supervisor does not run: somebody has stopped it, or the machine is beside itself.
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
                log.error("run %s: its supervisor cannot be understood: %s", attempt.order.run_id, error)  # noqa: TRY400
                frame = None
            if frame is None:
                self._closed(attempt)
                return
            self._heard(attempt, frame)

    def _heard(self, attempt: _Attempt, frame: frames.Frame) -> None:
        run_id, token = attempt.id
        match frame:
            case frames.Hello(pid=pid):
                attempt.supervisor = pid
            case frames.StartedFrame():
                self._on_event(order.AttemptStarted(run_id, token))
            case frames.ProgressFrame(done=done, total=total, unit=unit):
                self._on_event(order.Progressed(run_id, token, done, total, unit))
            case frames.CheckpointAsk(sequence=sequence, data=data):
                self._on_event(order.CheckpointAsked(run_id, token, sequence, data))
            case frames.Froze():
                self._on_event(order.AttemptFrozen(run_id, token))
            case frames.OutOfReach(pids=pids):
                log.error(
                    "run %s: processes of it are another user's (sudo?), and this node may not signal them: they go on "
                    "whether or not the lease does, and the run lasts until they end. To end them, as root: kill -9 %s",
                    run_id,
                    pids,
                )
            case frames.ThawedFrame():
                self._on_event(order.AttemptThawed(run_id, token))
            case frames.Ending():
                if frame.log_error is not None:
                    log.warning("run %s: its log is not complete: %s", run_id, frame.log_error)
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
        attempt.ended = True
        with self._changing:
            del self._attempts[attempt.id]
        values = None if result is None else json.loads(result)
        self._on_event(order.AttemptEnded(*attempt.id, end, values, error, retry, starved, log_truncated))

    def _closed(self, attempt: _Attempt) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(attempt.channel.fileno())
        if attempt.ended:
            self._gone(attempt)
        elif attempt.supervisor is None:
            self._gone(attempt)
            self._end(attempt, "not_started", None, "no supervisor could be started", starved=True)
        else:
            task = loop.create_task(self._clear(attempt, attempt.supervisor))
            self._clearing.add(task)
            task.add_done_callback(self._clearing.discard)

    async def _clear(self, attempt: _Attempt, supervisor: int) -> None:
        """A supervisor has ended without a word: it was killed. The attempt ends when what it left is gone.

        It does not give up: a launch that no `Ended` follows would be a run that never ends.
        """
        run_id, token = attempt.id
        scratch = order.scratch_path(self._folder, attempt.order)
        while True:
            try:
                await asyncio.to_thread(kill_attempt, self._folder, supervisor, f"{run_id}:{token}", scratch)
                break
            except LeftoversRemain as error:
                log.error("run %s: %s", run_id, error)  # noqa: TRY400  the message says it all
            except Exception:
                log.exception("run %s: what its supervisor left cannot be cleared away; trying again", run_id)
                await asyncio.sleep(CLEAR_AGAIN_S)
        self._gone(attempt)
        self._end(attempt, "failed", None, "its supervisor was killed")

    def _gone(self, attempt: _Attempt) -> None:
        with self._changing:
            del self._open[attempt.channel.fileno()]
            attempt.channel.close()
        if not self._open:
            self._all_gone.set()


def _end(name: str) -> AttemptEnd:
    match name:
        case "succeeded" | "failed" | "cancelled" | "timed_out" | "not_started" | "handed_over" as end:
            return end
    raise frames.BadFrame(f"an attempt cannot end as {name!r}")
