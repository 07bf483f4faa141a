"""Actions of kinds, such as previews, by the command line and by the API."""

import pytest

from testkit.cluster import Cluster
from testkit.command import Rota

pytestmark = pytest.mark.integration


def test_a_preview_runs_beside_the_task_and_counts_for_nothing(rota: Rota, cluster: Cluster) -> None:
    notes = cluster.notes()
    cluster.register("previewed", params={**notes.params, "steps": 3})
    run_id = cluster.run("previewed")
    notes.wait("beat")
    shown = rota("preview", "previewed", "--rows", "2", "--plan")
    assert shown.code == 0, shown.err
    assert shown.out.splitlines() == [
        "n (bigint)  text (string)",
        "0           step 0",
        "1           step 1",
        "... and more",
        "",
        "a plan",
    ]
    assert rota("preview", "previewed", "--param", "steps=1", "--json").json["rows"] == [[0, "step 0"]]
    assert cluster.run_of(run_id)["state"] == "running"
    assert cluster.get("/v1/tasks/previewed")["last"] is None
    assert "succeeded (preview)" in rota("runs", "previewed").out
    notes.let_go()
    assert cluster.wait_for_run(run_id)["state"] == "succeeded"
    assert cluster.get("/v1/tasks/previewed")["last"]["run_id"] == run_id


def test_an_action_that_fails_or_does_not_exist_ends_with_a_sentence(rota: Rota, cluster: Cluster) -> None:
    cluster.register("actionless")
    reset = rota("etl", "reset", "actionless", "--to", "7")
    assert reset.code == 1
    assert "tasks of this kind have no action 'reset'; they have preview, fails" in reset.out
    reply = cluster.ask("POST", "/v1/tasks/actionless/actions/fails", json={})
    run = cluster.wait_for_run(reply.json["run_id"])
    assert (run["state"], run["action"], len(run["attempts"])) == ("failed", "fails", 1)
    wrong = cluster.ask("POST", "/v1/tasks/actionless/actions/preview", json={"args": {"lines": 3}})
    assert "preview: args.lines: there is no such field" in cluster.wait_for_run(wrong.json["run_id"])["error"]
    assert cluster.ask("POST", "/v1/tasks/nobody/actions/preview", json={}).problem == "not-found"
    assert rota("preview", "nobody").code == 1
