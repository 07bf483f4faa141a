"""/metrics: metrics of this member, and of the cluster as this member sees it.

The metrics of runs and tasks come from the replicated state: every member has the same, and a restart loses none.
"""

import asyncio
from collections import Counter as Counting
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from time import monotonic
from typing import Final

import msgpack
from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from node.duty.overdue import Overdue
from node.http.door.endpoint import Endpoints, ResponseSpec
from node.http.door.request_context import RequestContext
from node.http.node_port import NodePort
from node.notify.dead_man import PingView
from node.peer.bootstrap import Bootstrap
from node.state.majority import at_risk
from node.state.value import COUNTED, State, TaskRow
from node.telemetry.thread_lag import ThreadLag
from node.tracing.export_thread import ExportCount
from tasks.definition.deadlines import DEADLINES, Deadlines, deadlines_of
from tasks.definition.run import ACTIVE
from tasks.definition.spec import cached_spec

endpoints = Endpoints("watch")

_STATUSES = ("up", "down", "draining")
_DRILL: Final = bytes(msgpack.packb("drill"))


@endpoints.add("GET", "/metrics", {200: ResponseSpec("Metrics", str, "text/plain")})
async def metrics(context: RequestContext) -> web.Response:
    """Metrics in Prometheus' text format."""
    text = await asyncio.to_thread(context.server.kept(NodeMetrics).text, await context.node.overdue())
    return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})


class NodeMetrics:
    """Reads the node's metrics at each scrape. Other modules count further metrics in the same `registry`."""

    def __init__(self, node: NodePort, registry: CollectorRegistry) -> None:
        self._node = node
        self._registry = registry
        self._overdue = Overdue()
        registry.register(self)
        registry.register(node.start_delay)

    def text(self, overdue: Overdue) -> bytes:
        """Return the metrics in Prometheus' text format. Not to be called on the event loop: it visits all tasks."""
        self._overdue = overdue
        return generate_latest(self._registry)

    def collect(self) -> Iterable[Metric]:
        """Read and yield the metrics."""
        state = self._node.state()
        yield from self._of_raft(state)
        yield from _of_state(state)
        yield from of_runs(state, self._node.ownership().first(self._node.settings.metrics_tasks))
        yield from of_overdue(self._overdue)
        yield from of_pools(state)
        yield from of_backfills(state)
        yield from of_channels(state)
        yield from of_watchdog(self._node.pinged)
        yield _gauge("rota_lease_held", "Whether this member holds a lease", int(self._node.lease_held))
        yield from of_bootstrap(self._node.bootstraps.own)
        yield from of_exports(self._node.exports)
        yield from _of_lateness(self._node.lateness, monotonic())

    def _of_raft(self, state: State) -> Iterable[Metric]:
        role = self._node.role
        yield _gauge("rota_raft_term", "Raft term", role.term)
        yield _gauge("rota_raft_is_leader", "Whether this member leads", int(role.is_leader))
        yield _gauge("rota_raft_has_leader", "Whether a leader is known", int(role.leader is not None))
        yield _gauge("rota_raft_has_quorum", "Whether a quorum is reachable", int(role.has_quorum))
        yield _gauge("rota_index", "Proposals applied", state.index)
        yield _gauge("rota_epoch", "Changes that affect placement", state.epoch)


def of_exports(counts: Sequence[ExportCount]) -> Iterable[Metric]:
    """Yield how many spans and events of lineage this member has sent and dropped; nothing if it sends none."""
    if counts:
        sent = CounterMetricFamily("rota_exports_sent", "Spans and events of lineage that were sent", labels=["what"])
        dropped = CounterMetricFamily(
            "rota_exports_dropped",
            "Spans and events of lineage that were dropped: not accepted, or without room",
            labels=["what"],
        )
        for count in counts:
            sent.add_metric([count.what], count.sent)
            dropped.add_metric([count.what], count.dropped)
        yield from (sent, dropped)


def _of_lateness(lateness: ThreadLag, now_s: float) -> Iterable[Metric]:
    for name, what, worst in (
        ("rota_loop_lateness_seconds", "How late the event loop was", lateness.loop),
        ("rota_raft_lateness_seconds", "How late Raft's thread was", lateness.raft),
        ("rota_heartbeat_lateness_seconds", "How late the heartbeat thread was", lateness.heartbeats),
        ("rota_heartbeat_answer_seconds", "How long the leader's answer to a heartbeat took", lateness.answers),
    ):
        yield _gauge(name, f"{what}, at worst, within the last minute", worst.over_a_minute(now_s))


def _of_state(state: State) -> Iterable[Metric]:
    members = GaugeMetricFamily("rota_members", "Members by status", labels=["status"])
    statuses: Counting[str] = Counting(member.status for member in state.members.values())
    for status in _STATUSES:
        members.add_metric([status], statuses[status])
    yield members
    risk = int(at_risk(state.members))
    yield _gauge("rota_majority_at_risk", "Whether members are down, and one more loss would end the quorum", risk)
    aside = sum(1 for member in state.members.values() if member.aside)
    yield _gauge("rota_members_aside", "Members that take on nothing new by their own decision", aside)
    yield _gauge("rota_tasks", "Registered tasks", len(state.tasks))
    runs = GaugeMetricFamily("rota_active_runs", "Active runs by state", labels=["state"])
    states: Counting[str] = Counting(run.state for run in state.runs.values())
    for run_state in sorted(ACTIVE):
        runs.add_metric([run_state], states[run_state])
    yield runs
    passed = CounterMetricFamily(
        "rota_occurrences_passed_over", "Occurrences that were not run, by reason", labels=["state"]
    )
    skipped = missed = late = degraded = 0
    for row in state.tasks.values():
        skipped += row.skipped
        missed += row.missed
        late += bool(row.breaches)
        degraded += bool(row.degraded)
    yield _gauge("rota_late_tasks", "Tasks with a deadline that is breached", late)
    yield _gauge("rota_degraded_tasks", "Tasks whose last success left a part undone", degraded)
    passed.add_metric(["skipped"], skipped)
    passed.add_metric(["missed"], missed)
    yield passed


def _gauge(name: str, what: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, what, value=value)


def of_runs(state: State, tasks: Sequence[str]) -> Iterable[Metric]:
    """Yield the counts of all runs, the metrics of each of these tasks, and the number of the other tasks."""
    rows = [(task, row) for task in tasks if (row := state.tasks.get(task)) is not None]
    yield _total(state)
    yield from _of_tasks(rows)
    left_out = GaugeMetricFamily(
        "rota_tasks_without_metrics", "Tasks beyond ROTA_METRICS_TASKS, which have no metrics of their own"
    )
    left_out.add_metric([], len(state.tasks) - len(rows))
    yield left_out


def of_overdue(overdue: Overdue) -> Iterable[Metric]:
    """Yield the metrics of tasks that are due and have not begun."""
    tasks = GaugeMetricFamily("rota_overdue_tasks", "Tasks with something that has been due for a second or more")
    tasks.add_metric([], overdue.tasks)
    yield tasks
    oldest = GaugeMetricFamily("rota_overdue_seconds", "How long the most overdue task has waited; 0: none is overdue")
    oldest.add_metric([], overdue.oldest_s)
    yield oldest


def _total(state: State) -> Metric:
    total = CounterMetricFamily("rota_runs", "Runs that have ended, by final state", labels=["state"])
    for ending, count in zip_longest(COUNTED, state.endings, fillvalue=0):
        total.add_metric([str(ending)], count)
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
    proven = GaugeMetricFamily(
        "rota_backup_last_proven_timestamp_seconds",
        "When a drill last proved that a backup of the task restores",
        labels=["task", "drill"],
    )
    for task, row in rows:
        late = {breach.deadline for breach in row.breaches}
        limits = deadlines_of(row.spec_packed) or Deadlines()
        for deadline in DEADLINES:
            if limits.limit_us(deadline) is not None:
                breached.add_metric([task, deadline], deadline in late)
        # Series begin at 0: a rate() would miss a first failure whose series begins at 1.
        for ending, count in zip_longest(COUNTED, row.endings, fillvalue=0):
            endings.add_metric([task, str(ending)], count)
        if (succeeded_at_us := _succeeded_at_us(row)) is not None:
            success.add_metric([task], succeeded_at_us / 1e6)
            if backed_up := _drilled(row.spec_packed):
                proven.add_metric([backed_up, task], succeeded_at_us / 1e6)
        if row.last is not None and row.last.took_us is not None:
            duration.add_metric([task], row.last.took_us / 1e6)
    return endings, success, duration, breached, proven


def _drilled(packed: bytes) -> str:
    """Return the task whose backups a task of kind `drill` restores; "" for a task of another kind."""
    if _DRILL not in packed:  # a quick test first, because most tasks are no drills
        return ""
    spec = cached_spec(packed)
    backups = spec.params.get("backups") if spec.kind == "drill" else None
    return str(backups.get("url", "")).rstrip("/").rpartition("/")[2] if isinstance(backups, dict) else ""


def _succeeded_at_us(row: TaskRow) -> int | None:
    if row.succeeded_at_us is None and row.last is not None and row.last.state == "succeeded":
        return row.last.finished_at_us  # written by a version that kept the last outcome only
    return row.succeeded_at_us


def of_channels(state: State) -> Iterable[Metric]:
    """Yield the metrics of each channel, from the replicated state."""
    told = CounterMetricFamily("rota_notices_told", "Notices that a receiver accepted", labels=["channel"])
    failed = CounterMetricFamily("rota_messages_failed", "Tries to send a message that failed", labels=["channel"])
    lost = CounterMetricFamily(
        "rota_notices_lost",
        "Notices that were not told: given up after a day, or without room",
        labels=["channel", "why"],
    )
    waiting = GaugeMetricFamily("rota_notices_waiting", "Notices that are not told yet", labels=["channel"])
    failures = GaugeMetricFamily(
        "rota_channel_failures", "Tries to send on the channel that failed in a row", labels=["channel"]
    )
    for name, row in sorted(state.channels.items()):
        told.add_metric([name], row.told)
        failed.add_metric([name], row.failed)
        lost.add_metric([name, "given-up"], row.given_up)
        lost.add_metric([name, "no-room"], row.lost)
        lost.add_metric([name, "no-room-for-success"], row.lost_successes)
        waiting.add_metric([name], len(row.notices))
        failures.add_metric([name], row.tries)
    yield from (told, failed, lost, waiting, failures)


def of_pools(state: State) -> Iterable[Metric]:
    """Yield the metrics of each pool."""
    capacity = GaugeMetricFamily("rota_pool_capacity", "How much there is of the pool", labels=["pool"])
    used = GaugeMetricFamily("rota_pool_used", "How much of the pool runs use", labels=["pool"])
    waiting = GaugeMetricFamily("rota_pool_waiting", "Tasks that wait for the pool", labels=["pool"])
    said = "When the latest run with a rate started in the pool, since the epoch; absent: none has started"
    started = GaugeMetricFamily("rota_pool_last_start_timestamp_seconds", said, labels=["pool"])
    for name, pool in sorted(state.pools.items()):
        capacity.add_metric([name], pool.capacity)
        used.add_metric([name], pool.used)
        waiting.add_metric([name], len(pool.queue))
        if pool.starts:
            started.add_metric([name], pool.starts[0].at_us / 1_000_000)
    yield from (capacity, used, waiting, started)


def of_backfills(state: State) -> Iterable[Metric]:
    """Yield the metrics of each open backfill."""
    of = ["backfill", "task"]
    left = GaugeMetricFamily("rota_backfill_left", "Occurrences of the open backfill that have not ended", labels=of)
    failed = GaugeMetricFamily("rota_backfill_failed", "Occurrences of the open backfill that failed", labels=of)
    for number, row in sorted(state.backfills.items()):
        if row.open:
            left.add_metric([str(number), row.task], max(0, row.total - row.ended))
            failed.add_metric([str(number), row.task], row.failed)
    yield from (left, failed)


def of_watchdog(last: PingView | None) -> Iterable[Metric]:
    """Yield whether the leader pings the outside watcher. `last` None: this member pings no watcher."""
    if last is not None:
        accepted = int(last.withheld is None and last.error is None)
        yield GaugeMetricFamily("rota_watchdog_pinged", "Whether the last ping was sent and accepted", accepted)


def of_bootstrap(bootstrap: Bootstrap | None) -> Iterable[Metric]:
    """Yield the metrics of this member's latest bootstrap; None: it has lacked no runs since this process started."""
    missing = GaugeMetricFamily(
        "rota_bootstrap_missing_indexes", "Log indexes whose finished runs this member lacks; 0: none"
    )
    missing.add_metric([], 0 if bootstrap is None else bootstrap.missing)
    yield missing
    runs = GaugeMetricFamily(
        "rota_bootstrap_runs", "Finished runs that a feeder sent in the latest bootstrap", labels=["feeder"]
    )
    for feeder, count in () if bootstrap is None else bootstrap.fed:
        runs.add_metric([feeder], count)
    yield runs
    took = GaugeMetricFamily("rota_bootstrap_fetching_seconds", "How long the latest bootstrap has fetched runs")
    took.add_metric([], 0 if bootstrap is None else bootstrap.fetching_s)
    yield took
