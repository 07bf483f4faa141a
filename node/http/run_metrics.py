"""Metrics of runs: final states, each task's last success and deadlines, and overdue occurrences.

They come from the replicated state: every member has the same, and a restart loses none.
"""

from collections.abc import Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from node.duty.overdue import Overdue
from node.state.value import COUNTED, State, TaskRow
from tasks.definition.deadlines import DEADLINES, Deadlines, deadlines_of


def of_runs(state: State, tasks: Sequence[str]) -> Iterable[Metric]:
    """The counts of all runs, and the metrics of each of these tasks; one metric counts the other tasks."""
    rows = [(task, row) for task in tasks if (row := state.tasks.get(task)) is not None]
    yield _total(state)
    yield from _of_tasks(rows)
    left_out = GaugeMetricFamily(
        "rota_tasks_without_metrics", "Tasks beyond ROTA_METRICS_TASKS, which have no metrics of their own"
    )
    left_out.add_metric([], len(state.tasks) - len(rows))
    yield left_out


def of_overdue(overdue: Overdue) -> Iterable[Metric]:
    """The metrics of what is due and has not begun."""
    tasks = GaugeMetricFamily("rota_overdue_tasks", "Tasks with something that has been due for a second or more")
    tasks.add_metric([], overdue.tasks)
    yield tasks
    oldest = GaugeMetricFamily("rota_overdue_seconds", "How long the most overdue of them has waited; 0: none is")
    oldest.add_metric([], overdue.oldest_s)
    yield oldest


def _total(state: State) -> Metric:
    total = CounterMetricFamily("rota_runs", "Runs that have ended, by final state", labels=["state"])
    for ending, count in zip(COUNTED, state.endings or (0,) * len(COUNTED), strict=True):
        total.add_metric([ending], count)
    return total


def _of_tasks(rows: Sequence[tuple[str, TaskRow]]) -> Iterable[Metric]:
    endings = CounterMetricFamily(
        "rota_task_runs", "Runs of a task that have ended, by final state", labels=["task", "state"]
    )
    success = GaugeMetricFamily(
        "rota_task_last_success_timestamp_seconds", "When a run of the task last succeeded", labels=["task"]
    )
    duration = GaugeMetricFamily(
        "rota_task_last_duration_seconds",
        "How long the task's last run took, from its first claim to its end",
        labels=["task"],
    )
    breached = GaugeMetricFamily(
        "rota_task_deadline_breached", "Whether a deadline of the task is breached", labels=["task", "deadline"]
    )
    for task, row in rows:
        late = {breach.deadline for breach in row.breaches}
        limits = deadlines_of(row.spec_packed) or Deadlines()
        for deadline in DEADLINES:
            if limits.limit_us(deadline) is not None:
                breached.add_metric([task, deadline], deadline in late)
        # Series begin at 0: a rate() would miss a first failure whose series begins at 1.
        for ending, count in zip(COUNTED, row.endings or (0,) * len(COUNTED), strict=True):
            endings.add_metric([task, ending], count)
        if (succeeded_at_us := _succeeded_at_us(row)) is not None:
            success.add_metric([task], succeeded_at_us / 1e6)
        if row.last is not None and row.last.took_us is not None:
            duration.add_metric([task], row.last.took_us / 1e6)
    return endings, success, duration, breached


def _succeeded_at_us(row: TaskRow) -> int | None:
    if row.succeeded_at_us is None and row.last is not None and row.last.state == "succeeded":
        return row.last.finished_at_us  # written by a version that kept the last outcome only
    return row.succeeded_at_us
