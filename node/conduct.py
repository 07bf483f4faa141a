"""Carries out a member's duty: entries are proposed, attempts launched, and what they say is committed.

`node.duty` decides; this acts, on the event loop. Each attempt has an account: a task that brings what the
attempt says to the cluster in the order in which it was said, and ends when its end is committed, or when its
token is no longer the run's.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final

from node.duty.duty import Duty
from node.duty.step import CancelWork, HandOver, Kill, Launch, LeaseView, LocalAttempt, Owners, WaitsForRoom
from node.duty.step import Order as DutyOrder
from node.execution.order import CheckpointAsked, Ended, Event, Order, Progressed, Started
from node.execution.runner import Runner
from node.proposing import now_us
from node.raft.errors import EntryTooLarge, NoQuorum, OutcomeUnknown, Overloaded, Stopped
from node.state.entries import AttemptEnd, Began, Checkpoint, Entry, Finish
from node.state.value import Result, Run, State

_log = logging.getLogger("rota.conduct")

PROPOSE_S: Final = 5.0
"""How long one proposal may take before its outcome counts as unknown."""

RETRY_S: Final = 0.25
"""Between two tries to have an attempt's word committed, while there is no quorum."""

Propose = Callable[[Entry, float], Awaitable[Result]]


class Conduct:
    """One member's duty, being done.

    `state` answers with the newest state, `lease` with the live lease of this process's incarnation, or None;
    `order_of` makes of a claimed run what the runner is told. Everything here is called on the event loop.
    """

    def __init__(
        self,
        me: str,
        max_runs: int,
        runner: Runner,
        propose: Propose,
        state: Callable[[], State],
        lease: Callable[[], LeaseView | None],
        order_of: Callable[[Run], Order],
    ) -> None:
        self._duty = Duty(me)
        self._max_runs = max_runs
        self._runner = runner
        self._propose = propose
        self._state = state
        self._lease = lease
        self._order_of = order_of
        self._held: dict[str, LocalAttempt] = {}
        self._accounts: dict[str, asyncio.Queue[Event]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._looked = False
        self._stirred = False
        self._timer: asyncio.TimerHandle | None = None
        self._stopping = False
        self.progress: dict[str, Progressed] = {}
        self.waiting: dict[str, WaitsForRoom] = {}

    @property
    def held(self) -> Mapping[str, LocalAttempt]:
        """The attempts on this member, by run id."""
        return self._held

    def look(self, state: State, owners: Owners, touched: frozenset[str] | None) -> None:
        """There is a new state, with the placement that belongs to it."""
        self._looked = True
        self._duty.look(state, owners, touched)
        self.stir()

    def stir(self) -> None:
        """Something has changed: step as soon as the loop is free."""
        if not self._stirred and self._looked:
            self._stirred = True
            asyncio.get_running_loop().call_soon(self._step)

    def on_event(self, event: Event) -> None:
        """What the runner has to say of an attempt."""
        if isinstance(event, Progressed):
            self.progress[event.run_id] = event
        elif queue := self._accounts.get(event.run_id):
            queue.put_nowait(event)

    async def hand_over_all(self, patience_s: float) -> None:
        """Stop in good order: nothing new is begun, and what runs is asked to leave off where another may go on.

        What has not stopped after `patience_s` is killed. Returns when every end is committed, or when twice
        that time is over.
        """
        self._stopping = True
        for run_id, attempt in self._held.items():
            self._runner.hand_over(run_id, attempt.token)
        if await self._idle_within(patience_s):
            return
        self.kill_all()
        await self._idle_within(patience_s)

    def kill_all(self) -> None:
        """End every attempt at once."""
        for run_id, attempt in self._held.items():
            if not attempt.ended:
                self._runner.kill(run_id, attempt.token)

    async def idle(self) -> None:
        """Wait until no attempt is left here."""
        await self._idle.wait()

    async def close(self) -> None:
        """Do nothing more."""
        self._stopping = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _idle_within(self, patience_s: float) -> bool:
        try:
            async with asyncio.timeout(patience_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def _step(self) -> None:
        self._stirred = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._stopping:
            return
        now = now_us()
        step = self._duty.step(now, self._lease(), self._held, self._max_runs - len(self._held))
        self.waiting = {wait.task: wait for wait in step.waiting_for_room}
        for order in step.orders:
            self._obey(order)
        for entry in step.entries:
            self._spawn(self._propose_for_duty(entry))
        if step.wake_us is not None:
            delay_s = max(0.0, (step.wake_us - now) / 1e6)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self.stir)

    def _obey(self, order: DutyOrder) -> None:
        match order:
            case Launch(run):
                self._launch(run)
            case CancelWork(run_id, token):
                self._runner.cancel(run_id, token)
            case HandOver(run_id, token):
                self._runner.hand_over(run_id, token)
            case Kill(run_id, token):
                self._runner.kill(run_id, token)

    def _launch(self, run: Run) -> None:
        order = self._order_of(run)
        self._held[run.run_id] = LocalAttempt(run.token)
        self._idle.clear()
        self._accounts[run.run_id] = asyncio.Queue()
        self._spawn(self._account(order))
        self._runner.launch(order)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a part of this member's duty failed", exc_info=error)

    async def _propose_for_duty(self, entry: Entry) -> None:
        self._duty.answered(entry, await self._try(entry), now_us())
        self.stir()

    async def _try(self, entry: Entry) -> Result | None:
        """The result of an entry, or None where it is unknown, or nothing was proposed."""
        try:
            return await self._propose(entry, PROPOSE_S)
        except (NoQuorum, OutcomeUnknown, Overloaded, Stopped):
            return None
        except EntryTooLarge as error:
            return Result("too-large", detail=str(error))

    async def _account(self, order: Order) -> None:
        """Bring what one attempt says to the cluster, in order, until it has ended."""
        run_id, token = order.run_id, order.token
        queue = self._accounts[run_id]
        try:
            while True:
                match await queue.get():
                    case Started():
                        await self._insist(run_id, token, Began(now_us(), run_id, token))
                    case CheckpointAsked(_, _, sequence, data):
                        result = await self._insist(run_id, token, Checkpoint(now_us(), run_id, token, data))
                        self._runner.checkpoint_done(run_id, token, sequence, result.code if result else "fenced")
                    case Ended() as ended:
                        self._held[run_id] = LocalAttempt(token, ended=True)
                        await self._insist(run_id, token, self._finish(ended))
                        return
        finally:
            self._held.pop(run_id, None)
            self._accounts.pop(run_id, None)
            self.progress.pop(run_id, None)
            if not self._held:
                self._idle.set()
            self.stir()

    def _finish(self, ended: Ended) -> Finish:
        end: AttemptEnd = ended.end
        if self._stopping and end != "succeeded":
            # It was stopped because this node stops: another member goes on from its checkpoint.
            end = "handed_over"
        return Finish(now_us(), ended.run_id, ended.token, end, ended.result, ended.error, ended.retry)

    async def _insist(self, run_id: str, token: int, entry: Entry) -> Result | None:
        """Propose until there is an answer; None once the token is not the run's any more."""
        while True:
            if (result := await self._try(entry)) is not None:
                return result
            run = self._state().runs.get(run_id)
            if run is None or run.token != token:
                return None
            await asyncio.sleep(RETRY_S)
