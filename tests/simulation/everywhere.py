"""Tasks that run on each member: each occurrence once on each, by that member alone, and told once it has ended on all.

Which members take part, which of them have ended an occurrence and how, and what follows for the tasks after it, is
gathered here from the entries. Of the state only definitions, members and active runs are used.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import cast

from node.state.apply import Applied
from node.state.entries import Entry, Proposal
from node.state.fan_out import MissRun
from node.state.joins import PassOn
from node.state.occurrences import SkipOccurrences
from node.state.value import EndedRun, OccurrenceId, Run, State, TaskRow
from tasks.definition.policy import KEPT, LATENESS_S
from tasks.definition.run import HELD, RunState
from tests.simulation.kin import as_end, children_of, decided_by, fate, parents_of
from tests.simulation.world import World

_GONE = "its member was removed"
_DECISIVE = ("succeeded", "failed", "timed_out", "abandoned")

AT_ONCE = 128
"""So many ends are told in one entry, if one task comes after each."""

Place = tuple[str, int, OccurrenceId]
"""A task's name, the number of its registration, and an occurrence."""


@dataclass(slots=True)
class Round:
    """The members on which an occurrence has not ended, and how it has on others."""

    open: set[str] = field(default_factory=set)
    ends: list[str] = field(default_factory=list)

    @property
    def end(self) -> str:
        """What is told of it: a failure goes before all else."""
        return next((end for end in ("failed", "skipped") if end in self.ends), "succeeded" if self.ends else "skipped")


class Everywhere:
    """Watches every accepted entry of a history with such tasks."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rounds: dict[Place, Round] = {}
        self._decided: set[tuple[Place, str]] = set()
        self._told: set[Place] = set()
        self._left: dict[tuple[str, OccurrenceId], str] = {}
        """What is to become of occurrences of tasks of whose parents the leader passes on the end."""
        self._failing: dict[tuple[str, int, str], bool] = {}
        self.counts: Counter[str] = Counter()

    def watch(self, before: State, proposal: Proposal, applied: Applied) -> None:
        """An entry was applied."""
        after, entry = applied.state, proposal.entry
        if not (before.each or after.each) or not isinstance(entry, Entry):
            return
        for key in [key for key in self._rounds if key[0] not in after.tasks or after.tasks[key[0]].order != key[1]]:
            del self._rounds[key]  # the task was deleted, and nobody hears of the end
        made = self._made(before, after, applied)
        self._members(after, made)
        self._lanes(before, after, applied, made)
        closed = self._end(before, after, entry, applied, made)
        self._children(before, after, entry, applied, closed)
        self._states(after, applied)

    # -- what is made

    def _made(self, before: State, after: State, applied: Applied) -> dict[Place, dict[str, str]]:
        """The occurrences that this entry decides on, and what becomes of them on each member: a run, or skipped."""
        made: dict[Place, dict[str, str]] = defaultdict(dict)
        for task in sorted(applied.touched):
            for run in (after.runs[one] for one in after.runs_of.get(task, ())):
                if run.member and run.run_id not in before.runs and run.occurrence is not None:
                    self._decide(made, after.tasks[task], run.occurrence, run.member, "run")
        for one in applied.ended:
            if not one.run.member or one.run.task not in after.tasks:
                continue
            if one.state == "skipped":
                self._decide(made, after.tasks[one.run.task], _occurrence(one), one.run.member, "skipped")
            elif _passing(before, one):
                self._decide(made, after.tasks[one.run.task], _occurrence(one), one.run.member, "passed")
        return made

    def _decide(
        self, made: dict[Place, dict[str, str]], row: TaskRow, occurrence: OccurrenceId, member: str, what: str
    ) -> None:
        key = row.placing.name, row.order, occurrence
        if (key, member) in self._decided:
            self._world.wrong(f"each: {occurrence} of {key[0]} is decided on for {member} a second time")
        self._decided.add((key, member))
        made[key][member] = what

    def _members(self, after: State, made: dict[Place, dict[str, str]]) -> None:
        """An occurrence is decided on for each member that has the labels, has joined and stays, and for no other."""
        for (task, _, occurrence), members in made.items():
            wanted = _members_of(after, after.tasks[task])
            self.counts["fanned out"] += 1
            if set(members) != wanted and not _by_hand(after, task, occurrence):
                self._world.wrong(
                    f"each: {occurrence} of {task} is for {sorted(members)}, and not for {sorted(wanted)}"
                )

    def _lanes(self, before: State, after: State, applied: Applied, made: dict[Place, dict[str, str]]) -> None:
        """What is active on a member: its own, and not beside itself; what was skipped found something there."""
        for task in sorted(applied.touched & set(after.tasks)):
            spec, lanes = after.tasks[task].spec, defaultdict[str, list[Run]](list)
            for run in (after.runs[one] for one in after.runs_of.get(task, ())):
                if run.member:
                    lanes[run.member].append(run)
                    if run.state in HELD and run.node != run.member:
                        self._world.wrong(f"each: {run.run_id} is held by {run.node}")
            for member, runs in lanes.items():
                held = sum(run.state in HELD for run in runs)
                if held > 1 and spec.overlap != "allow":
                    self._world.wrong(f"each: {task} runs beside itself on {member}")
                last_only = spec.overlap == "replace" or (spec.overlap == "skip" and spec.catch_up != "all")
                if last_only and sum(map(_unbegun, runs)) > 1:
                    self._world.wrong(f"each: several occurrences of {task} wait for {member}")
                if member not in after.members:
                    self._world.wrong(f"each: a run of {task} is for {member}, which is no member")
        for (task, _, occurrence), members in made.items():
            overlap = after.tasks[task].spec.overlap
            for member, what in members.items():
                active = [run for run in _active(before, task) if run.member == member and not run.action]
                # What waits for a pool on a member that is up is as active as any.
                up = after.members[member].status == "up"
                hindered = any(not (_unbegun(run) and not (up and after.tasks[task].spec.uses)) for run in active)
                full = sum(run.state == "waiting" for run in active) >= KEPT
                fits = (overlap == "skip" and hindered) or (overlap == "queue" and full)
                if (what == "skipped") != fits and not _by_hand(after, task, occurrence):
                    self._world.wrong(f"each: {occurrence} of {task} is {what} on {member}, beside {active}")

    # -- what ends

    def _end(
        self, before: State, after: State, entry: Entry, applied: Applied, made: dict[Place, dict[str, str]]
    ) -> dict[Place, str]:
        """Note the ends of this entry. Returns the occurrences that have ended on all members, and how."""
        for key, members in made.items():
            found = self._rounds.setdefault(key, Round())
            found.open |= {member for member, what in members.items() if what == "run"}
            found.ends += ["skipped" for what in members.values() if what != "run"]
        # What a run that follows from an end is skipped for, or replaces, ends after it: the leader passes that on.
        follows = {task for task, _, _ in made if getattr(entry, "task", "") != task}
        later = {key for key, members in made.items() if key[0] in follows and set(members.values()) != {"run"}}
        ended = {one.run.run_id: one for one in applied.ended if one.series is None and one.state != "missed"}
        for task in sorted(applied.touched):
            for run in _active(before, task):
                if not run.member or run.run_id in after.runs:
                    continue
                if (one := ended.get(run.run_id)) is None:
                    self._missed(before, after, entry, run)
                if task not in after.tasks or run.occurrence is None:
                    continue
                key = task, after.tasks[task].order, run.occurrence
                found = self._rounds.get(key, Round({run.member}))
                found.open.discard(run.member)
                if task in follows and (one is None or one.run.cancelling == "replaced"):
                    later.add(key)
                if one is None or one.run.cancelling != _GONE:
                    found.ends.append("skipped" if one is None else as_end(one.state))
        closed = {key: found.end for key, found in self._rounds.items() if not found.open}
        for key in list(closed):
            del self._rounds[key]
            if key in later:
                for child in children_of(after, key[0]):
                    self._left[child, key[2]] = fate(parents_of(after, child), {key[0]: closed[key]})
                del closed[key]
        for key in closed:
            if key in self._told:
                self._world.wrong(f"each: {key} ends twice")
            self._told.add(key)
            self.counts["ended on all"] += 1
        return closed

    def _missed(self, before: State, after: State, entry: Entry, run: Run) -> None:
        """A run is gone without an end of its own: it was never claimed, and the next one came, or it was late."""
        self.counts["missed on a member"] += 1
        row, member = before.tasks[run.task], before.members.get(run.member)
        settings = before.settings
        late_s = max(LATENESS_S, settings.window_s + settings.lease_s + settings.margin_s + 6.5)
        until_us = run.created_at_us + round(late_s * 1e6)
        if isinstance(entry, MissRun):
            in_time = member is not None and member.status == "up" and member.since_us <= until_us
            fits = row.spec.catch_up == "skip" and entry.at_us >= until_us and not in_time
        else:
            lane = [one for one in _active(after, run.task) if one.member == run.member]
            followed = any(one.run_id not in before.runs for one in lane)
            up = after.members[run.member].status == "up"
            fits = (
                not (up and row.spec.uses)
                and followed
                and (row.spec.catch_up != "all" or row.spec.overlap == "replace" or len(lane) >= KEPT)
            )
        if not _unbegun(run) or not fits:
            self._world.wrong(f"each: {run.run_id}, {run.state}, is missed by {entry}")

    # -- what follows

    def _children(self, before: State, after: State, entry: Entry, applied: Applied, closed: dict[Place, str]) -> None:
        """What comes after such a task is decided once, in the entry that ends it on the last member."""
        ends = {(task, occurrence): end for (task, _, occurrence), end in closed.items()}
        if isinstance(entry, SkipOccurrences) and entry.task in after.each:
            through_us = before.tasks[entry.task].through_us
            times = sorted({one for one in entry.fire_at_us if one > through_us})
            ends |= {(entry.task, OccurrenceId(one)): "skipped" for one in times[:AT_ONCE]}
            for child in children_of(after, entry.task):  # of the rest, the leader tells
                what = fate(parents_of(after, child), {entry.task: "skipped"})
                after_us = after.tasks[child].after_us
                self._left |= {(child, OccurrenceId(one)): what for one in times[AT_ONCE:] if one > after_us}
        wanted: dict[tuple[str, OccurrenceId], str] = {}
        for (task, occurrence), end in ends.items():
            for child in children_of(after, task):
                row = after.tasks[child]
                if occurrence.generation or occurrence.nominal_us > row.after_us:
                    wanted[child, occurrence] = fate(parents_of(after, child), {task: end})
                    if row.spec.each and wanted[child, occurrence] == "due" and not _members_of(after, row):
                        wanted[child, occurrence] = "skipped"
        found: dict[tuple[str, OccurrenceId], str] = {}
        for run, state in decided_by(before, applied):
            if any(one.task in after.each or one.task not in after.tasks for one in parents_of(after, run.task)):
                assert run.occurrence is not None
                found[run.task, run.occurrence] = "due" if run.member or state == "waiting" else state
        if isinstance(entry, PassOn):
            wanted |= {key: self._left.pop(key) for key in [*found] if key in self._left}
        if found != wanted and not any(one.generation for _, one in (*found, *wanted)):
            self._world.wrong(f"each: {found} became of what should be {wanted}, after {ends}, by {entry}")
        self.counts["after each"] += len(found)
        for (task, occurrence), what in found.items():
            if task in after.each and what != "due":
                for child in children_of(after, task):
                    self._left[child, occurrence] = fate(parents_of(after, child), {task: as_end(cast(RunState, what))})

    def _states(self, after: State, applied: Applied) -> None:
        """A task fails while it fails on any of its members."""
        for one in applied.ended:
            run, row = one.run, after.tasks.get(one.run.task)
            if row is not None and run.member and one.state in _DECISIVE and run.cancelling != "deleted":
                self._failing[run.task, row.order, run.member] = one.state != "succeeded"
        for task in sorted(applied.touched & set(after.each)):
            row = after.tasks[task]
            members = [part.member for part in after.each[task].parts]
            for gone in [key for key in self._failing if key[0] == task and key[2] not in members]:
                del self._failing[gone]  # one that takes part again begins anew
            failing = [member for member in members if self._failing.get((task, row.order, member))]
            if row.failing != bool(failing) and members and after.lead.rules:
                self._world.wrong(f"each: {task} is said to fail: {row.failing}, and fails on {failing}")

    # -- at the end

    def neglected(self, state: State, now_us: int, busy: set[str]) -> str | None:
        """Say which run its member, one that is not `busy`, has not claimed before `now_us`; None: there is none."""
        for task in state.each:
            row = state.tasks[task]
            lanes = defaultdict[str, list[Run]](list)
            for run in _active(state, task):
                lanes[run.member].append(run)
            for member, runs in lanes.items():
                free = [run for run in runs if run.state not in HELD and run.cancelling is None]
                blocked = len(free) < len(runs) and row.spec.overlap != "allow"
                if not free or blocked or member in busy:
                    continue
                first = next((run for run in free if run.state == "orphaned"), free[0])
                if any(name in state.pools for name in first.spec.uses):
                    continue  # whether it is claimed shows when all ends
                lost_us = [attempt.finished_at_us or 0 for attempt in first.attempts]
                if max(first.due_us, first.created_at_us, *lost_us) < now_us:
                    return f"{member} does not claim {first.run_id}, {first.state}"
        return None


def _passing(before: State, ended: EndedRun) -> bool:
    """Whether an entry that ends several occurrences at once has made a run, and ended it because of a later one."""
    run = ended.run
    return run.trigger == "after" and ended.state in ("missed", "cancelled") and run.run_id not in before.runs


def _occurrence(ended: EndedRun) -> OccurrenceId:
    assert ended.run.occurrence is not None
    if ended.series is None:
        return ended.run.occurrence
    return OccurrenceId(ended.series.last_fire_at_us, ended.run.generation)


def _members_of(state: State, row: TaskRow) -> set[str]:
    """The members that have the labels of a task, have joined, and stay."""
    return {
        member.id
        for member in state.members.values()
        if member.incarnation
        and not member.leaving
        and all((name, value) in member.labels for name, value in row.spec.group.items())
    }


def _by_hand(after: State, task: str, occurrence: OccurrenceId) -> bool:
    """Whether an occurrence is a start by hand, which may be of one member, and leaves out those that are busy."""
    runs = [run for run in _active(after, task) if run.occurrence == occurrence]
    return any(run.trigger == "manual" for run in runs)


def _unbegun(run: Run) -> bool:
    return run.state == "waiting" and not run.attempts and run.trigger != "manual" and not run.generation


def _active(state: State, task: str) -> list[Run]:
    return [state.runs[one] for one in state.runs_of.get(task, ())]
