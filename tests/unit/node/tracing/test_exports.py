"""What is sent begins once a member is ready, and an error in deciding it ends nothing."""

import os
from collections.abc import Sequence
from dataclasses import replace

import pytest

from node.cli.local import wait_for
from node.replication.state_machine import StateChange
from node.state.claims import Claim
from node.tracing.export_thread import ExportCount
from node.tracing.exports import CannotExport, Exports, lineage_client, trace_client
from node.tracing.follower import RunFollower
from node.tracing.spans import SpanRecord
from tasks.datasets import NO_DATASETS
from tests.unit.node.state.given import NOW_US, cluster


class Taken:
    """A client that keeps what it is given."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def sampled(self, trace_id: int) -> bool:
        return trace_id % 2 == 0

    def send(self, records: Sequence[SpanRecord], /) -> None:
        self.names += [record.name for record in records]


def claimed() -> StateChange:
    """A change by which `a` claims a run."""
    history = cluster("a")
    history.put("t", schedule={"every_s": 60})
    before = history.state
    history.must(Claim(NOW_US + 60_000_000, "t", NOW_US + 60_000_000, "a", 1))
    return StateChange(before, history.state, history.last.touched)


def test_what_was_applied_before_a_member_was_ready_is_not_told() -> None:
    ready, taken, change = False, Taken(), claimed()
    told = Exports("a", taken, None, lambda run_id: None, lambda: NOW_US, lambda: ready)
    told.start()
    told.applied(change)
    told.delivered([change])
    ready = True
    # Applied before, and delivered after it was ready: the loop was late.
    later = replace(change, before=replace(change.before, index=change.after.index + 1))
    told.applied(later)
    told.delivered([change])
    told.delivered([later])
    told.close()
    assert taken.names == ["claim"]


def test_an_error_ends_nothing(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    taken, change = Taken(), claimed()
    told = Exports("a", taken, None, lambda run_id: None, lambda: NOW_US, lambda: True)
    told.start()
    told.applied(change)
    with monkeypatch.context() as patched:
        patched.setattr(RunFollower, "follow", lambda *_: 1 / 0)
        told.delivered([change])
        told.delivered([change])
    assert caplog.text.count("a bug in Rota") == 1
    told.delivered([change])
    wait_for("the next is sent", lambda: told.counts == [ExportCount("spans", 1, 0)])
    told.close()


def test_without_a_client_nothing_is_told_and_the_work_gets_no_traceparent() -> None:
    told = Exports("a", None, None, lambda run_id: None, lambda: NOW_US, lambda: True)
    told.start()
    told.applied(claimed())
    told.delivered([claimed()])
    assert (told.counts, told.traceparent("t@1", "c", 1)) == ([], "")
    told.close()
    assert (
        Exports("a", Taken(), None, lambda run_id: None, lambda: 0, lambda: True).traceparent("t@1", "c", 1)[:3]
        == "00-"
    )


def test_keys_are_in_the_environment_only_while_a_client_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:1")
    before = dict(os.environ)
    lineage_client({"OPENLINEAGE_API_KEY": "a-key"}, lambda kind, params, task: NO_DATASETS)
    trace_client("a", {"OTEL_EXPORTER_OTLP_HEADERS": "x-key=a-key"})
    assert dict(os.environ) == before
    with pytest.raises(CannotExport, match="Header format invalid"):
        trace_client("a", {"OTEL_EXPORTER_OTLP_HEADERS": "a-key"})
    assert dict(os.environ) == before
