"""Commits the events that an attempt reports, in the order in which it reported them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from node.control.controller_port import ControllerPort, RunnerPort
from node.execution.attempt_events import AttemptEnded, AttemptStarted, CheckpointAsked
from node.raft.errors import EntryTooLarge
from node.state.attempts import Began, Checkpoint, Finish
from node.state.codec import BadEntry
from node.state.entries import Entry
from node.state.value import Result

_log = logging.getLogger("rota.controller")

NOT_STARTED_S: Final = 1.0
"""The pause before the claim of an attempt that could not be started is given back, as the cause may last a moment."""

ReportedEvent = AttemptStarted | CheckpointAsked | AttemptEnded


class AttemptReporter:
    """Commits the events of one attempt, until its end is committed or its token is no longer the run's."""

    def __init__(
        self,
        run_id: str,
        token: int,
        member: ControllerPort,
        runner: RunnerPort,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.run_id = run_id
        self.token = token
        self._member = member
        self._runner = runner
        self._sleep = sleep
        self._events: asyncio.Queue[ReportedEvent] = asyncio.Queue()

    def report(self, event: ReportedEvent) -> None:
        """Commit an event after the events reported before it."""
        self._events.put_nowait(event)

    def never_began(self, why: str) -> None:
        """Note that the attempt could not be launched, and why. Its claim is given back after `NOT_STARTED_S`."""
        self.report(AttemptEnded(self.run_id, self.token, "not_started", error=why))

    async def run(self, ended: Callable[["AttemptReporter"], None], leaving: Callable[[], bool]) -> None:
        """Commit events until the attempt's end is committed. Calls `ended` before that, once the work has ended.

        `leaving` returns whether this member hands over its work.
        """
        while True:
            event = await self._events.get()
            if isinstance(event, AttemptEnded):
                ended(self)
                await self._commit_end(event, leaving)
                return
            try:
                await self._commit_event(event)
            except Exception:  # noqa: BLE001 - whatever it is, the attempt must not go on unreported
                # The attempt's events cannot be committed any more, but its end can.
                _log.exception("run %s: an event of its attempt cannot be committed; killing the attempt", self.run_id)
                self._runner.kill(self.run_id, self.token)

    async def _commit_event(self, event: AttemptStarted | CheckpointAsked) -> None:
        match event:
            case AttemptStarted():
                await self._commit(Began(self._member.now_us(), self.run_id, self.token))
            case CheckpointAsked(_, _, sequence, data):
                result = await self._commit(Checkpoint(self._member.now_us(), self.run_id, self.token, data))
                code = "fenced" if result is None else result.code
                self._runner.checkpoint_done(self.run_id, self.token, sequence, code)

    async def _commit_end(self, ended: AttemptEnded, leaving: Callable[[], bool]) -> None:
        end, error = ended.end, ended.error
        if end in ("failed", "away") and ended.retry and leaving():
            # A service manager signals all processes of the node, and the work failed because of that. This is no
            # failure of the run: another member goes on from its checkpoint. The attempt's log says how the work ended.
            end, error = "handed_over", None
        if end == "not_started" and ended.error is not None and not leaving():
            await self._sleep(NOT_STARTED_S)
        outcome = (end, ended.result, error, ended.retry, ended.log_truncated)
        finish = Finish(self._member.now_us(), self.run_id, self.token, *outcome)
        result = await self._commit(finish)
        if result is None or result.ok or result.code == "fenced":
            return
        why = result.detail or result.code
        _log.error("run %s: its outcome (%s) was refused: %s; committing a failure instead", self.run_id, end, why)
        error = f"it {end}, and its outcome cannot be kept: {why}"
        now_us = self._member.now_us()
        await self._commit(Finish(now_us, self.run_id, self.token, "failed", error=error, retry=False))

    async def _commit(self, entry: Entry) -> Result | None:
        """Propose an entry until its result is known. Returns it, or None once the token is no longer the run's."""
        try:
            return await self._member.insist(entry, self._holds)
        except EntryTooLarge as error:
            return Result("too-large", detail=str(error))
        except BadEntry as error:
            return Result("invalid", detail=str(error))

    def _holds(self) -> bool:
        """Whether the token is still the run's, as far as is known here."""
        run = self._member.state().runs.get(self.run_id)
        return run is not None and run.token == self.token
