"""Carries out a member's duty: entries are proposed, attempts launched, and what they say is committed.

`node.duty` decides; this acts, on the event loop. Each attempt has an account (`node.control.attempt_reporter`), which
ends when the attempt's end is committed, or when its token is no longer the run's.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final

from node.control.attempt_reporter import Account, Insist, RunnerPort
from node.duty.duty import Duty
from node.duty.overdue import Overdue
from node.duty.step import CancelWork, HandOver, KillAttempt, Launch, LeaseView, LocalAttempt, Owners, WaitsForRoom
from node.duty.step import Order as DutyOrder
from node.execution.launch_health import IgnoreLaunches, LaunchObserver, scarce
from node.execution.order import AttemptEnded, AttemptStarted, Event, Order, Progressed
from node.liveness.wall_clock import now_us
from node.raft.errors import EntryTooLarge, RaftError
from node.state.codec import BadEntry
from node.state.entries import Entry, Finish
from node.state.value import Result, Run, State
from tasks.run import HELD

_log = logging.getLogger("rota.conduct")

PROPOSE_S: Final = 5.0
"""How long one proposal may take before its outcome counts as unknown."""

STEP_MIN_S: Final = 0.001
"""Between two steps: others have their turn on the loop, however much there is to be decided."""

LOOK_S: Final = 10.0
"""Between two steps at most, however far off the next due time is: the wall clock may be set meanwhile, and while a
machine is suspended its event loop's clock stands still.
"""

DUE_AT_ONCE: Final = 1000
"""So many tasks that have come due are counted before others have their turn: a few milliseconds' work."""

AFTER_FAULT_S: Final = 1.0
"""Until the next step after one that failed, which is a mistake in Rota."""

Propose = Callable[[Entry, float], Awaitable[Result]]


class Conduct:
    """One member's duty, being done.

    `state` answers with the newest state, `lease` with the live lease of this process's incarnation, or None;
    `order_of` makes of a claimed run what the runner is told. `began_after` is told how long after it was due each
    attempt has begun, in seconds; `ability` whether attempts can be started here at all. While `aside` says why,
    nothing new is claimed. Everything here is called on the event loop.
    """

    def __init__(
        self,
        me: str,
        max_runs: int,
        runner: RunnerPort,
        propose: Propose,
        insist: Insist,
        state: Callable[[], State],
        lease: Callable[[], LeaseView | None],
        order_of: Callable[[Run], Order],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        began_after: Callable[[float], None] = lambda _delay_s: None,
        aside: Callable[[], str] = lambda: "",
        ability: LaunchObserver | None = None,
    ) -> None:
        self._me = me
        self._duty = Duty(me)
        self._max_runs = max_runs
        self._runner = runner
        self._propose = propose
        self._insist = insist
        self._state = state
        self._lease = lease
        self._order_of = order_of
        self._sleep = sleep
        self._began_after = began_after
        self._aside = aside
        self._ability = ability or IgnoreLaunches()
        self._held: dict[str, LocalAttempt] = {}
        self._accounts: dict[str, Account] = {}
        self._proposing: set[asyncio.Task[None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._looked = False
        self._stirred = False
        self._timer: asyncio.TimerHandle | None = None
        self._resting = False
        self._closed = False
        self._failing = False
        self._unreadable: dict[str, str] = {}
        self._undecided: frozenset[str] = frozenset()
        self.progress: dict[str, Progressed] = {}
        self.waiting: dict[str, WaitsForRoom] = {}

    @property
    def held(self) -> Mapping[str, LocalAttempt]:
        """The attempts on this member, by run id."""
        return self._held

    async def overdue(self) -> Overdue:
        """What of all tasks is due and has not begun. Where very much is, others have their turn meanwhile."""
        while self._duty.take_due(now_us(), DUE_AT_ONCE) == DUE_AT_ONCE:  # noqa: ASYNC110 - nothing to wait for
            await asyncio.sleep(0)
        return self._duty.overdue(now_us())

    def look(self, state: State, owners: Owners, touched: frozenset[str] | None) -> None:
        """There is a new state, with the placement that belongs to it."""
        self._looked = True
        self._duty.look(state, owners, touched)
        self._tell_of_unreadable()
        self.stir()

    def stir(self) -> None:
        """Something has changed: step as soon as the loop is free."""
        if not self._stirred and self._looked:
            self._stirred = True
            asyncio.get_running_loop().call_soon(self._step)

    def on_event(self, event: Event) -> None:
        """What the runner has to say of an attempt."""
        account = self._accounts.get(event.run_id)
        if account is None or account.token != event.token:
            return
        if isinstance(event, Progressed):
            self.progress[event.run_id] = event
            return
        run = self._state().runs.get(event.run_id)
        if isinstance(event, AttemptEnded) and event.starved:
            self._ability.cannot_start(event.error or "its node does not know why")
        elif isinstance(event, AttemptStarted):
            self._ability.started()
        if isinstance(event, AttemptStarted) and run is not None:
            self._began_after((now_us() - max(run.fire_at_us, run.due_us)) / 1e6)
        account.say(event)

    async def hand_over_all(self, patience_s: float, dying_s: float) -> bool:
        """Leave off: nothing new is begun until `go_on`, and what runs is asked to stop where another may go on.

        What has not stopped after `patience_s` is killed, and has `dying_s` for that: on a busy machine it takes its
        time. Returns when every end is committed, or that time is over: whether nothing works here any more, so that
        others may take over.
        """
        self._resting = True
        for run_id, attempt in self._held.items():
            if not attempt.ended:
                self._runner.hand_over(run_id, attempt.token)
        if not await self._idle_within(patience_s) and not self._all_ended:
            self.kill_all()
            await self._idle_within(dying_s)
        if not self._all_ended:
            return False
        await self._give_back(patience_s)
        return True

    def go_on(self) -> None:
        """Do one's duty again after `hand_over_all`."""
        self._resting = False
        self.stir()

    def kill_all(self) -> None:
        """End every attempt at once."""
        for run_id, attempt in self._held.items():
            if not attempt.ended:
                self._runner.kill(run_id, attempt.token)

    def fail(self, run_id: str, error: str) -> None:
        """End an attempt at once, as a failure: its task's retries say what becomes of the run."""
        attempt = self._held.get(run_id)
        if attempt is not None and not attempt.ended:
            _log.error("run %s is stopped: %s", run_id, error)
            self._runner.fail(run_id, attempt.token, error)

    async def close(self) -> None:
        """Do nothing more."""
        self._resting = self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def _all_ended(self) -> bool:
        """Whether nothing works here, though its end may not be committed yet: there may be no majority for it."""
        return all(attempt.ended for attempt in self._held.values())

    async def _idle_within(self, patience_s: float) -> bool:
        try:
            async with asyncio.timeout(patience_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def _give_back(self, patience_s: float) -> None:
        """Claims that were under way may have been accepted since: give them back unstarted.

        Else they would count as lost with this member, and wait for the grace of a failover.
        """
        if self._proposing:
            await asyncio.wait(self._proposing, timeout=patience_s)
        mine = [run for run in self._state().runs.values() if run.node == self._me and run.state in HELD]
        finishes = [
            self._try(Finish(now_us(), run.run_id, run.token, "not_started"), patience_s)
            for run in mine
            if run.run_id not in self._held
        ]
        await asyncio.gather(*finishes)

    # -- steps

    def _step(self) -> None:
        self._stirred = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._resting:
            return
        try:
            wake_s = self._do()
        except Exception:  # noqa: BLE001 - whatever it is, the next step may do better
            if not self._failing:
                _log.exception("deciding what to do next failed, which is a mistake in Rota")
            self._failing, wake_s = True, AFTER_FAULT_S
        else:
            self._failing = False
        if wake_s is not None:
            self._timer = asyncio.get_running_loop().call_later(max(STEP_MIN_S, min(LOOK_S, wake_s)), self.stir)

    @property
    def failing(self) -> bool:
        """Whether the last step failed, or left tasks undecided: then this member may leave undone what it owns."""
        return self._failing or bool(self._undecided)

    def _do(self) -> float | None:
        """One step. In how many seconds the next one is due, if nothing happens before."""
        now = now_us()
        room = 0 if self._aside() else self._max_runs - len(self._held)
        step = self._duty.step(now, self._lease(), self._held, room)
        self._tell_of_unreadable()
        self._tell_of_undecided(step.undecided)
        self.waiting = {wait.task: wait for wait in step.waiting_for_room}
        for entry in step.entries:
            task = self._spawn(self._propose_for_duty(entry))
            self._proposing.add(task)
            task.add_done_callback(self._proposing.discard)
        for order in step.orders:
            self._obey(order)
        return None if step.wake_us is None else (step.wake_us - now) / 1e6

    def _tell_of_unreadable(self) -> None:
        if self._duty.unreadable != self._unreadable:
            for task, why in self._duty.unreadable.items():
                if self._unreadable.get(task) != why:
                    _log.error("%s never falls due on this member: %s; install a newer tzdata here", task, why)
            self._unreadable = dict(self._duty.unreadable)

    def _tell_of_undecided(self, undecided: tuple[tuple[str, Exception], ...]) -> None:
        for task, error in undecided:
            if task not in self._undecided:
                _log.error("%s cannot be decided on, which is a mistake in Rota", task, exc_info=error)
        self._undecided = frozenset(task for task, _ in undecided)

    def _obey(self, order: DutyOrder) -> None:
        match order:
            case Launch(run):
                self._launch(run)
            case CancelWork(run_id, token):
                self._runner.cancel(run_id, token)
            case HandOver(run_id, token):
                self._runner.hand_over(run_id, token)
            case KillAttempt(run_id, token):
                self._runner.kill(run_id, token)

    def _launch(self, run: Run) -> None:
        account = Account(run.run_id, run.token, self._runner, self._insist, self._holds, self._sleep)
        self._accounts[run.run_id] = account
        self._held[run.run_id] = LocalAttempt(run.token)
        self._idle.clear()
        self._spawn(self._keep(account))
        try:
            self._runner.launch(self._order_of(run))
        except Exception as error:  # noqa: BLE001 - whatever it is, the claim is given back
            # It is for another member to do, or for this one later.
            if scarce(error):
                _log.error("run %s cannot be started here: %s", run.run_id, error)
                self._ability.cannot_start(str(error))
            else:
                _log.exception("run %s cannot be started here", run.run_id)
            account.never_began(str(error))

    async def _keep(self, account: Account) -> None:
        run_id = account.run_id
        try:
            await account.keep(self._ended, lambda: self._resting)
        finally:
            self._held.pop(run_id, None)
            self._accounts.pop(run_id, None)
            self.progress.pop(run_id, None)
            if not self._held:
                self._idle.set()
            self.stir()

    def _ended(self, account: Account) -> None:
        self._held[account.run_id] = LocalAttempt(account.token, ended=True)
        self.stir()

    def _holds(self, run_id: str, token: int) -> bool:
        run = self._state().runs.get(run_id)
        return run is not None and run.token == token

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a part of this member's duty failed", exc_info=error)

    async def _propose_for_duty(self, entry: Entry) -> None:
        result = None
        try:
            result = await self._try(entry, PROPOSE_S)
        finally:
            if not self._closed:
                self._duty.answered(entry, result, now_us())
                self.stir()

    async def _try(self, entry: Entry, timeout_s: float) -> Result | None:
        """The result of an entry, or None where it is unknown, or nothing was proposed."""
        try:
            return await self._propose(entry, timeout_s)
        except (EntryTooLarge, BadEntry) as error:
            return Result("invalid", detail=str(error))
        except RaftError as error:
            _log.debug("%s: %s", type(entry).__name__, error)
            return None
