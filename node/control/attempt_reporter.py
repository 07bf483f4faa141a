"""One attempt's account: brings what the attempt says to the cluster, in the order in which it was said."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from node.execution.order import AttemptEnded, AttemptStarted, CheckpointAsked, Event, Order
from node.liveness.wall_clock import now_us
from node.raft.errors import EntryTooLarge
from node.state.codec import BadEntry
from node.state.entries import Began, Checkpoint, Entry, Finish
from node.state.value import Result

_log = logging.getLogger("rota.conduct")

NOT_STARTED_S: Final = 1.0
"""An attempt that could not be started is given back after so long: what is wrong here will be so in a moment, too."""

Insist = Callable[[Entry, Callable[[], bool]], Awaitable[Result | None]]
"""As `Proposing.insist`."""


class RunnerPort(Protocol):
    """What is needed of `node.execution.runner.Runner`."""

    def launch(self, what: Order, /) -> None:
        """Make an attempt."""

    def cancel(self, run_id: str, token: int, /) -> None:
        """Ask it to stop."""

    def hand_over(self, run_id: str, token: int, /) -> None:
        """Ask it to stop where another member can go on."""

    def kill(self, run_id: str, token: int, /) -> None:
        """End it now."""

    def fail(self, run_id: str, token: int, error: str, /) -> None:
        """End it now, as a failure."""

    def checkpoint_done(self, run_id: str, token: int, sequence: int, code: str, /) -> None:
        """Answer a checkpoint."""


class Account:
    """What one attempt says, until its end is committed or its token is the run's no more.

    `holds` says whether a token is still a run's present one, as far as is known here.
    """

    def __init__(
        self,
        run_id: str,
        token: int,
        runner: RunnerPort,
        insist: Insist,
        holds: Callable[[str, int], bool],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.run_id = run_id
        self.token = token
        self._runner = runner
        self._insist = insist
        self._holds = holds
        self._sleep = sleep
        self._said: asyncio.Queue[Event] = asyncio.Queue()

    def say(self, event: Event) -> None:
        """The attempt says something."""
        self._said.put_nowait(event)

    def never_began(self, why: str) -> None:
        """The attempt could not be launched. It is given back after a while."""
        self.say(AttemptEnded(self.run_id, self.token, "not_started", error=why))

    async def keep(self, ended: Callable[["Account"], None], leaving: Callable[[], bool]) -> None:
        """Bring all of it to the cluster. `ended` is called when the work is over, before that is committed.

        `leaving` says whether this member is leaving off its work.
        """
        while True:
            event = await self._said.get()
            if isinstance(event, AttemptEnded):
                ended(self)
                await self._bring_end(event, leaving)
                return
            try:
                await self._bring(event)
            except Exception:  # noqa: BLE001 - whatever it is, the attempt must not go on unheard
                # What it does cannot be committed any more; its end still can.
                _log.exception("run %s: what its attempt said could not be taken", self.run_id)
                self._runner.kill(self.run_id, self.token)

    async def _bring(self, event: Event) -> None:
        match event:
            case AttemptStarted():
                await self._commit(Began(now_us(), self.run_id, self.token))
            case CheckpointAsked(_, _, sequence, data):
                result = await self._commit(Checkpoint(now_us(), self.run_id, self.token, data))
                code = "fenced" if result is None else result.code
                self._runner.checkpoint_done(self.run_id, self.token, sequence, code)

    async def _bring_end(self, ended: AttemptEnded, leaving: Callable[[], bool]) -> None:
        end = ended.end
        if end == "failed" and ended.retry and leaving():
            # The work was told to stop with the node (a service manager signals all of its processes), and failed of
            # that: another member goes on from its checkpoint.
            end = "handed_over"
        if end == "not_started" and ended.error is not None and not leaving():
            await self._sleep(NOT_STARTED_S)
        outcome = (end, ended.result, ended.error, ended.retry, ended.log_truncated)
        finish = Finish(now_us(), self.run_id, self.token, *outcome)
        result = await self._commit(finish)
        if result is None or result.ok or result.code == "fenced":
            return
        _log.error("run %s has %s, and that cannot be kept: %s", self.run_id, end, result.detail or result.code)
        error = f"it {end}, and its outcome cannot be kept: {result.detail or result.code}"
        await self._commit(Finish(now_us(), self.run_id, self.token, "failed", error=error, retry=False))

    async def _commit(self, entry: Entry) -> Result | None:
        """The result; None once the token is not the run's any more."""
        try:
            return await self._insist(entry, lambda: self._holds(self.run_id, self.token))
        except EntryTooLarge as error:
            return Result("too-large", detail=str(error))
        except BadEntry as error:
            return Result("invalid", detail=str(error))
