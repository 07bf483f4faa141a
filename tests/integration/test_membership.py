"""A node lets itself in with ROTA_JOIN, works, and is let go."""

from pathlib import Path

import pytest

from node.cli.local import wait_for
from testkit.cluster import Cluster

pytestmark = pytest.mark.integration

FIRST, LATER = "node-1", "node-2"


def test_a_node_joins_a_running_cluster_works_and_is_let_go(tmp_path: Path) -> None:
    """The second of two: from the moment in which it is let in, nothing is decided without it."""
    env_of: dict[str, dict[str, str]] = {FIRST: {}, LATER: {}}
    with Cluster(tmp_path, nodes=2, env_of=env_of) as cluster:
        places = dict(one.split("=", 1) for one in cluster.members.split(","))
        env_of[FIRST]["ROTA_MEMBERS"] = f"{FIRST}={places[FIRST]}"
        env_of[LATER] |= {"ROTA_MEMBERS": f"{LATER}={places[LATER]}", "ROTA_JOIN": cluster.url(FIRST)}
        absent = {"id": LATER, "host": "127.0.0.1", "raft_port": int(places[LATER].split(":")[1]), "http_port": 1}
        cluster.start(FIRST)
        cluster.wait_until_ready(FIRST)

        alone = cluster.ask("POST", "/v1/members", FIRST, json=absent)
        assert (alone.status, "no majority" in alone.json["detail"]) == (409, True)

        cluster.start(LATER)
        cluster.wait_until_ready(LATER)
        notes = cluster.notes()
        cluster.register("work", node=FIRST, pin=LATER, params=notes.params)
        run_id = cluster.run("work", FIRST)
        notes.wait("begin")
        assert cluster.run_of(run_id, FIRST)["node"] == LATER

        assert cluster.ask("DELETE", f"/v1/members/{LATER}", FIRST).status == 204
        cluster.wait_for_attempt(run_id, 2, FIRST)
        assert cluster.run_of(run_id, FIRST)["node"] == FIRST
        wait_for("it ends by itself", lambda: cluster.exit_code(LATER) is not None)
        assert cluster.exit_code(LATER) == 0
        assert "ERROR" not in cluster.said(LATER), cluster.said(LATER)
        assert [member["id"] for member in cluster.get("/v1/members", FIRST)["items"]] == [FIRST]
        notes.let_go()
        assert cluster.wait_for_run(run_id, node=FIRST)["state"] == "succeeded"

        cluster.start(LATER)
        wait_for("it does not stay", lambda: cluster.exit_code(LATER) is not None)
        # Its folder knows that it was removed, or, if it ended before it was told, the others say so.
        assert cluster.said(LATER).count("has been removed from the cluster") >= 2


def test_a_node_with_another_secret_is_told_so(tmp_path: Path) -> None:
    env_of: dict[str, dict[str, str]] = {FIRST: {}, LATER: {}}
    with Cluster(tmp_path, nodes=2, env_of=env_of) as cluster:
        places = dict(one.split("=", 1) for one in cluster.members.split(","))
        (tmp_path / "other").write_text("another-secret-altogether")
        env_of[FIRST]["ROTA_MEMBERS"] = f"{FIRST}={places[FIRST]}"
        env_of[LATER] |= {
            "ROTA_MEMBERS": f"{LATER}={places[LATER]}",
            "ROTA_JOIN": cluster.url(FIRST),
            "ROTA_SECRET_FILE": str(tmp_path / "other"),
        }
        cluster.start(FIRST)
        cluster.wait_until_ready(FIRST)
        cluster.start(LATER)
        wait_for("it ends", lambda: cluster.exit_code(LATER) is not None)
        assert (cluster.exit_code(LATER), "has another secret" in cluster.said(LATER)) == (1, True)


@pytest.mark.more
def test_a_node_that_was_let_in_needs_the_address_of_a_member_and_after_that_not_even_that(tmp_path: Path) -> None:
    """ROTA_MEMBERS *or* ROTA_JOIN: where it is, the cluster has been told."""
    names = [FIRST, LATER, "node-3"]
    env_of: dict[str, dict[str, str]] = {name: {} for name in names}
    with Cluster(tmp_path, nodes=3, env_of=env_of) as cluster:
        places = cluster.members.split(",")
        env_of[FIRST]["ROTA_MEMBERS"] = env_of[LATER]["ROTA_MEMBERS"] = ",".join(places[:2])
        env_of["node-3"] |= {"ROTA_MEMBERS": "", "ROTA_JOIN": cluster.url(FIRST)}
        cluster.start(FIRST, LATER)
        cluster.wait_until_ready(FIRST, LATER)

        cluster.start("node-3")
        wait_for("it ends", lambda: cluster.exit_code("node-3") is not None)
        assert (cluster.exit_code("node-3"), "does not know node-3" in cluster.said("node-3")) == (1, True)

        host, raft_port, http_port = places[2].partition("=")[2].split(":")
        seed = {"id": "node-3", "host": host, "raft_port": int(raft_port), "http_port": int(http_port)}
        assert cluster.ask("POST", "/v1/members", FIRST, json=seed).status == 201
        cluster.start("node-3")
        cluster.wait_until_whole()

        cluster.stop("node-3")
        del env_of["node-3"]["ROTA_JOIN"]
        cluster.start("node-3")
        cluster.wait_until_whole()
        assert cluster.said("node-3").count("joined, incarnation") == 2
