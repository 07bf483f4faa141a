"""Tasks with `each`: an occurrence is one run for each member that takes part, which no other member may claim.

The members are taken from the state in the entry that makes the runs: they are not listed in it, since the proposer may
not know yet who has joined or was removed. What is active on one member holds up nothing on another, and how runs ended
is kept for each member (`State.each`); the task's row has the state of the worst one.

A member that is not up keeps its run waiting. The next occurrence decides by `catch_up` on one that has not begun: it
is missed, or with `all` waits too; but one that waits for a pool is as active as any. With `skip`, it is missed as soon
as it is late (`node.state.fan_out.MissRun`).
"""

from typing import Final

from node.state.attempts import stop_run
from node.state.bounds import no_room
from node.state.copying import replace
from node.state.draft import MEMBER_REMOVED, RULES_EACH, Draft, refused, stem
from node.state.parts import part_of, summed_up, takes_part
from node.state.value import EachRow, Member, MemberPart, OpenRound, PassedOver, Result, Run, Series, TaskRow
from tasks.definition.policy import KEPT
from tasks.definition.spec import runs_on_each

_ID_CHARS_MAX: Final = 60
"""The longest member's id in a run's id, so that this can name a folder. Of a longer one, the slot is named."""

_NAMED_MAX: Final = 5


def settle_each(draft: Draft, changed: list[str], at_us: int) -> str | None:
    """Begin or cease to run tasks on each member; what is active by the earlier definition ends. Returns the fault."""
    for name in changed:
        if draft.lead.rules < RULES_EACH:
            return f"{name}: `each` needs a leader of this version"
        with draft.gathered(name):
            for run in draft.active(name):
                stop_run(draft, run, "changed", at_us)
        keep_each(draft, name)
    return None


def keep_each(draft: Draft, task: str) -> None:
    """Keep how a task fares on each member, from now on, if it is there and has `each`; else not any more."""
    row = draft.tasks.get(task)
    if row is not None and runs_on_each(row.spec_packed):
        draft.each = draft.each.set(task, EachRow(task))
    elif task in draft.each:
        draft.each = draft.each.delete(task)


def members_of(draft: Draft, row: TaskRow) -> list[Member]:
    """Return the members that take part in a task's next occurrence, by slot."""
    return sorted((one for one in draft.members.values() if takes_part(row, one)), key=lambda member: member.slot)


def begin_on_each(draft: Draft, row: TaskRow, run: Run, members: list[Member], at_us: int) -> None:
    """Make a run of an occurrence for each member, as its policies allow. `run` is that of no member yet."""
    occurrence = run.occurrence
    assert occurrence is not None
    task = run.task
    _open(draft, run)
    _take_part(draft, task, members, at_us)
    blocked: list[tuple[Run, str]] = []
    lanes = _lanes(draft, task)
    with draft.gathered(task):
        for member in members:
            one = _of_member(run, member)
            part = draft.part(one)
            if (by := _make_way(draft, row, one, lanes.get(member.id, []), at_us)) is not None:
                blocked.append((one, by))
                continue
            draft.put_run(one)
            if part is not None and part.series is not None and draft.part(one) is part:
                draft.keep_part(task, replace(part, series=None))
        for one, by in blocked:
            _pass_over(draft, one, "skipped", by, at_us)
            draft.end_on_member(one, occurrence, "skipped")


def start_on_each(draft: Draft, row: TaskRow, run: Run, only: str, at_us: int) -> Result:
    """Start a run by hand on each member, or on one (`only`). Those where overlap forbids it are left out, and named.

    Refused if it is forbidden on all. Result: `{"run_id", "run_ids", "busy"}`, the first run and all runs.
    """
    members = members_of(draft, row)
    if only and only not in {member.id for member in members}:
        known = ", ".join(member.id for member in members) or "no member"
        return refused("invalid", f"{run.task} does not run on {only}: it runs on {known}")
    chosen = [member for member in members if only in ("", member.id)]
    if not chosen:
        return refused("invalid", f"{run.task} runs on no member: none has the labels of its group and offers its kind")
    runs, busy = [], {}
    lanes = {} if run.action else _lanes(draft, run.task)
    for member in chosen:
        active = lanes.get(member.id, [])
        waiting = sum(other.state == "waiting" for other in active)
        if active and (row.spec.overlap == "skip" or (row.spec.overlap == "queue" and waiting >= KEPT)):
            busy[member.id] = active[0].run_id
            continue
        beside = [] if row.spec.overlap == "replace" else active
        if (why := no_room(draft, row, beside, run.params_bytes)) is not None:
            return refused("full", why)
        runs.append(_of_member(run, member))
    if not runs:
        first, many = next(iter(busy.items())), len(busy) - 1
        others = f", and on {many} more {'member' if many == 1 else 'members'} one is" if many else ""
        return refused("overlap", f"{first[1]} is active on {first[0]}{others}: wait for it, or cancel it")
    if run.occurrence is not None:
        _open(draft, run)
    _take_part(draft, run.task, chosen, at_us, only=bool(only))
    with draft.gathered(run.task):
        for one in runs:
            for other in lanes.get(one.member, ()) if row.spec.overlap == "replace" else ():
                stop_run(draft, other, "replaced", at_us)
            draft.put_run(one)
    return Result("ok", {"run_id": runs[0].run_id, "run_ids": [one.run_id for one in runs], "busy": list(busy)})


def miss_run(draft: Draft, run: Run, at_us: int) -> None:
    """End a run that has not begun as missed."""
    draft.drop_run(run)
    _pass_over(draft, run, "missed", "", at_us)
    if (occurrence := run.occurrence) is not None:
        draft.end_on_member(run, occurrence, "skipped")


def is_unbegun(run: Run) -> bool:
    """Whether `catch_up` may decide that a run of a member is missed: it is no start by hand, and was never claimed."""
    unasked = run.trigger != "manual" and not run.generation
    return bool(run.member) and unasked and run.state == "waiting" and not run.attempts


def forget_member(draft: Draft, member: str, at_us: int) -> None:
    """Cancel what waits for a member that was removed, and forget how it fared."""
    for task in sorted(draft.each):
        for run in draft.active(task):
            if run.member == member:
                stop_run(draft, run, MEMBER_REMOVED, at_us)
        if part_of(draft.each[task], member) is not None:
            _keep_parts(draft, task, [part for part in draft.each[task].parts if part.member != member])


def _lanes(draft: Draft, task: str) -> dict[str, list[Run]]:
    """Return the runs that count for `overlap`, by member, oldest first."""
    lanes: dict[str, list[Run]] = {}
    for run in draft.overlapping(task):
        lanes.setdefault(run.member, []).append(run)
    return lanes


def _of_member(run: Run, member: Member) -> Run:
    name = member.id if len(member.id) <= _ID_CHARS_MAX else f".{member.slot}"
    return replace(run, run_id=f"{run.run_id}@{name}", member=member.id)


def _open(draft: Draft, run: Run) -> None:
    """Note that an occurrence is to end on all members before the tasks after it are told."""
    assert run.occurrence is not None
    each = draft.each[run.task]
    draft.each = draft.each.set(run.task, replace(each, rounds=(*each.rounds, OpenRound(*run.occurrence))))


def _take_part(draft: Draft, task: str, members: list[Member], at_us: int, *, only: bool = False) -> None:
    """Have these members take part, and those that did not (`only`: all of the others, too) if they have a run."""
    known = {part.member: part for part in draft.each[task].parts}
    kept = {run.member for run in draft.active(task)} | (set(known) if only else set())
    parts = {name: part for name, part in known.items() if name in kept}
    parts |= {member.id: known.get(member.id) or MemberPart(member.id, at_us) for member in members}
    if parts != known:
        _keep_parts(draft, task, [parts[name] for name in sorted(parts)])


def _keep_parts(draft: Draft, task: str, parts: list[MemberPart]) -> None:
    draft.each = draft.each.set(task, replace(draft.each[task], parts=tuple(parts)))
    draft.put_task(summed_up(draft.tasks[task], tuple(parts)))


def _make_way(draft: Draft, row: TaskRow, run: Run, active: list[Run], at_us: int) -> str | None:
    """End what a new run of a member replaces or makes obsolete. Returns the run, or the limit, that forbids it.

    `active`: the runs of that member that count for `overlap`.
    """
    spec = row.spec
    # What a pool holds up is not missed for it: it has its place in the pool's queue.
    held_up = bool(spec.uses) and draft.members[run.member].status == "up"
    if all(map(is_unbegun, active)) and not (active and held_up):
        kept = KEPT - 1 if spec.catch_up == "all" and spec.overlap != "replace" else 0
        for other in active[: max(0, len(active) - kept)]:
            miss_run(draft, other, at_us)
        return None
    if spec.overlap == "skip":
        return next((other.run_id for other in active if not is_unbegun(other)), active[0].run_id)
    if spec.overlap == "queue" and sum(other.state == "waiting" for other in active) >= KEPT:
        return active[0].run_id
    if spec.overlap == "replace":
        for other in active:
            stop_run(draft, other, "replaced", at_us)
        return None
    return no_room(draft, row, active)


def _pass_over(draft: Draft, run: Run, state: PassedOver, blocked_by: str, at_us: int) -> None:
    """Record that an occurrence was passed over on a member; one of a schedule extends the member's series."""
    part = draft.part(run)
    if run.trigger != "schedule" or part is None:
        draft.pass_over(replace(run, state=state), at_us, error=f"{blocked_by} was active" if blocked_by else None)
    else:
        series = part.series
        if series is not None and (series.state, series.blocked_by) == (state, blocked_by):
            series = replace(series, last_fire_at_us=run.fire_at_us, count=series.count + 1)
        else:
            series = Series(
                state=state,
                created_at_us=at_us,
                fire_at_us=run.fire_at_us,
                last_fire_at_us=run.fire_at_us,
                count=1,
                blocked_by=blocked_by,
            )
        first = replace(
            run,
            run_id=f"{stem(run.task, series.fire_at_us)}@{run.run_id.partition('@')[2]}",
            fire_at_us=series.fire_at_us,
            created_at_us=series.created_at_us,
            state=state,
            nominal_us=0,
        )
        draft.pass_over(first, at_us, series)
        draft.keep_part(run.task, replace(part, series=series))
    row = draft.tasks[run.task]
    skipped = row.skipped + (state == "skipped")
    draft.put_task(replace(row, skipped=skipped, missed=row.missed + (state == "missed")))
