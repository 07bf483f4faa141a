"""What becomes of occurrences, end to end: three nodes, workers, and the API."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from node.cli.local import wait_for
from testkit.cluster import Cluster
from testkit.processes import process_state

pytestmark = pytest.mark.integration

NO_WAIT = {"attempts": 3, "backoff_s": 0}


def runs_of(cluster: Cluster, task: str, *states: str) -> list[dict[str, Any]]:
    """The runs of a task, oldest first."""
    runs = cluster.all(f"/v1/tasks/{task}/runs")
    return sorted((run for run in runs if not states or run["state"] in states), key=lambda run: str(run["fire_at"]))


def wait_for_runs(cluster: Cluster, task: str, count: int, *states: str) -> list[dict[str, Any]]:
    """The runs of a task in these states, as soon as there are `count`."""

    def there() -> list[dict[str, Any]] | None:
        found = runs_of(cluster, task, *states)
        return found if len(found) >= count else None

    return wait_for(f"{count} runs of {task} are {' or '.join(states)}", there)


def test_every_occurrence_of_a_schedule_is_claimed_once(cluster: Cluster) -> None:
    """Each occurrence runs exactly once, on whichever member."""
    task = cluster.register("every", schedule={"every_s": 0.2})
    wait_for_runs(cluster, "every", 8, "succeeded")
    assert cluster.ask("POST", "/v1/tasks/every/pause", json={}).json["paused"] is True
    wait_for("the last one ends", lambda: not runs_of(cluster, "every", "claimed", "running", "waiting"))
    runs = runs_of(cluster, "every")
    begun = datetime.fromisoformat(task["registered_at"])
    interval = timedelta(seconds=0.2)
    times = [
        datetime.fromisoformat(run["fire_at"]) + number * interval for run in runs for number in range(run["count"])
    ]
    assert times == [begun + interval * number for number in range(1, len(times) + 1)]
    assert {run["trigger"] for run in runs} == {"schedule"}
    tokens = [run["token"] for run in runs if run["state"] == "succeeded"]
    assert len(set(tokens)) == len(tokens)
    told = cluster.get("/v1/tasks/every")
    for passed in ("skipped", "missed"):
        assert told[passed] == sum(run["count"] for run in runs if run["state"] == passed)


def test_a_paused_task_does_not_fall_due_and_counts_from_its_resumption(cluster: Cluster) -> None:
    cluster.register("rest", schedule={"every_s": 0.3})
    wait_for_runs(cluster, "rest", 1, "succeeded")
    paused = cluster.ask("POST", "/v1/tasks/rest/pause", json={})
    assert (paused.json["paused"], paused.json["next_fire_at"]) == (True, None)
    before = runs_of(cluster, "rest")
    cluster.register("clock", schedule={"every_s": 0.3})
    wait_for_runs(cluster, "clock", 3)
    cluster.ask("DELETE", "/v1/tasks/clock")
    assert [run["run_id"] for run in runs_of(cluster, "rest")] == [run["run_id"] for run in before]
    by_hand = cluster.wait_for_run(cluster.run("rest"))
    assert (by_hand["state"], by_hand["trigger"]) == ("succeeded", "manual")
    resumed = cluster.ask("POST", "/v1/tasks/rest/resume", json={}).json
    assert resumed["next_fire_at"] is not None
    assert resumed["missed"] == paused.json["missed"], "what would have been due while it was paused is not missed"
    wait_for_runs(cluster, "rest", len(before) + 2, "succeeded")
    cluster.ask("DELETE", "/v1/tasks/rest")


def test_a_task_that_is_due_once_runs_once(cluster: Cluster) -> None:
    at = datetime.now(UTC) + timedelta(seconds=0.5)
    task = cluster.register("due-once", schedule={"at": at.isoformat()})
    assert datetime.fromisoformat(task["next_fire_at"]) == at
    [run] = wait_for_runs(cluster, "due-once", 1, "succeeded")
    assert datetime.fromisoformat(run["fire_at"]) == at
    assert datetime.fromisoformat(run["claimed_at"]) >= at
    assert cluster.get("/v1/tasks/due-once")["next_fire_at"] is None


def test_a_failed_attempt_is_made_again_until_there_are_no_more(cluster: Cluster) -> None:
    cluster.register("retried", params={"fail_attempts": 2, "steps": 1}, retry=NO_WAIT)
    run = cluster.wait_for_run(cluster.run("retried"))
    assert (run["state"], run["attempt"], run["result"]["begun_at"]) == ("succeeded", 3, 1)
    assert [attempt["state"] for attempt in run["attempts"]] == ["failed", "failed", "succeeded"]
    assert "attempt 1 was told to fail" in run["attempts"][0]["error"]
    tokens = [attempt["token"] for attempt in run["attempts"]]
    assert tokens == sorted(set(tokens))
    cluster.register("hopeless", params={"fail_attempts": 9}, retry=NO_WAIT)
    run = cluster.wait_for_run(cluster.run("hopeless"))
    assert (run["state"], run["attempt"]) == ("failed", 3)
    assert "attempt 3 was told to fail" in run["error"]
    assert cluster.get("/v1/tasks/hopeless")["last"]["error"] == run["error"]


def test_a_run_waits_for_what_does_not_answer_and_says_so(cluster: Cluster) -> None:
    notes = cluster.notes()
    cluster.register("patient", params={"needs": notes.params["gate"]}, retry={"attempts": 1})
    run_id = cluster.run("patient")
    run = cluster.wait_for_run(run_id, "waiting")
    wait_for("its attempt has failed", lambda: (cluster.run_of(run_id)["attempts"] or [{}])[0].get("error"))
    run = cluster.run_of(run_id)
    assert (run["state"], run["attempts"][0]["state"]) == ("waiting", "failed")
    pause = datetime.fromisoformat(run["due_at"]) - datetime.fromisoformat(run["attempts"][0]["finished_at"])
    assert pause == timedelta(seconds=5)
    [told] = cluster.get("/v1/tasks/patient/owner")["standing"]
    assert told["code"] == "backing_off"
    assert "since a service that it needs does not answer: Away: " in told["detail"]
    notes.let_go()
    assert cluster.wait_for_run(run_id)["state"] == "succeeded"


def test_a_run_that_takes_too_long_ends(cluster: Cluster) -> None:
    notes = cluster.notes()
    cluster.register("slow", params=notes.params, timeout_s=0.3)
    run = cluster.wait_for_run(cluster.run("slow"))
    assert run["state"] == "timed_out"
    wait_for("its worker is gone", lambda: process_state(notes.read("begin")[0]["pid"]) in ("", "Z"))


def test_a_cancelled_run_ends_wherever_it_is(cluster: Cluster) -> None:
    notes = cluster.notes()
    cluster.register("cancelled", params=notes.params)
    run_id = cluster.run("cancelled")
    notes.wait("beat")
    asked = cluster.ask("DELETE", f"/v1/runs/{run_id}", "node-2")
    assert asked.status == 202
    run = cluster.wait_for_run(run_id)
    assert (run["state"], run["attempt"]) == ("cancelled", 1)
    assert notes.read("left"), "it was given the time to leave off"
    again = cluster.ask("DELETE", f"/v1/runs/{run_id}")
    assert (again.status, again.problem) == (409, "conflict")
    assert cluster.ask("DELETE", "/v1/runs/nobody~1").problem == "not-found"


def test_a_deleted_tasks_runs_are_cancelled_and_remembered(cluster: Cluster) -> None:
    notes = cluster.notes()
    cluster.register("deleted", params=notes.params, overlap="queue")
    running, waiting = cluster.run("deleted"), cluster.run("deleted")
    notes.wait("beat")
    assert cluster.ask("DELETE", "/v1/tasks/deleted", "node-3").status == 204
    for run_id in (running, waiting):
        assert cluster.wait_for_run(run_id)["state"] == "cancelled"
    assert cluster.ask("GET", "/v1/tasks/deleted", consistent="true").status == 404
    assert {run["run_id"] for run in runs_of(cluster, "deleted")} == {running, waiting}
    assert len(notes.read("begin")) == 1


def test_overlap_skip_skips_what_falls_due_during_a_run(cluster: Cluster) -> None:
    notes = cluster.notes()
    cluster.register("skip", params=notes.params, schedule={"every_s": 0.2}, overlap="skip")
    notes.wait("beat")
    refused = cluster.ask("POST", "/v1/tasks/skip/runs", "node-2", json={})
    assert (refused.status, refused.problem) == (409, "conflict")
    wait_for("three are skipped", lambda: cluster.get("/v1/tasks/skip")["skipped"] >= 3)
    assert len(runs_of(cluster, "skip", "running")) == 1
    cluster.ask("POST", "/v1/tasks/skip/pause", json={})
    notes.let_go()
    wait_for_runs(cluster, "skip", 1, "succeeded")
    [skipped] = runs_of(cluster, "skip", "skipped")
    assert skipped["count"] == cluster.get("/v1/tasks/skip")["skipped"]
    [run] = runs_of(cluster, "skip", "succeeded")
    assert skipped["blocked_by"] == run["run_id"]
    lasted = datetime.fromisoformat(skipped["last_fire_at"]) - datetime.fromisoformat(skipped["fire_at"])
    assert lasted == (skipped["count"] - 1) * timedelta(seconds=0.2)


def test_overlap_queue_runs_one_after_another(cluster: Cluster) -> None:
    notes = cluster.notes()
    cluster.register("queue", params=notes.params, overlap="queue")
    run_ids = [cluster.run("queue", node) for node in cluster.names]
    notes.wait("beat")
    wait_for("two wait", lambda: len(runs_of(cluster, "queue", "waiting")) == 2)
    notes.let_go()
    for run_id in run_ids:
        assert cluster.wait_for_run(run_id)["state"] == "succeeded"
    order = [note["run"] for note in notes.read() if note["what"] in ("begin", "end")]
    assert order == [run_id for run_id in run_ids for _ in ("begin", "end")]


def test_overlap_replace_ends_what_runs(cluster: Cluster) -> None:
    notes = cluster.notes()
    cluster.register("replace", params=notes.params, overlap="replace")
    first = cluster.run("replace")
    notes.wait("beat")
    second = cluster.run("replace", "node-2")
    assert cluster.wait_for_run(first)["state"] == "cancelled"
    cluster.wait_for_run(second, "running")
    notes.let_go()
    assert cluster.wait_for_run(second)["state"] == "succeeded"
    noted = [(note["run"], note["what"]) for note in notes.read() if note["what"] in ("begin", "left", "end")]
    assert noted == [(first, "begin"), (first, "left"), (second, "begin"), (second, "end")]


def test_overlap_allow_runs_side_by_side(cluster: Cluster) -> None:
    notes = cluster.notes()
    cluster.register("allow", params=notes.params, overlap="allow")
    run_ids = [cluster.run("allow") for _ in range(3)]
    wait_for("all run at once", lambda: len(runs_of(cluster, "allow", "running")) == 3)
    assert len(cluster.get("/v1/tasks/allow/owner")["running_on"]) == 3
    notes.let_go()
    for run_id in run_ids:
        assert cluster.wait_for_run(run_id)["state"] == "succeeded"


def test_a_run_by_hand_is_made_once_for_a_key_whichever_member_is_asked(cluster: Cluster) -> None:
    notes = cluster.notes()
    cluster.register("by-hand", overlap="allow")
    body = {"params": {**notes.params, "steps": 1}, "fire_at": "2026-01-02T03:04:05Z"}
    replies = [
        cluster.ask("POST", "/v1/tasks/by-hand/runs", node, json=body, headers={"Idempotency-Key": "key-1"})
        for node in (*cluster.names, *cluster.names)
    ]
    assert {reply.status for reply in replies} == {202}
    [run_id] = {reply.json["run_id"] for reply in replies}
    other = cluster.ask("POST", "/v1/tasks/by-hand/runs", json=body, headers={"Idempotency-Key": "key-2"})
    assert other.json["run_id"] != run_id
    notes.let_go()
    run = cluster.wait_for_run(run_id)
    assert (run["state"], run["result"]["steps"]) == ("succeeded", 1), "its params are those given by hand"
    assert datetime.fromisoformat(run["fire_at"]) == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    wrong = cluster.ask("POST", "/v1/tasks/by-hand/runs", json={"params": {"steps": "many"}, "colour": 1})
    assert wrong.fields.keys() == {"colour"}
    wrong = cluster.ask("POST", "/v1/tasks/by-hand/runs", json={"params": {"steps": "many"}})
    assert wrong.fields.keys() == {"params.steps"}


def test_any_member_returns_progress_and_log_of_an_active_run(cluster: Cluster) -> None:
    notes = cluster.notes()
    cluster.register("watched", params={**notes.params, "steps": 4, "says": "first line"}, pin="node-1")
    run_id = cluster.run("watched")
    notes.wait("beat")
    for node in cluster.names:
        run = wait_for("all steps are told", lambda node=node: _with_steps(cluster, run_id, node, 4))  # type: ignore[misc]
        assert (run["progress"], run["state"]) == ({"done": 4, "total": 4, "unit": "steps"}, "running")
        assert "first line" in cluster.ask("GET", f"/v1/runs/{run_id}/log", node).body.decode()
    with cluster.streaming(f"/v1/runs/{run_id}/log", "node-3", follow="true") as pieces:
        assert b"first line" in next(pieces)
        notes.let_go()
        rest = b"".join(pieces)
    assert cluster.wait_for_run(run_id)["state"] == "succeeded"
    whole = cluster.ask("GET", f"/v1/runs/{run_id}/log", "node-2").body
    assert whole.endswith(rest)
    assert cluster.ask("GET", f"/v1/runs/{run_id}/log", attempt=2).problem == "not-found"


def _with_steps(cluster: Cluster, run_id: str, node: str, steps: int) -> Any:
    run = cluster.run_of(run_id, node)
    return run if run["progress"] and run["progress"]["done"] == steps and run["checkpoint"] == steps else None


def test_events_resume_where_a_listener_disconnected(cluster: Cluster) -> None:
    notes = cluster.notes()
    with cluster.events("node-2") as events:
        cluster.register("told", params=notes.params, node="node-1")
        owner = next(event for event in events if event.name == "owner" and event.data["task"] == "told")
        assert (owner.data["from"], owner.data["to"]) == (None, cluster.owner_of("told"))
        run_id = cluster.run("told", "node-3")
        seen = next(
            event
            for event in events
            if event.name == "run" and (event.data["run_id"], event.data["state"]) == (run_id, "running")
        )
    notes.let_go()
    cluster.wait_for_run(run_id, node="node-2")
    with cluster.events("node-2", seen.id) as events:
        after = next(event for event in events if event.name == "run")
        assert (after.data["run_id"], after.data["state"]) == (run_id, "succeeded")
        cluster.ask("POST", "/v1/members/node-1/drain", json={})
        member = next(event for event in events if event.name == "member")
        assert (member.data["id"], member.data["status"]) == ("node-1", "draining")
        cluster.ask("POST", "/v1/members/node-1/undrain", json={})
    with cluster.events("node-3", seen.id) as events:
        assert next(events).name in ("reset", "run", "owner"), "another member goes on, or says that it cannot"


def test_a_continuous_run_is_handed_over_to_its_new_owner(cluster: Cluster) -> None:
    """The attempt is asked to stop, and the new owner continues the same run from its checkpoint."""
    notes = cluster.notes()
    spec: dict[str, Any] = {"params": {**notes.params, "steps": 3}, "schedule": {"continuous": True}}
    assert cluster.register("stream", pin="node-1", **spec)["sticky"] is True
    [run] = wait_for_runs(cluster, "stream", 1, "running")
    notes.wait("beat")
    assert run["node"] == "node-1"
    cluster.register("stream", pin="node-2", **spec)
    notes.wait("begin", attempt=2)
    then = cluster.wait_for_attempt(run["run_id"], 2)
    assert (then["node"], then["attempt"]) == ("node-2", 2)
    assert notes.read("left", attempt=1), "it was not asked to leave off"
    assert notes.read("begin", attempt=2)[0]["step"] == 3, "it did not go on from its checkpoint"
    assert not [note for note in notes.read(attempt=1) if note["at_us"] > notes.read(attempt=2)[0]["at_us"]]
    assert cluster.ask("DELETE", "/v1/tasks/stream").status == 204
    assert cluster.wait_for_run(run["run_id"])["state"] == "cancelled"


def test_a_secret_is_used_and_shown_nowhere_and_a_missing_one_fails_at_once(cluster: Cluster) -> None:
    (cluster.secrets_dir / "pg_password").write_text("correct horse battery")
    cluster.register("with-secret", params={"secret": {"secret": "pg_password"}}, retry=NO_WAIT)
    run = cluster.wait_for_run(cluster.run("with-secret"))
    assert run["state"] == "succeeded"
    log = cluster.ask("GET", f"/v1/runs/{run['run_id']}/log").body.decode()
    assert "the secret is" in log
    assert "correct horse" not in log
    for where in ("/v1/tasks/with-secret", f"/v1/runs/{run['run_id']}"):
        assert "correct horse" not in json.dumps(cluster.get(where))
    assert not [path for path in _files(cluster) if b"correct horse" in path.read_bytes()]

    cluster.register("without", params={"secret": {"secret": "not_there"}}, retry={"attempts": 5, "backoff_s": 60})
    run = cluster.wait_for_run(cluster.run("without"))
    assert (run["state"], run["attempt"]) == ("failed", 1), "another try finds no secret either"
    assert "not_there" in run["error"]
    assert str(cluster.secrets_dir) in run["error"], "it says where it was looked for"


def _files(cluster: Cluster) -> list[Path]:
    return [path for name in cluster.names for path in (cluster.folder / name).rglob("*") if path.is_file()]


def test_a_command_runs_where_it_is_allowed(cluster: Cluster) -> None:
    argv = ["sh", "-c", "echo said $WHAT; echo $ROTA_SECRET$ROTA_TOKEN$ROTA_SECRET_FILE; exit $CODE"]
    params = {"argv": argv, "env": {"WHAT": "this", "CODE": "0"}}
    cluster.register("command", kind="command", params=params, pin="node-3")
    told = cluster.get("/v1/tasks/command/owner")
    assert told["because"][0] == {"node": "node-3", "verdict": "kind"}
    assert told["owner"] in ("node-1", "node-2")
    run = cluster.wait_for_run(cluster.run("command"))
    assert (run["state"], run["result"], run["node"]) == ("succeeded", {"exit_code": 0}, told["owner"])
    log = cluster.ask("GET", f"/v1/runs/{run['run_id']}/log", "node-3").body.decode()
    assert "said this\n\n" in log, "it has the node's own secrets"
    failing = cluster.run("command", params={**params, "env": {"WHAT": "that", "CODE": "3"}})
    first = wait_for("the first attempt has failed", lambda: _first_failure(cluster, failing))
    assert "ended with exit code 3" in first["error"]
    owner = told["owner"]
    standing = cluster.get("/v1/tasks/command/owner", *cluster.others(owner)[:1])["standing"]
    assert [one["code"] for one in standing] == ["backing_off"]
    line = "command: attempt 1 on {} failed: CommandFailed: 'sh' ended with exit code 3; tried again in 10 s (run {})"
    wait_for("it is in the log", lambda: line.format(owner, failing) in cluster.said(owner))
    assert not [name for name in cluster.others(owner) if failing in cluster.said(name)], (
        "of the node that ran it alone"
    )
    assert cluster.ask("DELETE", f"/v1/runs/{failing}").status == 202
    assert cluster.wait_for_run(failing)["state"] == "cancelled"


def _first_failure(cluster: Cluster, run_id: str) -> Any:
    run = cluster.run_of(run_id)
    return run["attempts"][0] if run["state"] == "waiting" and run["attempts"] else None


def test_a_task_that_no_member_may_run_says_why(cluster: Cluster) -> None:
    cluster.register("on-tape", group={"disk": "tape"})
    told = cluster.get("/v1/tasks/on-tape/owner", "node-2")
    assert told["owner"] is None
    assert {step["verdict"] for step in told["because"]} == {"group"}
    run_id = cluster.run("on-tape")
    assert cluster.get("/v1/tasks/on-tape/owner")["waiting"] is not None
    cluster.register("on-tape", group={"disk": "ssd"})
    cluster.ask("DELETE", f"/v1/runs/{run_id}")


def test_metrics_count_the_runs(cluster: Cluster) -> None:
    cluster.register("counted", pin="node-1")
    cluster.wait_for_run(cluster.run("counted"), node="node-1")
    text = cluster.ask("GET", "/metrics", "node-1").body.decode()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    names = {line.partition("{")[0].partition(" ")[0] for line in lines}
    assert all(name.startswith(("rota_", "process_", "python_")) for name in names), names
    assert len([name for name in names if name.startswith("rota_")]) > 10
