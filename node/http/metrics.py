"""/metrics: metrics of this member, and of the cluster as this member sees it."""

from collections import Counter as Counting
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic, perf_counter

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from node.duty.overdue import Overdue
from node.http.bootstrap_metrics import of_bootstrap
from node.http.channel_metrics import of_channels, of_watchdog
from node.http.node_port import NodePort
from node.http.run_metrics import of_overdue, of_runs
from node.state.majority import at_risk
from node.state.value import State
from node.telemetry.thread_lag import ThreadLag
from tasks.definition.run import ACTIVE

_STATUSES = ("up", "down", "draining")
_BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)


@dataclass(slots=True)
class ProposalOutcome:
    """The result code of a proposal; set before the block ends."""

    code: str = "failed"


class Metrics:
    """Counts this member's HTTP requests and proposals, and reads all other metrics from the node at each scrape."""

    def __init__(self, node: NodePort) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._of_node = _OfNode(node)
        self._registry.register(self._of_node)
        self._registry.register(node.start_delay)
        self._requests = Histogram(
            "rota_http_request_seconds",
            "Time to answer a request (without streams)",
            ["method", "path", "status"],
            buckets=_BUCKETS_S,
            registry=self._registry,
        )
        self._proposals = Counter(
            "rota_http_proposals", "Entries proposed for clients", ["entry", "code"], registry=self._registry
        )
        self._commit = Histogram(
            "rota_http_proposal_seconds",
            "Time until a proposal had a result",
            buckets=_BUCKETS_S,
            registry=self._registry,
        )
        self._sent_runs = Counter(
            "rota_bootstrap_sent_runs",
            "Finished runs sent to a member that lacked them",
            ["member"],
            registry=self._registry,
        )

    def request(self, method: str, path: str, status: int, took_s: float) -> None:
        """A request has been answered. `path` is the route's, with its braces."""
        self._requests.labels(method, path, str(status)).observe(took_s)

    def sent_runs(self, member: str, runs: int) -> None:
        """Finished runs were sent to a member that lacks them."""
        self._sent_runs.labels(member).inc(runs)

    @contextmanager
    def proposal(self, entry: str) -> Iterator[ProposalOutcome]:
        """Count and time the proposal that is made in the block."""
        outcome, begun = ProposalOutcome(), perf_counter()
        try:
            yield outcome
        finally:
            self._proposals.labels(entry, outcome.code).inc()
            self._commit.observe(perf_counter() - begun)

    def text(self, overdue: Overdue) -> bytes:
        """The metrics in Prometheus' text format. It visits all tasks: not to be called on the event loop."""
        self._of_node.overdue = overdue
        return generate_latest(self._registry)


class _OfNode:
    """The metrics that are read from the node at each scrape."""

    def __init__(self, node: NodePort) -> None:
        self._node = node
        self.overdue = Overdue()

    def collect(self) -> Iterable[Metric]:
        state = self._node.state()
        yield from self._of_raft(state)
        yield from _of_state(state)
        yield from of_runs(state, self._node.ownership().first(self._node.facts.metrics_tasks))
        yield from of_overdue(self.overdue)
        yield from of_channels(state)
        yield from of_watchdog(self._node.pinged)
        yield _gauge("rota_lease_held", "Whether this member holds a lease", int(self._node.lease_held))
        yield from of_bootstrap(self._node.bootstraps.own)
        yield from _of_lateness(self._node.lateness, monotonic())

    def _of_raft(self, state: State) -> Iterable[Metric]:
        role = self._node.role
        yield _gauge("rota_raft_term", "Raft term", role.term)
        yield _gauge("rota_raft_is_leader", "Whether this member leads", int(role.is_leader))
        yield _gauge("rota_raft_has_leader", "Whether a leader is known", int(role.leader is not None))
        yield _gauge("rota_raft_has_quorum", "Whether a quorum is reachable", int(role.has_quorum))
        yield _gauge("rota_index", "Proposals applied", state.index)
        yield _gauge("rota_epoch", "Changes that affect placement", state.epoch)


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
    skipped = missed = late = 0
    for row in state.tasks.values():
        skipped += row.skipped
        missed += row.missed
        late += bool(row.breaches)
    yield _gauge("rota_late_tasks", "Tasks with a deadline that is breached", late)
    passed.add_metric(["skipped"], skipped)
    passed.add_metric(["missed"], missed)
    yield passed


def _gauge(name: str, what: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, what, value=value)
