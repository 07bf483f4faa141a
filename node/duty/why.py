"""Answers why a task does not run, by steps that end at the first obstacle, or with the finding that it runs. Pure.

The steps look first for causes that do not pass by themselves: without a quorum no run is claimed, and a task that no
member may run will not begin at its next due time either. Then they look for causes that pass with time, and for causes
that only the owner knows (`node.duty.hold`).
"""

from collections.abc import Callable
from dataclasses import replace

from node.duty.advice import why_unowned
from node.duty.conditions import Place, held_at, remedy
from node.duty.hold import Hold
from node.duty.standing import (
    TaskStanding,
    competing,
    disabled,
    first_sentence,
    obstacles,
    on_each,
    run_ahead,
    run_standing,
    runs_of,
    schedule_standing,
)
from node.duty.why_values import Why, WhyFacts, WhyStep
from node.state.run_times import due_us as due_of
from node.state.times import rfc3339
from node.state.value import Run, State, TaskRow
from tasks.definition.run import HELD
from tasks.definition.spec import after_of
from tasks.secret import names_secrets


def why_not_running(state: State, task: str, known: WhyFacts, now_us: int, run_id: str | None = None) -> Why:
    """Explain why `task`, which must be in `state`, does not run at `now_us`; or its active run `run_id`, if given."""
    return _Walk(state, task, known, now_us, run_id).end()


def asks_owner(state: State, task: str, found: Why) -> bool:
    """Whether the owner may know more than `found`, which was worked out without asking the owner."""
    if found.code == "due":
        return True
    return _may_lack_secret(state.tasks[task]) and found.code in ("by_hand", "after", "not_due", "over", "backing_off")


def _may_lack_secret(row: TaskRow) -> bool:
    """Whether the task names secrets and its last run failed. Only its owner knows whether it has the secrets."""
    return row.last is not None and row.last.state == "failed" and names_secrets(row.spec.params)


class _Walk:
    def __init__(self, state: State, task: str, known: WhyFacts, now_us: int, run_id: str | None) -> None:
        self._state, self._task, self._known, self._now_us = state, task, known, now_us
        self._row = state.tasks[task]
        self._active = runs_of(state, task)
        self._scheduled = schedule_standing(state, task, now_us)
        self._run = self._subject(run_id)
        if self._run is not None:
            self._active = competing(self._active, self._run)
            if self._run.member:
                self._known = replace(known, owner=self._run.member)
        self._subject_told = self._told()
        self._steps: list[WhyStep] = []

    def end(self) -> Why:
        for place, step in self._places():
            match step():
                case Why() as found:
                    self._steps.append(WhyStep(place, found.detail, ends=True))
                    return replace(found, steps=tuple(self._steps))
                case str(passed):
                    self._steps.append(WhyStep(place, passed))
        raise AssertionError("the last step always ends the walk")

    def _places(self) -> list[tuple[Place, Callable[[], Why | str | None]]]:
        """Return the steps in order. A step returns the final answer (`Why`), or a finding, or None if irrelevant."""
        return [
            ("quorum", self._quorum),
            ("runs", self._runs),
            ("definition", self._definition),
            ("schedule", self._schedule),
            ("owner", self._owner),
            ("time", self._time),
            ("lease", self._lease),
            ("room", self._room),
            ("secrets", self._secrets),
            ("claim", self._claim),
        ]

    # -- the subject of the question

    def _subject(self, run_id: str | None) -> Run | None:
        """Return the run that the question is about; None: the next occurrence of the schedule."""
        if run_id is not None:
            return self._state.runs[run_id]
        work = [run for run in self._active if not run.action]
        held = [run for run in work if run.state in HELD]
        free = [run for run in work if run.state not in HELD]
        if self._task in self._state.each:
            # A run that its own member could claim, before one that waits for its member.
            free.sort(key=lambda run: self._state.members[run.member].status != "up" if run.member else True)
            return next(iter(free or held), None)
        if self._row.spec.overlap == "allow":
            free.sort(key=lambda run: due_of(run, self._now_us))
        ahead = run_ahead(self._active, self._row)
        if free:
            return ahead if ahead is not None and ahead.state not in HELD else free[0]
        if self._schedule_due() and (self._row.spec.overlap == "allow" or self._replaced() is not None):
            return None
        actions = [run for run in self._active if run.action and run.state not in HELD]
        return next(iter(held or actions), None)

    def _schedule_due(self) -> bool:
        if self._row.paused or not self._row.timing.enabled:
            return False
        return self._scheduled is not None and self._scheduled.code == "due"

    def _replaced(self) -> Run | None:
        """Return the run whose end a due occurrence waits for (`overlap: replace`), or None."""
        if self._row.spec.overlap != "replace":
            return None
        return next((run for run in self._active if run.cancelling is not None and not run.action), None)

    # -- the steps

    def _quorum(self) -> Why | str | None:
        known = self._known
        if known.quorum and known.leader is not None:
            return f"{known.leader} leads, and a majority follows it"
        detail = f"{known.me} hears no leader that a majority follows: nothing is claimed, and nothing can be changed"
        for run in self._active:
            if run.state in HELD:
                detail += f"; {run.run_id} on {run.node} {self._goes_on(run)}"
        return self._ends("no_quorum", detail, member=known.me)

    def _runs(self) -> Why | str | None:
        run = self._run
        if run is None:
            running = [one.run_id for one in self._active if one.state in HELD]
            return f"{', '.join(running)} runs" if running else "no run is active"
        if run.state not in HELD:
            return f"{run.run_id} is {run.state}"
        detail = run_standing(self._state, run, self._active, self._row, self._now_us).detail
        if run.run_id in self._known.frozen_since_us:
            detail += f", {self._goes_on(run)}"
        return self._ends("running", detail, run_id=run.run_id, member=run.node)

    def _goes_on(self, run: Run) -> str:
        since_us = self._known.frozen_since_us.get(run.run_id)
        if since_us is None:
            return f"goes on while {run.node} has a lease, as far as is known here"
        return f"is frozen since {rfc3339(since_us)}, because {run.node} has no lease"

    def _definition(self) -> Why | str | None:
        if self._run is not None:
            return None
        if not self._row.timing.enabled:
            return self._ends("disabled", disabled().detail)
        if self._row.paused:
            return self._ends("paused", "paused: it has no due times until it is resumed")
        return "it is enabled and not paused"

    def _schedule(self) -> Why | str | None:
        if self._run is not None:
            return None
        told = self._subject_told
        if told.code in ("unreadable", "over"):
            where = self._known.me if told.code == "unreadable" else None
            return self._ends(told.code, self._with_last(told), member=where)
        return told.detail

    def _owner(self) -> Why | str | None:
        owner, known = self._known.owner, self._known
        if self._run is not None and self._run.member:
            return f"{on_each(self._state, self._row)}; this run is for {self._run.member} alone"
        if owner is None:
            code, detail = why_unowned(self._state, self._row, known.unoffered)
            return self._ends(code, detail, run_id=self._run_id)
        if self._task in self._state.each:
            return f"{on_each(self._state, self._row)}; {owner} makes their runs"
        before = obstacles(known.because[:-1], self._row) if len(known.because) > 1 else ""
        return f"{owner} owns it" + (f" ({before})" if before else "")

    def _time(self) -> Why | str | None:
        told, replaced, known = self._subject_told, self._replaced(), self._known
        if told.code == "due" and self._run is None and replaced is not None:
            detail = f"it waits for the end of {replaced.run_id}, which is being cancelled (overlap: replace)"
            return self._ends("behind", detail, member=replaced.node, runs=(replaced.run_id,))
        if told.code == "due":
            return told.detail
        if told.code == "behind":
            return self._behind(told)
        if self._lacks_secret:
            return self._with_last(told)
        if told.code == "after" and (upstream := known.upstream) is not None:
            detail = f"{self._with_last(told)}; {upstream.words}"
            return self._ends("after", detail, None, None, upstream.member, upstream.runs)
        member = self._run.member if self._run is not None and told.code == "member_away" else None
        return self._ends(told.code, self._with_last(told), told.until_us, self._run_id, member)

    def _lease(self) -> Why | str | None:
        known, owner = self._known, self._known.owner
        if known.away:
            return self._ends("owner_away", f"{owner} owns it: {known.away}", None, self._run_id, owner)
        if known.hold is not None and held_at(known.hold.code) == "lease":
            return self._held(known.hold)
        return f"{owner} has a lease, and takes on work" if known.asked else None

    def _room(self) -> Why | str | None:
        known = self._known
        if known.hold is not None and held_at(known.hold.code) == "room":
            return self._held(known.hold)
        return f"{known.owner} has a place for it" if known.asked else None

    def _secrets(self) -> Why | str | None:
        known = self._known
        if known.hold is not None:
            return self._held(known.hold)
        return f"{known.owner} has every secret that it names" if known.asked else None

    def _claim(self) -> Why:
        owner = self._known.owner
        return self._ends("due", f"{self._subject_told.detail}; {owner} owns it", None, self._run_id, owner)

    # -- findings

    def _told(self) -> TaskStanding:
        """Return the present status of the run, or of the schedule, that the question is about."""
        if self._run is not None:
            return run_standing(self._state, self._run, self._active, self._row, self._now_us)
        # While a run (an action) is active, `schedule_standing` gives None for a schedule without further due times.
        if after_of(self._row.spec_packed) and self._row.timing.schedule is None:
            return self._scheduled or TaskStanding("after", "it is due after other tasks")
        return self._scheduled or TaskStanding(
            "over" if self._row.timing.schedule else "by_hand", "it has no further due times"
        )

    def _with_last(self, told: TaskStanding) -> str:
        """Return the detail, and how the last run failed if the question may be about that failure."""
        last = self._row.last
        if self._run is not None or last is None or last.state not in ("failed", "timed_out", "abandoned"):
            return told.detail
        error = first_sentence(last.error)
        detail = f"{told.detail}; its last run {last.state.replace('_', ' ')}" + (f": {error}" if error else "")
        known = self._known
        has_it = known.asked and known.hold is None and not known.away
        if has_it and _may_lack_secret(self._row):
            return f"{detail} ({known.owner} has the secrets that it names)"
        return detail

    def _behind(self, told: TaskStanding) -> Why:
        ahead = run_ahead(self._active, self._row)
        assert ahead is not None
        doing = run_standing(self._state, ahead, self._active, self._row, self._now_us).detail
        return self._ends("behind", f"{told.detail}: {doing}", None, told.run_id, ahead.node, (ahead.run_id,))

    # -- the answers of steps

    @property
    def _run_id(self) -> str | None:
        return None if self._run is None else self._run.run_id

    @property
    def _lacks_secret(self) -> bool:
        return self._known.hold is not None and self._known.hold.code == "secret"

    def _held(self, hold: Hold) -> Why:
        """End with the owner's obstacle; with `secret` even before the task is due, if its last run failed for it."""
        detail = hold.detail + (f": {', '.join(hold.runs)}" if hold.runs else "")
        until_us = self._subject_told.until_us
        return self._ends(hold.code, detail, until_us, self._run_id, self._known.owner, hold.runs)

    def _first(self) -> str | None:
        """Return the task that this one waits for through others; without that knowledge, the first of its parents."""
        if self._known.upstream is not None:
            return self._known.upstream.task
        return next((one.task for one in after_of(self._row.spec_packed)), None)

    def _ends(
        self,
        code: str,
        detail: str,
        until_us: int | None = None,
        run_id: str | None = None,
        member: str | None = None,
        runs: tuple[str, ...] = (),
    ) -> Why:
        ahead = runs[0] if runs else None
        last = self._row.last
        # A continuous task waits because its last run has ended, and the log of that run shows why it did.
        logged = run_id if run_id is not None or last is None else last.run_id
        todo = remedy(code, task=self._task, run=logged, ahead=ahead, first=self._first(), member=member)
        return Why(code=code, detail=detail, remedy=todo, until_us=until_us, run_id=run_id, member=member, runs=runs)
