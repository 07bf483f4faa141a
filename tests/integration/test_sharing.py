"""Where work begins on real nodes: with members that have places for it, and what it needs."""

from collections import Counter
from pathlib import Path

import pytest

from node.cli.local import wait_for
from testkit.cluster import Cluster

pytestmark = [pytest.mark.integration, pytest.mark.more]


def _running(cluster: Cluster) -> Counter[str]:
    return Counter(run["node"] for run in cluster.get("/v1/runs", state="running")["items"])


def test_what_one_member_has_no_place_for_begins_on_the_others(tmp_path: Path) -> None:
    with Cluster(tmp_path, 3, env={"ROTA_MAX_RUNS": "2"}) as cluster:
        cluster.start()
        cluster.wait_until_whole()
        wait_for("places told", lambda: all(one["max_runs"] == 2 for one in cluster.get("/v1/members")["items"]), 20)
        # Without limits on load a task's name alone decides who owns it: here all are node-1's.
        assert cluster.ask("PATCH", "/v1/settings", json={"balance_slack": None}).status == 200
        mine: list[str] = []
        number = 0
        while len(mine) < 7:
            name, number = f"due-{number}", number + 1
            cluster.register(name, "command", params={"argv": ["sleep", "600"]}, retry={"attempts": 1})
            if cluster.get(f"/v1/tasks/{name}/owner")["owner"] == "node-1":
                mine.append(name)
        for name in mine:
            cluster.run(name)
        wait_for("all places taken", lambda: _running(cluster) == dict.fromkeys(cluster.names, 2) or None, 30)
        [waits] = cluster.get("/v1/runs", state="waiting")["items"]
        why = cluster.get(f"/v1/tasks/{waits['task']}/why")
        assert (why["code"], why["member"]) == ("max_runs", "node-1"), why
        # The last one begins where a place becomes free.
        ends = next(run for run in cluster.get("/v1/runs", state="running")["items"] if run["node"] == "node-3")
        assert cluster.ask("DELETE", f"/v1/runs/{ends['run_id']}").status < 300
        cluster.wait_for_run(ends["run_id"], "cancelled")
        wait_for("the last one", lambda: cluster.get(f"/v1/runs/{waits['run_id']}")["node"] == "node-3" or None, 30)


def test_a_member_declines_what_it_lacks_a_secret_for(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    lacks = {"ROTA_SECRETS_DIR": str(tmp_path / "none")}
    with Cluster(tmp_path / "cluster", 3, env={"ROTA_MAX_RUNS": "1"}, env_of={"node-3": lacks}) as cluster:
        cluster.start()
        cluster.wait_until_whole()
        wait_for("places told", lambda: all(one["max_runs"] == 1 for one in cluster.get("/v1/members")["items"]), 20)
        (cluster.secrets_dir / "key").write_text("a value")
        assert cluster.ask("PATCH", "/v1/settings", json={"balance_slack": None}).status == 200
        names: list[str] = []
        number = 0
        while len(names) < 3:
            name, number = f"secret-{number}", number + 1
            params = {"argv": ["sleep", "600"], "env": {"KEY": {"secret": "key"}}}
            cluster.register(name, "command", params=params, retry={"attempts": 1})
            if cluster.get(f"/v1/tasks/{name}/owner")["owner"] == "node-1":
                names.append(name)
        for name in names:
            cluster.run(name)
        wait_for("both places", lambda: _running(cluster) == {"node-1": 1, "node-2": 1} or None, 30)
        [waits] = cluster.get("/v1/runs", state="waiting")["items"]
        wait_for("its offer", lambda: cluster.get(f"/v1/runs/{waits['run_id']}")["offered"] == "node-3" or None, 30)
        log = cluster.log_file("node-3")
        wait_for("its refusal", lambda: f"{waits['run_id']}: declined here" in log.read_text() or None, 30)
        assert not cluster.get("/v1/runs", state="failed")["items"]
