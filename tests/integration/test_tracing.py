"""Traces and lineage of runs on real nodes, as a collector gets them."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from node.cli.local import wait_for
from testkit.cluster import Cluster
from testkit.servers.collector import Collector, SpanTaken, collector, silent_listener

pytestmark = pytest.mark.integration

KEY = "a-key-that-nobody-else-may-see"


def exporting(url: str) -> dict[str, str]:
    return {
        "ROTA_TRACES": "1",
        "OTEL_EXPORTER_OTLP_ENDPOINT": url,
        "OTEL_EXPORTER_OTLP_HEADERS": f"x-api-key={KEY}",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
        "ROTA_LINEAGE": "1",
        "OPENLINEAGE_URL": url,
        "OPENLINEAGE_API_KEY": KEY,
        "ROTA_ALLOW_COMMAND": "1",
    }


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Collector]]:
    with collector() as found, Cluster(tmp_path_factory.mktemp("traced"), env=exporting(found.url)) as cluster:
        cluster.start()
        cluster.wait_until_whole()
        yield cluster, found


def trace_of(found: Collector, run_id: str, *names: str) -> list[SpanTaken]:
    """The spans of a run, once its root and spans with these names are there."""

    def there() -> list[SpanTaken] | None:
        spans = found.of_run(run_id)
        return spans if {"finish", *names} <= {span.name for span in spans} else None

    return wait_for(f"the trace of {run_id}", there)


def events_of(found: Collector, task: str, *types: str) -> list[dict[str, Any]]:
    """The events of a task, once there is one of each of these types."""

    def there() -> list[dict[str, Any]] | None:
        events = [event for event in list(found.events) if event["job"]["name"] == task]
        return events if set(types) <= {event["eventType"] for event in events} else None

    return wait_for(f"events of {task}: {types}", there)


def named(spans: list[SpanTaken], name: str) -> SpanTaken:
    [span] = [span for span in spans if span.name == name]
    return span


def test_a_run_is_one_trace_from_due_to_end(collected: tuple[Cluster, Collector]) -> None:
    cluster, found = collected
    notes = cluster.notes()
    notes.let_go()
    cluster.register("traced", params={**notes.params, "steps": 2}, pin="node-2")
    run = cluster.wait_for_run(cluster.run("traced"), "succeeded")
    spans = trace_of(found, run["run_id"], "attempt")
    root = named(spans, "run traced")
    assert (root.parent_id, root.error) == ("", None)
    assert root.attributes["rota.state"] == "succeeded"
    assert root.attributes["rota.kind"] == "probe"
    assert root.resource["service.name"] == "rota"
    assert root.resource["service.instance.id"] == "node-2"
    assert root.resource["deployment.environment.name"] == "test"
    attempt = named(spans, "attempt")
    assert attempt.parent_id == root.span_id
    assert attempt.attributes["rota.node"] == "node-2"
    for name in ("claim", "launch"):
        assert named(spans, name).parent_id == attempt.span_id
    for name in ("wait", "finish"):
        assert named(spans, name).parent_id == root.span_id
    assert all(root.start_ns <= span.start_ns <= span.end_ns <= root.end_ns for span in spans)
    assert len({span.span_id for span in spans}) == len(spans)
    assert all(headers["x-api-key"] == KEY for headers in found.headers if "x-api-key" in headers)


def test_a_failed_attempt_has_its_error_and_the_retry_joins_the_trace(collected: tuple[Cluster, Collector]) -> None:
    cluster, found = collected
    notes = cluster.notes()
    notes.let_go()
    retry = {"attempts": 2, "backoff_s": 0.1}
    cluster.register("retried", params={**notes.params, "fail_attempts": 1}, retry=retry)
    run = cluster.wait_for_run(cluster.run("retried"), "succeeded")
    spans = trace_of(found, run["run_id"], "wait for a retry")
    first, second = [span for span in spans if span.name == "attempt"]
    assert first.error == run["attempts"][0]["error"]
    assert (first.attributes["error.type"], second.error) == ("failed", None)
    assert [event["eventType"] for event in events_of(found, "retried", "COMPLETE")] == ["START", "RUNNING", "COMPLETE"]


def test_a_command_can_go_on_with_the_trace_and_gets_no_key(collected: tuple[Cluster, Collector]) -> None:
    cluster, found = collected
    cluster.register("shell", "command", params={"argv": ["sh", "-c", "env; exit 3"]}, retry={"attempts": 1})
    run = cluster.wait_for_run(cluster.run("shell"), "failed")
    spans = trace_of(found, run["run_id"], "attempt")
    root, attempt = named(spans, "run shell"), named(spans, "attempt")
    log = cluster.ask("GET", f"/v1/runs/{run['run_id']}/log", run["attempts"][0]["node"]).body.decode()
    assert f"TRACEPARENT=00-{root.trace_id}-{attempt.span_id}-01" in log.splitlines()
    assert KEY not in log
    assert root.error == run["error"]
    assert attempt.error == run["error"]
    failed = events_of(found, "shell", "FAIL")[-1]
    assert failed["run"]["facets"]["errorMessage"]["message"] == run["error"]


def test_events_of_a_backup_name_what_it_reads_and_writes(collected: tuple[Cluster, Collector], tmp_path: Path) -> None:
    cluster, found = collected
    (tmp_path / "data").mkdir()
    (tmp_path / "data/file").write_text("content")
    source = {"type": "folder", "path": str(tmp_path / "data"), "shared": True}
    params = {"source": source, "destination": str(tmp_path / "backups")}
    cluster.register("saved", "backup", params=params)
    cluster.register("later", params={}, after=["saved"])
    run = cluster.wait_for_run(cluster.run("saved", downstream=True), "succeeded")
    started, completed = events_of(found, "saved", "START", "COMPLETE")
    assert started["run"]["runId"] == completed["run"]["runId"]
    assert started["job"]["namespace"].startswith("rota.")
    assert [(each["namespace"], each["name"]) for each in completed["inputs"]] == [("file", str(tmp_path / "data"))]
    [written] = completed["outputs"]
    assert (written["namespace"], written["name"]) == ("file", str(tmp_path / "backups/saved"))
    after = events_of(found, "later", "START", "COMPLETE")[0]["run"]["facets"]
    assert after["parent"]["run"]["runId"] == started["run"]["runId"]
    assert after["parent"]["job"] == {"namespace": started["job"]["namespace"], "name": "saved"}
    [child] = cluster.all("/v1/runs", task="later")
    spans = trace_of(found, child["run_id"], "claim")
    saved = named(trace_of(found, run["run_id"]), "run saved")
    for name in ("claim", "run later"):
        assert named(spans, name).links == ((saved.trace_id, saved.span_id),)


@pytest.mark.more
def test_a_killed_owners_run_is_one_trace_with_two_attempts_and_one_root(
    collected: tuple[Cluster, Collector],
) -> None:
    cluster, found = collected
    owner = next(name for name in cluster.names if name != cluster.wait_for_leader())
    notes = cluster.notes()
    notes.let_go()
    cluster.register("before", params={**notes.params}, pin=owner)
    trace_of(found, cluster.wait_for_run(cluster.run("before"), "succeeded")["run_id"], "attempt")
    notes = cluster.notes()
    cluster.register("killed", params={**notes.params, "steps": 1}, pin=owner)
    run_id = cluster.run("killed")
    notes.wait("beat")
    cluster.kill(owner)
    other = cluster.others(owner)[0]
    cluster.wait_for_attempt(run_id, 2, other)
    notes.let_go()
    run = cluster.wait_for_run(run_id, "succeeded", node=other)
    spans = trace_of(found, run_id, "wait after a loss")
    assert [span.name for span in spans].count("run killed") == 1
    lost, ended = [span for span in spans if span.name == "attempt"]
    assert lost.attributes["rota.node"] == owner
    assert lost.error == f"{owner} was lost"
    assert (ended.attributes["rota.node"], ended.error) == (run["attempts"][1]["node"], None)
    assert {span.trace_id for span in spans} == {named(spans, "run killed").trace_id}
    kinds = [event["eventType"] for event in events_of(found, "killed", "COMPLETE")]
    assert kinds == ["START", "RUNNING", "COMPLETE"]
    before = len(found.spans)
    cluster.restart(owner)  # which applies its log again, and must tell nothing of it again
    notes = cluster.notes()
    notes.let_go()
    cluster.register("afterwards", params={**notes.params}, pin=owner)
    trace_of(found, cluster.wait_for_run(cluster.run("afterwards"), "succeeded")["run_id"], "attempt")
    names = [span.name for span in found.spans[before:] if span.name.startswith("run ")]
    assert names == ["run afterwards"]


def test_what_is_sent_is_counted_and_nothing_secret_is_logged(collected: tuple[Cluster, Collector]) -> None:
    cluster, found = collected
    metrics = cluster.ask("GET", "/metrics").body.decode()
    assert 'rota_exports_dropped_total{what="spans"} 0.0' in metrics
    assert 'rota_exports_sent_total{what="lineage"}' in metrics
    for name in cluster.names:
        assert KEY not in cluster.said(name)
        assert KEY.encode() not in Path(f"/proc/{cluster.pid(name)}/environ").read_bytes()
    assert KEY not in json.dumps(found.events)


def test_what_a_collector_refuses_is_counted_and_said_once(collected: tuple[Cluster, Collector]) -> None:
    cluster, found = collected
    notes = cluster.notes()
    notes.let_go()
    cluster.register("refused", params={**notes.params}, pin="node-1")
    found.refuses = 400
    try:
        cluster.wait_for_run(cluster.run("refused"), "succeeded")

        def counted() -> bool:
            lines = cluster.ask("GET", "/metrics", "node-1").body.decode().splitlines()
            dropped = [line for line in lines if line.startswith("rota_exports_dropped_total")]
            return len(dropped) == 2 and not any(line.endswith(" 0.0") for line in dropped)

        wait_for("both are counted", counted)
    finally:
        found.refuses = None
    run_id = cluster.run("refused")
    trace_of(found, run_id, "attempt")
    wait_for("it is said that it is over", lambda: "spans are sent again" in cluster.said("node-1"))
    events_of(found, "refused", "COMPLETE")
    for what in ("spans", "lineage"):
        said = [line for line in cluster.said("node-1").splitlines() if f"{what} are dropped" in line]
        assert len(said) == 1
        assert "400" in said[0]


@pytest.mark.more
def test_a_collector_that_never_answers_costs_a_run_nothing(tmp_path: Path) -> None:
    with silent_listener() as url:
        env = exporting(url) | {
            # Longer than anything below waits: whatever waited for the collector would not end.
            "OTEL_EXPORTER_OTLP_TIMEOUT": "600",
            "OPENLINEAGE__TRANSPORT__TYPE": "http",
            "OPENLINEAGE__TRANSPORT__URL": url,
            "OPENLINEAGE__TRANSPORT__TIMEOUT": "600",
        }
        with Cluster(tmp_path, nodes=1, env=env) as cluster:
            cluster.start()
            cluster.wait_until_whole()
            notes = cluster.notes()
            notes.let_go()
            cluster.register("traced", params={**notes.params, "steps": 3}, overlap="allow")
            for _ in range(10):
                cluster.wait_for_run(cluster.run("traced"), "succeeded")
            metrics = cluster.ask("GET", "/metrics").body.decode()
            assert 'rota_exports_sent_total{what="spans"} 0.0' in metrics
            assert 'rota_exports_sent_total{what="lineage"} 0.0' in metrics
            cluster.stop()
            assert "could not be sent before this node stopped" in cluster.said("node-1")


@pytest.mark.parametrize(
    ("env", "said"),
    [
        (
            {"ROTA_TRACES": "1", "OTEL_EXPORTER_OTLP_TIMEOUT": "soon"},
            "ROTA_TRACES=1, and a variable of OpenTelemetry (OTEL_*) is wrong: ",
        ),
        (
            {"ROTA_TRACES": "1", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL=grpc: spans are sent by http/protobuf only",
        ),
        (
            {"ROTA_TRACES": "1", "OTEL_EXPORTER_OTLP_HEADERS": KEY},
            "ROTA_TRACES=1, and a variable of OpenTelemetry (OTEL_*) is wrong: Header format invalid",
        ),
        ({"ROTA_LINEAGE": "1"}, "ROTA_LINEAGE=1, and nothing says where events go: set OPENLINEAGE_URL"),
        ({"ROTA_LINEAGE": "1", "OPENLINEAGE_URL": "nowhere"}, "ROTA_LINEAGE=1, and a variable of OpenLineage is wrong"),
        ({"ROTA_TRACES": "maybe"}, "ROTA_TRACES='maybe': must be 1 or 0"),
    ],
)
def test_a_node_that_cannot_send_does_not_start_and_says_what_to_do(
    tmp_path: Path, env: dict[str, str], said: str
) -> None:
    with Cluster(tmp_path, nodes=1, env=env) as cluster:
        cluster.start()
        wait_for("the node has ended", lambda: cluster.exit_code("node-1") is not None)
        assert cluster.exit_code("node-1") in (1, 2)
        assert said in cluster.said("node-1")
        assert "Traceback" not in cluster.said("node-1")
        assert KEY not in cluster.said("node-1")


def test_a_node_without_the_extras_says_how_to_install_them(tmp_path: Path) -> None:
    for package in ("opentelemetry", "openlineage"):
        (tmp_path / "without" / package).mkdir(parents=True)
        (tmp_path / "without" / package / "__init__.py").write_text(f"raise ImportError('no {package}')\n")
    for setting, extra in (("ROTA_TRACES", "otel"), ("ROTA_LINEAGE", "lineage")):
        (tmp_path / extra).mkdir()
        with Cluster(tmp_path / extra, nodes=1) as cluster:
            path = os.pathsep.join((str(tmp_path / "without"), cluster.environment("node-1")["PYTHONPATH"]))
        with Cluster(tmp_path / extra, nodes=1, env={setting: "1", "PYTHONPATH": path}) as cluster:
            cluster.start()
            wait_for("the node has ended", lambda: not cluster.running())
            assert f"the extra `{extra}` is not installed here" in cluster.said("node-1")
            assert f"pip install 'rota[{extra}]'" in cluster.said("node-1")
