"""Members that fetch finished runs, over HTTP: what one tells another, and what any of them answers."""

import pytest

from node.history.feeders import feeders
from node.peer.bootstrap import begin, fed_by, finished_bootstrap, with_portion
from node.peer.client import PeerClient
from node.peer.portions import Gap, Portion
from node.peer.protocol import PeerAway
from testkit.http.fake_node import SECRET
from testkit.http.http_cluster import on_loop, servers

pytestmark = pytest.mark.integration

MEMBERS = ("node-1", "node-2", "node-3")
TOLD = with_portion(fed_by(begin("node-2", [Gap(0, 200)], 5), "node-3"), Portion(0, 50, ((7, b"run"),)), 0.25)


@on_loop
async def test_a_member_tells_another_how_far_it_is_and_that_one_shows_it() -> None:
    async with servers(MEMBERS) as served:
        peers = PeerClient(SECRET, served.node.state, me="node-2")
        try:
            await peers.tell_bootstrap("node-1", TOLD, 1)
            [member] = [one for one in (await served.get("/v1/members")).json["items"] if one["id"] == "node-2"]
            assert (member["bootstrap"]["feeder"], member["bootstrap"]["runs"]) == ("node-3", 1)
            assert member["bootstrap"]["progress"] == {"done": 50, "total": 200, "unit": "indexes"}
            shown = {one["id"]: one["bootstrap"] for one in (await served.get("/v1/cluster")).json["members"]}
            assert shown == {"node-1": None, "node-2": member["bootstrap"], "node-3": None}
            elsewhere = (await served.get("/v1/members", node="node-3")).json["items"]
            assert [one["bootstrap"] for one in elsewhere] == [None] * 3, "nobody has told it"

            await peers.tell_bootstrap("node-1", finished_bootstrap(TOLD, 6), 1)
            assert [one["bootstrap"] for one in (await served.get("/v1/members")).json["items"]] == [None] * 3
            listed = (await served.get("/v1/bootstraps")).json["items"]
            assert [one["task"] for one in listed] == [f"bootstrap/{member}" for member in MEMBERS]
            assert [one["latest"] and one["latest"]["fed"] for one in listed] == [None, {"node-3": 1}, None]

            with pytest.raises(PeerAway, match="404"):
                await peers.tell_bootstrap("node-1", begin("node-9", [], 5), 1)
        finally:
            await peers.close()


@on_loop
async def test_the_owner_of_a_bootstrap_is_asked_for_like_that_of_a_task() -> None:
    async with servers(MEMBERS) as served:
        first, second = feeders(served.node.state().seats(), "node-2")
        for path in ("/v1/tasks/bootstrap/node-2/owner", "/v1/tasks/bootstrap%2Fnode-2/owner"):
            told = (await served.get(path)).json
            assert (told["task"], told["owner"]) == ("bootstrap/node-2", first)
            assert told["preference"] == [first, second]
            without = (await served.get(f"{path}?without={first}")).json
            assert (without["owner"], without["because"][0]) == (second, {"node": first, "verdict": "down"})
        for path in ("/v1/tasks/bootstrap/node-9/owner", "/v1/tasks/bootstrap%2F/owner"):
            assert (await served.get(path)).problem == "not-found"
        wrong = await served.get("/v1/tasks/bootstrap/node-2/owner?without=node-9")
        assert list(wrong.fields) == ["without"]


@on_loop
async def test_a_feeder_counts_what_it_has_sent() -> None:
    async with servers(("node-1", "node-2")) as served:
        peers = PeerClient(SECRET, served.node.state, me="node-1")
        try:
            await served.put_task("a")
            index = served.cluster.machine.state.index
            served.nodes["node-1"].bootstraps.publish(begin("node-1", [Gap(0, 20)], 5))
            assert await peers.history("node-2", Gap(0, index)) is not None
            fed = (await served.get("/metrics", node="node-2")).body.decode()
            assert 'rota_bootstrap_sent_runs_total{member="node-1"} 0.0' in fed
            assert "\nrota_bootstrap_missing_indexes 0.0\n" in fed
            lacking = (await served.get("/metrics")).body.decode()
            assert "\nrota_bootstrap_missing_indexes 20.0\n" in lacking
        finally:
            await peers.close()


@on_loop
async def test_no_task_takes_the_name_of_a_bootstrap() -> None:
    async with servers() as served:
        body = {"kind": "copy", "params": {"source": "x"}}
        refused = await served.ask("PUT", "/v1/tasks/bootstrap%2Fnode-1", json=body)
        assert (refused.status, list(refused.fields)) == (422, ["name"])
        assert (await served.ask("POST", "/v1/tasks", json=[{"name": "bootstrap/node-1", **body}])).status == 422
