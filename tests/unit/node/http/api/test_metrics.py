"""Metrics that are read from the state alone."""

from dataclasses import replace

from prometheus_client.core import Metric

from node.http.api.metrics import of_exports, of_runs
from node.tracing.export_thread import ExportCount
from tests.unit.node.duty.given import NOW, S, task, world


def test_when_a_drill_last_proved_a_backup() -> None:
    drill = task("orders-drill", kind="drill", params={"backups": {"url": "s3://backups/rota/orders/"}})
    proven = replace(drill, succeeded_at_us=NOW + 5 * S)
    never = task("drill-never", kind="drill", params={"backups": {"url": "/to/other"}})
    other = replace(task("drill", params={"backups": {"url": "/to/other"}}), succeeded_at_us=NOW)
    found = of_runs(world(proven, never, other), ["orders-drill", "drill-never", "drill"])
    (metric,) = (one for one in found if one.name == "rota_backup_last_proven_timestamp_seconds")
    assert isinstance(metric, Metric)
    assert [(sample.labels, sample.value) for sample in metric.samples] == [
        ({"task": "orders", "drill": "orders-drill"}, (NOW + 5 * S) / 1e6)
    ]


def test_what_is_sent_elsewhere_is_counted_and_nothing_if_nothing_is_sent() -> None:
    assert list(of_exports([])) == []
    sent, dropped = of_exports([ExportCount("spans", 3, 1)])
    assert [(sample.labels, sample.value) for sample in sent.samples] == [({"what": "spans"}, 3)]
    assert [(sample.labels, sample.value) for sample in dropped.samples] == [({"what": "spans"}, 1)]
