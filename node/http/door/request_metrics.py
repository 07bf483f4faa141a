"""Counts and times of HTTP requests, for /metrics."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

from prometheus_client import CollectorRegistry, Counter, Histogram

_BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)


@dataclass(slots=True)
class ProposalOutcome:
    """The result code of a proposal, set within the block of `RequestMetrics.proposal`."""

    code: str = "failed"


class RequestMetrics:
    """Counts and times this member's HTTP requests, and the proposals made for them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Histogram(
            "rota_http_request_seconds",
            "Time to answer a request (without streams)",
            ["method", "path", "status"],
            buckets=_BUCKETS_S,
            registry=registry,
        )
        self._proposals = Counter(
            "rota_http_proposals", "Entries proposed for clients", ["entry", "code"], registry=registry
        )
        self._commit = Histogram(
            "rota_http_proposal_seconds",
            "Time until a proposal had a result",
            buckets=_BUCKETS_S,
            registry=registry,
        )
        self._sent_runs = Counter(
            "rota_bootstrap_sent_runs",
            "Finished runs sent to a member that lacked them",
            ["member"],
            registry=registry,
        )

    def request(self, method: str, path: str, status: int, took_s: float) -> None:
        """Count an answered request and its time. `path` is the route's, with its braces."""
        self._requests.labels(method, path, str(status)).observe(took_s)

    def sent_runs(self, member: str, runs: int) -> None:
        """Count finished runs that were sent to `member`, which lacked them."""
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
