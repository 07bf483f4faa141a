"""Which occurrence of each parent a task with a schedule waits for: the latest one at its own time, or before. Pure.

Only the owner of the task works this out, since `apply` never evaluates a schedule.
"""

from collections.abc import Iterator

from node.state.calendar import days_of
from node.state.value import State, TaskRow
from tasks.definition.schedule import latest_due_us, unreadable
from tasks.definition.spec import after_of, waits_at_times


def latest_times(state: State, row: TaskRow, nominal_us: int) -> tuple[tuple[str, int], ...]:
    """Return each task that `row` comes after, and the time of its latest occurrence up to `nominal_us`; 0: none.

    These are the occurrences that it has had, as far as they are kept, and those that its schedule still has to come.
    """
    return tuple((one.task, _latest_us(state, one.task, nominal_us)) for one in after_of(row.spec_packed))


def unreadable_parent(state: State, row: TaskRow) -> str | None:
    """Say why this machine cannot work out the times of what a task comes after; None if it can, or there is none."""
    for one in after_of(row.spec_packed):
        for root, _ in schedule_roots(state, one.task):
            if (why := unreadable(root.timing.schedule)) is not None:
                return f"{root.placing.name}, before it: {why}"
    return None


def _latest_us(state: State, task: str, nominal_us: int) -> int:
    had_us = [end.nominal_us for end in state.past_ends.get(task, ())]
    occurrences = [state.runs[run_id].occurrence for run_id in state.runs_of.get(task, ())]
    had_us += [one.nominal_us for one in occurrences if one is not None and not one.generation]
    times_us = [time_us for time_us in had_us if time_us <= nominal_us]
    for root, from_us in schedule_roots(state, task):
        due_us = latest_due_us(root.timing.schedule, days_of(state.calendars, root.timing), root.since_us, nominal_us)
        if due_us is not None and due_us > from_us:
            times_us.append(due_us)
    return max(times_us, default=0)


def schedule_roots(state: State, task: str) -> Iterator[tuple[TaskRow, int]]:
    """Yield the tasks whose schedules make those of `task`, each with the time up to which none is its own."""
    seen, left = {task}, [(task, 0)]
    while left:
        name, from_us = left.pop()
        row = state.tasks.get(name)
        if row is None:
            continue
        after = after_of(row.spec_packed)
        if not after or waits_at_times(row.spec_packed):
            yield row, from_us
            continue
        more = [one.task for one in after if one.task not in seen]
        seen.update(more)
        left += [(parent, max(from_us, row.after_us)) for parent in more]
