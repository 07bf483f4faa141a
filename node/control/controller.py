"""The control loop's edge: proposes entries, launches attempts, and commits what they report.

`node.duty` decides; the controller acts, on the event loop. Each attempt has a reporter
(`node.control.attempt_reporter`), which ends when the attempt's end is committed, or when its token is no longer the
run's.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from dataclasses import replace
from typing import Any, Final

from node.control.attempt_reporter import AttemptReporter
from node.control.controller_port import ControllerPort, RunnerPort
from node.duty.duty import Duty
from node.duty.hold import OwnerSelf
from node.duty.overdue import Overdue
from node.duty.room import KindTerms
from node.duty.sharing import offer_holds
from node.duty.step import CancelWork, HandOver, KillAttempt, Launch, LocalAttempt, Owners, WaitsForRoom
from node.duty.step import Order as DutyOrder
from node.execution.attempt_events import AttemptEnded, AttemptFrozen, AttemptStarted, AttemptThawed, Event, Progressed
from node.execution.launch_health import IgnoreLaunches, LaunchObserver, scarce
from node.raft.errors import EntryTooLarge, RaftError
from node.state.attempts import Finish
from node.state.claims import Claim
from node.state.codec import BadEntry
from node.state.entries import Entry
from node.state.value import Result, Run, State
from tasks.definition.run import HELD

_log = logging.getLogger("rota.controller")

PROPOSE_S: Final = 5.0
"""How long one proposal may take before its outcome counts as unknown."""

STEP_MIN_S: Final = 0.001
"""The shortest time between two steps, so that other callbacks run on the loop however many decisions are due."""

STEP_MAX_S: Final = 10.0
"""The longest time between two steps, even if the next due time is later, because the wall clock may be set meanwhile,
and an event loop's clock stops while its machine is suspended.
"""

EXPECT_S: Final = 1.0
"""How long before an occurrence is due the runner is notified to expect an attempt."""

DUE_AT_ONCE: Final = 1000
"""How many due tasks are counted, in a few milliseconds, before other callbacks may run."""

AFTER_FAULT_S: Final = 1.0
"""The pause after a step that failed, which is a bug in Rota."""


class Controller:
    """Carries out the decisions of `Duty` for member `me`, with at most `max_runs` attempts at a time.

    Call all methods on the event loop. `ability` is notified whether attempts can be started on this machine. `kinds`
    has the `KindTerms` of the kinds that have a preparation or a bound.
    """

    def __init__(
        self,
        me: str,
        max_runs: int,
        member: ControllerPort,
        runner: RunnerPort,
        ability: LaunchObserver | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        kinds: Mapping[str, KindTerms] | None = None,
    ) -> None:
        self._me = me
        self._terms = kinds or {}
        self._duty = Duty(me, self._terms)
        self._preparations = sorted({terms.preparation for terms in self._terms.values() if terms.preparation})
        self._max_runs = max_runs
        self._member = member
        self._runner = runner
        self._sleep = sleep
        self._ability = ability or IgnoreLaunches()
        self._held: dict[str, LocalAttempt] = {}
        self._reporters: dict[str, AttemptReporter] = {}
        self._proposing: set[asyncio.Task[None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._observed = False
        self._woken = False
        self._timer: asyncio.TimerHandle | None = None
        self._resting = False
        self._closed = False
        self._failing = False
        self._unreadable: dict[str, str] = {}
        self._undecided: frozenset[str] = frozenset()
        self.progress: dict[str, Progressed] = {}
        """The latest progress of the attempts on this member, by run id."""
        self.frozen_since_us: dict[str, int] = {}
        """Since when attempts on this member are frozen because the lease has lapsed, by run id."""
        self.waiting: dict[str, WaitsForRoom] = {}
        """The due runs and occurrences that have no room on this member, by task."""
        self.full: frozenset[str] = frozenset()
        """The bounds of kinds that are used up on this member."""

    @property
    def held(self) -> Mapping[str, LocalAttempt]:
        """The attempts on this member, by run id."""
        return self._held

    def view_of(self, task: str, lease: bool) -> OwnerSelf:
        """Return the facts that this member knows about itself as a task's owner. `lease`: whether it holds one."""
        return OwnerSelf(
            member=self._me,
            lease=lease,
            max_runs=self._max_runs,
            stopping=self._resting,
            aside=self._member.standing_aside(),
            unreadable=self._duty.unreadable.get(task, ""),
            undecided=task in self._undecided,
            waits=self.waiting.get(task),
            full=self.full,
            terms=self._terms,
            attempts=self._held,
        )

    async def overdue(self) -> Overdue:
        """Return all tasks that are due and have not begun. Lets other callbacks run in between."""
        now_us = self._member.now_us
        while self._duty.take_due(now_us(), DUE_AT_ONCE) == DUE_AT_ONCE:  # noqa: ASYNC110 - nothing to wait for
            await asyncio.sleep(0)
        return self._duty.overdue(now_us())

    def observe(self, state: State, owners: Owners, touched: Collection[str] | None) -> None:
        """Use a new state and its placement from now on. `touched`: the tasks that may differ; None: all."""
        self._observed = True
        self._duty.observe(state, owners, touched)
        self._log_unreadable()
        self.wake()

    def wake(self) -> None:
        """Schedule a step as soon as the loop is free, because an input has changed."""
        if not self._woken and self._observed:
            self._woken = True
            asyncio.get_running_loop().call_soon(self._step)

    def on_event(self, event: Event) -> None:
        """Handle an event from the runner. Events of attempts that this member no longer holds are dropped."""
        reporter = self._reporters.get(event.run_id)
        if reporter is None or reporter.token != event.token:
            return
        match event:
            case Progressed():
                self.progress[event.run_id] = event
                return
            case AttemptFrozen():
                self.frozen_since_us[event.run_id] = self._member.now_us()
                return
            case AttemptThawed():
                self.frozen_since_us.pop(event.run_id, None)
                return
            case AttemptStarted():
                self._ability.started()
                if (run := self._member.state().runs.get(event.run_id)) is not None:
                    self._member.began_after((self._member.now_us() - max(run.fire_at_us, run.due_us)) / 1e6)
            case AttemptEnded(starved=True):
                self._ability.cannot_start(event.error or "the runner gave no reason")
        reporter.report(event)

    async def hand_over_all(self, patience_s: float, dying_s: float) -> bool:
        """Begin nothing new until `go_on`, and ask each attempt to stop so that another member can continue.

        An attempt that has not stopped after `patience_s` is killed, and has `dying_s` to end. Waits until every end is
        committed, or the time is over. Returns whether all attempts here have ended, so that others may take over.
        """
        self._resting = True
        for name in self._preparations:
            self._runner.prepare(name, 0, 0)
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
        """Resume work after `hand_over_all`."""
        self._resting = False
        self.wake()

    def kill_all(self) -> None:
        """Kill every attempt at once."""
        for run_id, attempt in self._held.items():
            if not attempt.ended:
                self._runner.kill(run_id, attempt.token)

    def fail(self, run_id: str, error: str) -> None:
        """Kill an attempt at once, as failed. Its task's retry policy decides whether the run is retried."""
        attempt = self._held.get(run_id)
        if attempt is not None and not attempt.ended:
            _log.error("run %s: stopping its attempt: %s", run_id, error)
            self._runner.fail(run_id, attempt.token, error)

    async def close(self) -> None:
        """Stop: take no further step, and make no further proposal."""
        self._resting = self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def _all_ended(self) -> bool:
        """Whether all attempts here have ended. Some ends may not be committed yet, as there may be no majority."""
        return all(attempt.ended for attempt in self._held.values())

    async def _idle_within(self, patience_s: float) -> bool:
        try:
            async with asyncio.timeout(patience_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def _give_back(self, patience_s: float) -> None:
        """Give back, unstarted, the claims that were in flight and have been accepted since.

        Otherwise their runs would count as lost with this member, and wait for the grace of a failover.
        """
        if self._proposing:
            await asyncio.wait(self._proposing, timeout=patience_s)
        mine = [run for run in self._member.state().runs.values() if run.node == self._me and run.state in HELD]
        finishes = [
            self._try(Finish(self._member.now_us(), run.run_id, run.token, "not_started"), patience_s)
            for run in mine
            if run.run_id not in self._held
        ]
        await asyncio.gather(*finishes)

    # -- steps

    def _step(self) -> None:
        self._woken = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._resting:
            return
        try:
            wake_s = self._do()
        except Exception:  # noqa: BLE001 - whatever it is, the next step may do better
            if not self._failing:
                _log.exception("a step of the control loop failed, which is a bug in Rota; retrying")
            self._failing, wake_s = True, AFTER_FAULT_S
        else:
            self._failing = False
        if wake_s is not None:
            if wake_s <= EXPECT_S:
                self._runner.expect()
            else:
                wake_s -= EXPECT_S
            self._timer = asyncio.get_running_loop().call_later(max(STEP_MIN_S, min(STEP_MAX_S, wake_s)), self.wake)

    @property
    def failing(self) -> bool:
        """Whether the last step failed or left tasks undecided, so that this member may not run all tasks it owns."""
        return self._failing or bool(self._undecided)

    def _do(self) -> float | None:
        """Do one step. Returns the seconds until the next step; None: the next step waits for a change of an input."""
        now = self._member.now_us()
        room = 0 if self._member.standing_aside() else self._max_runs - len(self._held)
        leads_us = {name: round(self._runner.lead_s(name) * 1e6) for name in self._preparations}
        step = self._duty.step(now, self._member.live_lease(), self._held, room, leads_us)
        self._log_unreadable()
        self._log_undecided(step.undecided)
        self.waiting, self.full = {wait.task: wait for wait in step.waiting_for_room}, step.full
        for entry in step.entries:
            task = self._spawn(self._propose_for_duty(entry))
            self._proposing.add(task)
            task.add_done_callback(self._proposing.discard)
        for order in step.orders:
            self._obey(order)
        for name, wanted in step.wanted.items():
            self._runner.prepare(name, wanted.start, wanted.keep)
        return None if step.wake_us is None else (step.wake_us - now) / 1e6

    def _log_unreadable(self) -> None:
        if self._duty.unreadable != self._unreadable:
            for task, why in self._duty.unreadable.items():
                if self._unreadable.get(task) != why:
                    _log.error("%s never falls due on this member: %s; install a newer tzdata here", task, why)
            self._unreadable = dict(self._duty.unreadable)

    def _log_undecided(self, undecided: tuple[tuple[str, Exception], ...]) -> None:
        for task, error in undecided:
            if task not in self._undecided:
                _log.error("%s: its next step cannot be decided, which is a bug in Rota", task, exc_info=error)
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
        reporter = AttemptReporter(run.run_id, run.token, self._member, self._runner, self._sleep)
        self._reporters[run.run_id] = reporter
        self._held[run.run_id] = LocalAttempt(run.token, kind=run.spec.kind)
        self._idle.clear()
        self._spawn(self._keep(reporter))
        try:
            self._runner.launch(self._member.order_of(run))
        except Exception as error:  # noqa: BLE001 - whatever it is, the claim is given back
            # Another member may be able to start the attempt, or this member later.
            if scarce(error):
                _log.error("run %s: its attempt cannot be started here: %s; giving the claim back", run.run_id, error)
                self._ability.cannot_start(str(error))
            else:
                _log.exception("run %s: its attempt cannot be started here; giving the claim back", run.run_id)
            reporter.never_began(str(error))

    async def _keep(self, reporter: AttemptReporter) -> None:
        run_id = reporter.run_id
        try:
            await reporter.run(self._ended, lambda: self._resting)
        finally:
            self._held.pop(run_id, None)
            self._reporters.pop(run_id, None)
            self.progress.pop(run_id, None)
            if not self._held:
                self._idle.set()
            self.wake()

    def _ended(self, reporter: AttemptReporter) -> None:
        self._held[reporter.run_id] = replace(self._held[reporter.run_id], ended=True)
        self.frozen_since_us.pop(reporter.run_id, None)
        self.wake()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a background task of the control loop failed, which is a bug in Rota", exc_info=error)

    async def _propose_for_duty(self, entry: Entry) -> None:
        result = None
        try:
            result = await self._declined(entry) or await self._try(entry, PROPOSE_S)
        finally:
            if not self._closed:
                self._duty.answered(entry, result, self._member.now_us())
                self.wake()

    async def _declined(self, entry: Entry) -> Result | None:
        """Return a refusal of a claim of what was offered here, if this member lacks a secret of it; else None.

        Its owner then begins the run, or offers it to another member. Once the offer has ended, the owner claims it.
        """
        state = self._member.state()
        run = state.runs.get(entry.run_id or "") if isinstance(entry, Claim) else None
        if run is None or run.offered != self._me or not offer_holds(state, run, entry.at_us):
            return None
        if not (lacking := await self._member.lacking(run.task)):
            return None
        _log.info("run %s: declined here: %s", run.run_id, "; ".join(lacking))
        return Result("declined", detail="; ".join(lacking))

    async def _try(self, entry: Entry, timeout_s: float) -> Result | None:
        """Propose an entry. Returns its result; None if it was not proposed, or its result is unknown."""
        try:
            return await self._member.propose(entry, timeout_s)
        except (EntryTooLarge, BadEntry) as error:
            return Result("invalid", detail=str(error))
        except RaftError as error:
            _log.debug("no result for the entry %s: %s", type(entry).__name__, error)
            return None
