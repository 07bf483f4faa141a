"""Metrics of this member's latest bootstrap: what it lacks of the finished runs, and who has sent how many."""

from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily, Metric

from node.peer.bootstrap import Bootstrap


def of_bootstrap(bootstrap: Bootstrap | None) -> Iterable[Metric]:
    """The metrics; `bootstrap` None: it has lacked nothing since this process started."""
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
