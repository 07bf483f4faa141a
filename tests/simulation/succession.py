"""Tasks that come after others: each occurrence is decided once, as its parents ended, and as soon as the last has.

Which occurrence waits for whom, and how its parents ended, is gathered here from the entries. Of the state only
definitions, active runs and how far schedules have been decided on are used, and which ends are left over for the
leader.
"""

from collections import Counter
from typing import Final

from node.state.apply import Applied
from node.state.awaiting import AwaitParents, SettleLate
from node.state.claims import Claim
from node.state.entries import Entry, Proposal, Unreadable
from node.state.joins import PassOn, SettleJoin
from node.state.occurrences import Start
from node.state.registry import DeleteTask, Pause, PutTasks
from node.state.value import OccurrenceId, Run, State, TaskRow
from tasks.definition.policy import KEPT
from tasks.definition.run import RunState
from tests.simulation.backfills import of_backfill
from tests.simulation.kin import (
    End,
    Occurring,
    Registration,
    Step,
    all_below,
    as_end,
    at_times,
    children_of,
    decided_by,
    ends_by,
    fate,
    newest,
    of_state,
    parents_of,
    replaced_by,
)
from tests.simulation.waits import Wait, Waits
from tests.simulation.world import World

GRACE_S: Final = 6.0
"""What the leader has to do is done in this time, while one member leads and is well."""

AT_ONCE: Final = 128
"""So many tasks at least are told of ends in an entry, before the rest may be left over."""

WAITING_MAX: Final = 100
"""So many occurrences of one task may wait for its parents."""


class Succession:
    """Watches every proposal as it is applied; `look` is called now and then."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._any = False
        self._waits = Waits()
        self._decided: dict[tuple[Registration, OccurrenceId], int] = {}
        """What was decided, and how many registrations there had been."""
        self._due: set[str] = set()
        """The runs that have become due, and have not ended."""
        self._whole: dict[int, set[str]] = {}
        """Of each rerun whose tasks stay as they are, those that have not ended yet."""
        self._past: dict[str, dict[int, str]] = {}
        """How occurrences of tasks ended after which others come at times of their own."""
        self._named: dict[tuple[Registration, OccurrenceId], dict[str, int]] = {}
        """For which occurrences of its parents an occurrence of a task with a schedule waits, or has waited."""
        self._stuck_s: dict[Registration, float] = {}
        self._led: tuple[str, int] | None = None
        self.counts: Counter[str] = Counter()

    def watch(self, before: State, proposal: Proposal, applied: Applied) -> None:
        """One proposal has been applied."""
        entry, after = proposal.entry, applied.state
        # What comes after tasks that run on each member is judged by `tests.simulation.everywhere`.
        self._any = self._any or (bool(after.children) and not after.each)
        if not self._any or not applied.result.ok or isinstance(entry, Unreadable):
            return
        step = Step(before, after, self._found(before, applied))
        self._follow_definitions(step, entry)
        self._keep_past(step)
        if isinstance(entry, Start) and entry.downstream:
            self._rerun(step, entry, applied.result.value["run_id"])
        if (begun := of_backfill(after, entry)) is not None:
            number, root, tasks = begun
            self._waits.reruns[number], self._whole[number] = tasks, set(tasks)
            self._waits.gone[number] = {root}
        if isinstance(entry, SettleJoin):
            self._settle(step, entry)
        elif isinstance(entry, AwaitParents):
            self._await(step, entry)
        elif isinstance(entry, SettleLate):
            self._too_late(step, entry)
        self._pass_on(step, entry)
        told, left_over = self._told(step, entry, applied)
        step.itself = False
        self._tell_all(step, told)
        self._compare(step, applied, left_over)
        if isinstance(entry, Claim) and entry.run_id is not None:
            self._begins(before.runs[entry.run_id])
        self._due.difference_update(one.run.run_id for one in applied.ended)

    # -- what an entry should do

    def _follow_definitions(self, step: Step, entry: Entry) -> None:
        if isinstance(entry, PutTasks):
            for name in sorted(step.after.tasks):
                was, row = step.before.tasks.get(name), step.after.tasks[name]
                if was is None or was.spec_packed != row.spec_packed:
                    self._redefined(step, entry, name, was)
        elif isinstance(entry, Pause) and entry.task in step.after.tasks:
            if entry.on and not step.before.tasks[entry.task].paused:
                self._force(step, entry.task)
            elif not entry.on and step.before.tasks[entry.task].paused:
                decided_us = step.before.tasks[entry.task].through_us
                self._waits.count_from(step.registration(entry.task), max(entry.at_us, decided_us))
        elif isinstance(entry, DeleteTask):
            self._waits.drop((entry.task, step.before.tasks[entry.task].order))
            self._disturb(entry.task)
            for gone in self._waits.gone.values():
                gone.add(entry.task)

    def _redefined(self, step: Step, entry: PutTasks, name: str, was: TaskRow | None) -> None:
        had, has = parents_of(step.before, name), parents_of(step.after, name)
        otherwise = was is not None and at_times(step.before, name) != at_times(step.after, name)
        if was is None or had != has or otherwise or was.spec.enabled != step.after.tasks[name].spec.enabled:
            self._waits.count_from(step.registration(name), max(entry.at_us, 0 if was is None else was.through_us))
            self._disturb(name)
            if had:
                self._force(step, name)

    def _disturb(self, task: str) -> None:
        for number in [number for number, tasks in self._waits.reruns.items() if task in tasks]:
            self._whole.pop(number, None)

    def _force(self, step: Step, task: str) -> None:
        """What waits for the times of schedules waits no longer."""
        waits = self._waits.of(step.registration(task))
        for occurrence in sorted(one for one in waits if not one.generation):
            self._force_one(step, task, occurrence)

    def _force_one(self, step: Step, task: str, occurrence: OccurrenceId) -> None:
        registration = step.registration(task)
        self._waits.count_from(registration, occurrence.nominal_us)
        if not self._waits.of(registration).pop(occurrence).decided:
            step.decide(task, occurrence, "upstream_skipped")

    def _rerun(self, step: Step, entry: Start, run_id: str) -> None:
        run = step.after.runs.get(run_id)
        if run is None or run_id in step.before.runs:
            return  # asked for again under its key
        if not run.generation or run.generation in self._waits.reruns:
            self._world.wrong(f"succession: {run_id} is to be rerun with all after it, and has {run.generation}")
        tasks = all_below(step.after, entry.task)
        self._waits.reruns[run.generation], self._whole[run.generation] = tasks, set(tasks)
        self._waits.gone[run.generation] = {entry.task}

    def _settle(self, step: Step, entry: SettleJoin) -> None:
        occurrence = OccurrenceId(entry.nominal_us, entry.generation)
        waits = self._waits.of(step.registration(entry.task))
        wait = waits.get(occurrence)
        kept = [one for one in step.before.ends.values() if occurrence == (one.nominal_us, one.generation)]
        kept = [] if wait is not None and wait.times else kept
        if wait is None or kept:
            self._world.wrong(f"succession: {entry} settles what does not wait, or before {kept}")
            return
        if wait.decided:
            del waits[occurrence]
            return
        awaited = self._waits.awaited(step.after, entry.task, occurrence)
        missing = [one.task for one in awaited if one.task not in wait.ends]
        ended = self._ended_before(wait, missing)
        for name in missing:
            wanted = wait.wanted(name, occurrence)
            if name not in ended and self._waits.can_end(step.before, name, wanted, at_all=False):
                self._world.wrong(f"succession: {entry} settles what waits for {name}, which may still end")
        self.counts["settled"] += 1
        self._decide(step, entry.task, occurrence, {**dict.fromkeys(missing, "skipped"), **ended, **wait.ends})
        if missing and not wait.times:
            wait.decided = True
        else:
            del waits[occurrence]

    # -- at times of their own

    def _keep_past(self, step: Step) -> None:
        """From which tasks those with schedules need to know how they have ended, and what is known at first."""
        tasks = [name for name in step.after.tasks if at_times(step.after, name)]
        wanted = {one.task for name in tasks for one in parents_of(step.after, name)} & set(step.after.tasks)
        for name in set(self._past) - wanted:
            del self._past[name]
        for name in wanted - set(self._past):
            row = step.after.tasks[name]
            last = row.last if row.last is not None and row.last.fire_at_us == row.through_us else None
            self._past[name] = {last.fire_at_us: as_end(last.state)} if last is not None else {}

    def _remember(self, ends: list[End]) -> None:
        for end in ends:
            if end.task in self._past and not end.occurrence.generation:
                self._past[end.task][end.occurrence.nominal_us] = end.end

    def _ended_before(self, wait: Wait, parents: list[str]) -> dict[str, str]:
        known = {name: self._past.get(name, {}).get(wait.times.get(name, -1)) for name in parents}
        return {name: end for name, end in known.items() if end is not None}

    def _await(self, step: Step, entry: AwaitParents) -> None:
        occurrence, row = OccurrenceId(entry.nominal_us), step.after.tasks[entry.task]
        wait = Wait(times=dict(entry.times), until_us=entry.at_us + round(row.spec.wait_s * 1e6))
        names = [one.task for one in row.spec.after]
        wait.ends = {name: "skipped" for name in names if not wait.times[name]} | self._ended_before(wait, names)
        self._named[step.registration(entry.task), occurrence] = wait.times
        missing = [name for name in names if name not in wait.ends]
        self.counts["due at times"] += 1
        if any(self._waits.can_end(step.before, one, wait.wanted(one, occurrence), at_all=True) for one in missing):
            waits = self._waits.of(step.registration(entry.task))
            waits[occurrence] = wait
            self.counts["waits at times"] += 1
            if len(waits) > WAITING_MAX:
                self._force_one(step, entry.task, min(one for one in waits if not one.generation))
        else:
            self._decide(step, entry.task, occurrence, {**dict.fromkeys(missing, "skipped"), **wait.ends})

    def _too_late(self, step: Step, entry: SettleLate) -> None:
        occurrence = OccurrenceId(entry.nominal_us)
        wait = self._waits.of(step.registration(entry.task)).pop(occurrence, None)
        if wait is None or not wait.times or entry.at_us < wait.until_us:
            self._world.wrong(f"succession: {entry} ends what does not wait, or has not waited for long: {wait}")
            return
        missing = [one for one in wait.times if one not in wait.ends and not self._ended_before(wait, [one])]
        if not any(self._waits.can_end(step.before, one, wait.wanted(one, occurrence), at_all=True) for one in missing):
            self._world.wrong(f"succession: {entry} ends what waits for nothing any more")
        self.counts["too late"] += 1
        step.decide(entry.task, occurrence, "upstream_late")

    def _tell_at_times(self, step: Step, child: str, end: End) -> None:
        waits = self._waits.of(step.registration(child))
        for occurrence in sorted(waits):
            wait = waits[occurrence]
            if wait.times.get(end.task) != end.occurrence.nominal_us:
                continue
            wait.ends[end.task] = end.end
            if len(wait.ends) == len(wait.times):
                del waits[occurrence]
                self._decide(step, child, occurrence, wait.ends)

    # -- what is told

    def _pass_on(self, step: Step, entry: Entry) -> None:
        """The ends that were left over for the leader are passed on in their order, as many as an entry may."""
        before, after = step.before, step.after
        left = [one for one in before.ends if one in after.ends]
        passed = [one for one in sorted(before.ends) if one not in after.ends]
        if not passed:
            return
        weight = len(passed) + sum(len(children_of(after, before.ends[one].task)) for one in passed)
        fits = isinstance(entry, PassOn) and (not left or (min(left) > max(passed) and weight >= AT_ONCE))
        if not fits:
            self._world.wrong(f"succession: {entry} passes on {passed}, and leaves {left}")
        self._tell_all(step, [of_state(before.ends[one]) for one in passed])

    def _told(self, step: Step, entry: Entry, applied: Applied) -> tuple[list[End], Counter[End]]:
        """The ends of which children hear in the entry that makes them, and those that are left over for the leader.

        None is left over for want of room if there is some. What is left over besides must follow from others.
        """
        before, after = step.before, step.after
        left_over = Counter(of_state(after.ends[one]) for one in range(before.next_end, after.next_end))
        replaced = {task for (task, _), what in step.made.items() if what == "due"}
        own = [*step.ends(step.made), *ends_by(before, entry, applied, replaced)]
        self._remember(own)
        told = [end for end in own if self._matters(after, end)]
        held_back: Counter[End] = Counter()
        while told and left_over[told[-1]] > held_back[told[-1]]:
            held_back[told.pop()] += 1
        if held_back and sum(len(children_of(after, end.task)) for end in told) < AT_ONCE:
            self._world.wrong(f"succession: {entry} tells {len(told)} ends, and leaves {held_back}")
        return told, left_over - held_back

    def _tell_all(self, step: Step, told: list[End]) -> None:
        for end in told:
            if end.occurrence.generation in self._whole:
                self._whole[end.occurrence.generation].discard(end.task)
            for child in children_of(step.after, end.task):
                self._tell(step, child, end)

    def _matters(self, after: State, end: End) -> bool:
        return end.occurrence.generation != 0 or bool(children_of(after, end.task))

    def _tell(self, step: Step, child: str, end: End) -> None:
        registration, occurrence = step.registration(child), end.occurrence
        if not occurrence.generation and at_times(step.after, child):
            self._tell_at_times(step, child, end)
            return
        waits = self._waits.of(registration)
        if occurrence not in waits and not self._waits.its_own(registration, occurrence):
            return
        wait = waits.setdefault(occurrence, Wait())
        wait.ends[end.task] = end.end
        if any(one.task not in wait.ends for one in self._waits.awaited(step.after, child, occurrence)):
            if len(waits) > WAITING_MAX:
                self._force_one(step, child, min(one for one in waits if not one.generation))
            return
        del waits[occurrence]
        if not wait.decided:
            self._decide(step, child, occurrence, wait.ends)

    def _decide(self, step: Step, task: str, occurrence: OccurrenceId, ends: dict[str, str]) -> None:
        row, registration = step.after.tasks[task], step.registration(task)
        self._waits.gone.get(occurrence.generation, set()).add(task)
        strange = not at_times(step.after, task) and not self._waits.its_own(registration, occurrence)
        unwanted = row.paused or not row.spec.enabled or strange
        if unwanted and not occurrence.generation:
            step.decide(task, occurrence, "silent")
        else:
            found = fate(self._waits.awaited(step.after, task, occurrence), ends)
            step.decide(task, occurrence, "upstream_skipped" if self._cancelled(step, occurrence) else found)

    def _cancelled(self, step: Step, occurrence: OccurrenceId) -> bool:
        """Whether an occurrence is of a backfill that was cancelled."""
        rerun = step.before.reruns.get(occurrence.generation)
        return rerun is not None and rerun.backfill != 0 and step.after.backfills[rerun.backfill].cancelled

    # -- what it does

    def _found(self, before: State, applied: Applied) -> dict[Occurring, tuple[Run, RunState]]:
        found: dict[Occurring, tuple[Run, RunState]] = {}
        for run, state in decided_by(before, applied):
            assert run.occurrence is not None
            if (run.task, run.occurrence) in found:
                self._world.wrong(f"succession: {run.run_id} is decided twice at once")
            found[run.task, run.occurrence] = run, state
        return found

    def _compare(self, step: Step, applied: Applied, left_over: Counter[End]) -> None:
        """What was decided is what should have been, and the ends that follow are left over for the leader."""
        for (task, occurrence), what in [*step.made.items(), *step.followed.items()]:
            identity = step.registration(task), occurrence
            if newest(step.after, task) <= self._decided.get(identity, -1):
                self._world.wrong(f"succession: {occurrence} of {task} is decided a second time: {what}")
            self._decided[identity] = step.after.orders
            if ((task, occurrence) in step.found) == (what == "silent"):
                self._world.wrong(f"succession: {occurrence} of {task} is not decided as its last parent ends: {what}")
        for one, (run, state) in step.found.items():
            self.counts["due after others"] += state == "waiting"
            want = step.made.get(one) or step.followed.get(one)
            if want == "due":
                self._is_due(step, run, state)
            elif want != state:
                self._world.wrong(f"succession: {run.run_id} is {state}, and its parents make it {want}")
        follow = step.ends(step.followed)
        replacing = {task for (task, _), what in step.followed.items() if what == "due"}
        follow += replaced_by(step.before, applied, replacing)
        self._remember(follow)
        wanted = Counter(end for end in follow if self._matters(step.after, end))
        if wanted != left_over:
            self._world.wrong(f"succession: these ends are to be passed on: {left_over}, and should be: {wanted}")

    def _is_due(self, step: Step, run: Run, state: RunState) -> None:
        """An occurrence that is due waits for its owner, or its overlap forbids that."""
        assert run.occurrence is not None
        self._due.add(run.run_id)
        named = self._named.get((step.registration(run.task), run.occurrence), {})
        for one in self._waits.awaited(step.after, run.task, run.occurrence):
            active = (step.after.runs[run_id] for run_id in step.after.runs_of.get(one.task, ()))
            wanted = OccurrenceId(named[one.task]) if one.task in named else run.occurrence
            if any(other.occurrence == wanted and other.cancelling != "deleted" for other in active):
                self._world.wrong(f"succession: {run.run_id} is due, and {one.task} has not ended")
        live = [one for one in step.after.runs_of.get(run.task, ()) if not step.after.runs[one].backfill]
        others = [one for one in live if one != run.run_id and one in step.before.runs]
        stopped = all(step.after.runs[one].cancelling is not None for one in others)
        overlap = "allow" if run.backfill else step.after.tasks[run.task].spec.overlap
        beside = bool(others) or any(one != run.run_id for one in live)
        match overlap, state:
            case "skip", "waiting":
                fits = not others
            case "skip", "skipped":
                fits = beside
            case "queue", "skipped":
                fits = len(live) >= KEPT
            case "replace", "waiting" | "cancelled":
                fits = stopped
            case _, "failed":
                fits = run.spec.template  # for want of what its params need, which `tests.simulation.fills` judges
            case _:
                fits = state == "waiting"
        if not fits:
            self._world.wrong(f"succession: {run.run_id} is {state} beside {others} under {overlap}")

    def _begins(self, run: Run) -> None:
        if run.trigger == "after" and run.run_id not in self._due:
            self._world.wrong(f"succession: {run.run_id} begins, and its parents have not made it due")

    # -- what is left to the leader

    def look(self, state: State, leader: str | None) -> None:
        """What is left to the leader, and not done? `leader` is None unless one leads and is well."""
        led = None if leader is None else (leader, state.lead.term)
        if led is None or led != self._led or state.lead.member != leader:
            self._stuck_s.clear()
            self._led = led
            return
        now_s = self._world.now_s
        stuck = [*self._waits.in_vain(state), *self._waits.too_long(state, self._world.true_us)]
        if state.ends:
            stuck.append(("the passing on of ends", min(state.ends)))
        self._stuck_s = {one: self._stuck_s.get(one, now_s) for one in stuck}
        for one, since_s in self._stuck_s.items():
            if now_s - since_s > GRACE_S:
                self._world.wrong(f"succession: {one[0]} waits for the leader for long, and for nothing else")

    def unrest(self, state: State) -> list[object]:
        """What is still to come, where nothing falls due any more: at rest it is nothing."""
        return [
            *(sorted(state.ends.items()) if state.ends else ()),
            *((task, occurrence) for task, occurrence, _ in self._waits.undecided(state)),
            *sorted(self._due),
            *((number, tasks) for number, tasks in self._whole.items() if tasks),
        ]
