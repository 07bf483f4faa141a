"""Two of three are lost for good: the third becomes a new cluster, the others join it (docs/how-to/recover.md)."""

from pathlib import Path

import pytest

from node.cli.local import wait_for
from testkit.cluster import Cluster
from testkit.command import Rota
from tests.chaos.test_failover import STEPS, assert_finished_once, underway

pytestmark = pytest.mark.chaos

LEFT, BACK, GONE = "node-1", "node-2", "node-3"


@pytest.mark.more
def test_the_survivor_recovers_alone_and_lost_members_join_again_empty(tmp_path: Path) -> None:
    env_of: dict[str, dict[str, str]] = {LEFT: {}, BACK: {}, GONE: {}}
    with Cluster(tmp_path, env_of=env_of) as cluster:
        cluster.start()
        cluster.wait_until_whole()
        rota = Rota(cluster.url(LEFT))
        recover = ("cluster", "recover", "--data", str(cluster.folder / LEFT))
        done = cluster.notes()
        done.let_go()
        cluster.ask("POST", "/v1/tasks", json=[{"name": f"t-{n}", "kind": "probe"} for n in range(20)])
        cluster.register("done", params=done.params)
        over = cluster.wait_for_run(cluster.run("done"))
        lost = underway(cluster, "under-way", GONE)
        tasks = {task["name"]: task for task in cluster.all("/v1/tasks", LEFT)}
        old = cluster.get("/v1/cluster")["id"]

        for name in (BACK, GONE):
            cluster.kill(name)
        cluster.lose_folder(GONE)
        busy = rota(*recover, "--yes")
        assert (busy.code, "in use by a node that runs" in busy.err) == (1, True)
        cluster.kill(LEFT)
        asked = rota(*recover)
        assert (asked.code, f"without {BACK}, {GONE}" in asked.out) == (2, True), asked
        told = rota(*recover, "--yes")
        assert (told.code, f"{BACK}, {GONE}" in told.out) == (0, True), told

        cluster.restart(LEFT)
        new = cluster.get("/v1/cluster", LEFT)
        assert [member["id"] for member in new["members"]] == [LEFT]
        assert new["id"] != old
        assert {task["name"] for task in cluster.all("/v1/tasks", LEFT)} == tasks.keys()
        assert cluster.run_of(over["run_id"], LEFT) == over
        run = cluster.wait_for_attempt(lost.run_id, 2, LEFT)
        assert run["node"] == LEFT
        assert run["token"] > lost.token + 1_000_000
        assert lost.notes.wait("begin", attempt=2)["step"] == STEPS

        cluster.start(BACK)
        refusal = f"node-2 belongs to cluster {old}, this node to cluster {new['id']}"
        wait_for("it is refused by name", lambda: refusal in cluster.said(LEFT))
        wait_for("and told so", lambda: f"node-1 belongs to cluster {new['id']}" in cluster.said(BACK))
        assert cluster.ask("GET", "/readyz", BACK, fresh=False).status == 503
        assert [member["id"] for member in cluster.get("/v1/members", LEFT)["items"]] == [LEFT]
        cluster.kill(BACK)
        cluster.lose_folder(BACK)

        for name in (BACK, GONE):
            env_of[name]["ROTA_JOIN"] = cluster.url(LEFT)
            cluster.restart(name)
        cluster.wait_until_whole()
        now = {task["name"]: task["owner"] for task in cluster.all("/v1/tasks", GONE)}
        assert now == {name: task["owner"] for name, task in tasks.items()}, "each node runs its own tasks again"
        assert_finished_once(cluster, lost)
        assert cluster.run_of(over["run_id"], GONE) == over
        assert cluster.get("/v1/cluster", GONE)["id"] == new["id"]
        cluster.check()
        cluster.stop()
        cluster.mend()
        cluster.check()
