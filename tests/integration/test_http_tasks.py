"""Tasks, owners and plans over HTTP."""

import json
from dataclasses import replace
from typing import Any

import pytest

from node.duty.hold import Hold
from node.duty.overdue import Overdue
from node.peer.client import PeerClient
from node.peer.protocol import RunProgress
from node.state.deadlines import Breached
from node.state.members import Join, MarkDown, TakeLead
from node.state.times import rfc3339
from node.state.value import RULES
from tasks.access import Access
from tasks.installed_kinds import InstalledKinds, installed
from testkit.http.fake_node import NOW_US, SECRET
from testkit.http.http_cluster import on_loop, servers

pytestmark = pytest.mark.integration


@on_loop
async def test_a_task_is_registered_changed_and_left_unchanged() -> None:
    async with servers() as served:
        made = await served.put_task("a", schedule={"cron": "0 3 * * *"})
        assert (made.status, made.json["version"], made.headers["ETag"]) == (201, 1, '"1"')
        assert made.headers["Location"] == "/v1/tasks/a"
        same = await served.put_task("a", name="a", schedule={"cron": "0 3 * * *"})
        assert (same.status, same.json["version"]) == (200, 1)
        assert same.headers["Rota-Epoch"] == made.headers["Rota-Epoch"]
        changed = await served.put_task("a", weight=2)
        assert (changed.status, changed.json["version"], changed.json["schedule"]) == (200, 2, None)
        reply = await served.get("/v1/tasks/a")
        assert (reply.status, reply.json["owner"], reply.json["weight"]) == (200, "node-1", 2)
        assert reply.headers["ETag"] == '"2"'


@on_loop
async def test_if_match_keeps_two_writers_apart() -> None:
    async with servers() as served:
        spec = {"kind": "copy", "params": {"source": "x"}}

        async def put(header: str, value: str, weight: int) -> tuple[int, str | None]:
            body = {**spec, "weight": weight}
            reply = await served.ask("PUT", "/v1/tasks/a", json=body, headers={header: value})
            return reply.status, reply.problem if reply.status >= 400 else None

        assert await put("If-Match", "*", 1) == (412, "version-conflict")
        assert await put("If-Match", '"1"', 1) == (412, "version-conflict")
        assert await put("If-None-Match", "*", 1) == (201, None)
        assert await put("If-None-Match", "*", 2) == (412, "version-conflict")
        assert await put("If-Match", '"1"', 2) == (200, None)
        assert await put("If-Match", '"1"', 3) == (412, "version-conflict")
        assert await put("If-Match", "*", 4) == (200, None)
        assert await put("If-Match", "sometimes", 4) == (400, "bad-request")
        refused = await served.ask("DELETE", "/v1/tasks/a", headers={"If-Match": '"9"'})
        assert (refused.status, refused.problem) == (412, "version-conflict")


@on_loop
async def test_errors_of_specs_name_each_field_and_nothing_changes() -> None:
    async with servers() as served:
        cases: list[tuple[dict[str, Any], set[str]]] = [
            ({"kind": "copi"}, {"kind"}),
            ({"params": {"times": 0, "also": [1]}}, {"params.source", "params.times", "params.also[0]"}),
            ({"schedule": {"cron": "0 0 30 2 *"}, "retry": {"attempts": 0}}, {"schedule.cron", "retry.attempts"}),
            ({"name": "b"}, {"name"}),
            ({"params": {"source": "x", "big": 2**70}}, {"params"}),
            ({"strange": 1}, {"strange"}),
            ({"strange": 1, "params": {"times": 0}}, {"strange", "params.source", "params.times"}),
        ]
        for fields, named in cases:
            reply = await served.put_task("a", **fields)
            assert (reply.status, reply.problem) == (422, "invalid"), fields
            assert set(reply.fields) == named
        unknown = await served.put_task("a", kind="copi")
        assert '"copy"' in unknown.fields["kind"]
        assert (await served.ask("PUT", "/v1/tasks/a", json=[1])).status == 422
        assert not served.cluster.machine.state.tasks


@on_loop
async def test_a_name_with_a_slash_is_refused_however_it_is_written() -> None:
    async with servers() as served:
        spec = {"kind": "copy", "params": {"source": "x"}}
        encoded = await served.ask("PUT", "/v1/tasks/a%2Fb", json=spec)
        assert (encoded.status, list(encoded.fields)) == (422, ["name"])
        assert "no slash" in encoded.fields["name"]
        plain = await served.ask("PUT", "/v1/tasks/a/b", json=spec)
        assert plain.status == 404
        assert "no slash" in plain.json["detail"]
        listed = await served.ask("POST", "/v1/tasks", json=[{**spec, "name": "a/b"}])
        assert list(listed.fields) == ["[0].name"]
        looked = await served.get("/v1/tasks/a%2Fb")
        assert (looked.status, looked.problem) == (404, "not-found")
        assert not served.cluster.machine.state.tasks


@on_loop
async def test_a_list_is_registered_completely_or_not_at_all() -> None:
    async with servers() as served:

        def spec(name: str, **more: Any) -> dict[str, Any]:
            return {"name": name, "kind": "copy", "params": {"source": "x"}, **more}

        wrong = await served.ask("POST", "/v1/tasks", json=[spec("a"), spec("b", retry={"attempts": 0}), spec("c")])
        assert list(wrong.fields) == ["[1].retry.attempts"]
        many = [spec("a", params={}), spec("b", weight=0, params={"times": 0}), spec("c"), spec("c")]
        wrong = await served.ask("POST", "/v1/tasks", json=many)
        every = {"[0].params.source", "[1].weight", "[1].params.source", "[1].params.times", "[3].name"}
        assert wrong.fields.keys() == every, "all that is wrong is said at once"
        twice = await served.ask("POST", "/v1/tasks", json=[spec("a"), spec("a")])
        assert list(twice.fields) == ["[1].name"]
        mixed = await served.ask("POST", "/v1/tasks", json=[spec("a"), spec("b", params={}), spec("c", kind="copi")])
        assert set(mixed.fields) == {"[1].params.source", "[2].kind"}
        bodies: tuple[Any, ...] = ({}, [], spec("a"))
        for body in bodies:
            assert (await served.ask("POST", "/v1/tasks", json=body)).status == 422
        assert not served.cluster.machine.state.tasks

        many = [spec(f"t{number}") for number in range(120)]
        tried = await served.ask("POST", "/v1/tasks?dry_run=true", json=many)
        assert tried.json["items"][7] == _told("t7", 1, "created")
        assert not served.cluster.machine.state.tasks
        done = await served.ask("POST", "/v1/tasks", json=many)
        assert done.status == 200
        assert done.json == tried.json
        again = await served.ask("POST", "/v1/tasks", json=many)
        assert again.headers["Rota-Epoch"] == done.headers["Rota-Epoch"]
        assert again.json["items"][7] == _told("t7", 1, "unchanged")
        many[7] |= {"weight": 2}
        for dry in ("true", "false"):
            then = await served.ask("POST", f"/v1/tasks?dry_run={dry}", json=many)
            changes = [{"field": "weight", "before": 1, "after": 2}] if dry == "true" else []
            assert then.json["items"][6:8] == [_told("t6", 1, "unchanged"), _told("t7", 2, "changed", changes)]
        assert (await served.ask("POST", "/v1/tasks?dry-run=true", json=many)).status == 422


@on_loop
async def test_a_dry_run_sees_the_pools_that_would_be_made_first() -> None:
    async with servers() as served:
        served.cluster.ok(TakeLead(NOW_US, "node-1", 1, RULES))
        uses = [{"name": "dump", "kind": "copy", "params": {"source": "x"}, "uses": {"dumps": 2}}]
        refused = await served.ask("POST", "/v1/tasks?dry_run=true", json=uses)
        assert (refused.status, "make it first" in refused.json["detail"]) == (422, True)
        small = await served.ask("POST", "/v1/tasks?dry_run=true&pools=dumps=1", json=uses)
        assert (small.status, "could never run" in small.json["detail"]) == (422, True)
        tried = await served.ask("POST", "/v1/tasks?dry_run=true&pools=other=0,dumps=2", json=uses)
        assert tried.json["items"] == [_told("dump", 1, "created")]
        assert not served.cluster.machine.state.pools
        for query in ("dry_run=true&pools=dumps", "dry_run=true&pools=dumps=1,", "dry_run=true&pools=-=1", "pools=a=1"):
            assert (await served.ask("POST", f"/v1/tasks?{query}", json=uses)).status == 422, query


def _told(
    name: str, version: int, change: str, changes: list[dict[str, Any]] | None = None, warnings: list[str] | None = None
) -> dict[str, Any]:
    return {"name": name, "version": version, "change": change, "changes": changes or [], "warnings": warnings or []}


@on_loop
async def test_a_task_that_no_member_can_run_is_registered_with_a_warning() -> None:
    async with servers() as served:
        put = await served.put_task("a", group={"disk": "nvme"})
        assert (put.status, put.json["group"]) == (201, {"disk": "nvme"})
        [warning] = put.json["warnings"]
        assert warning.startswith("group: no member has the label disk=nvme")
        spec = {"name": "b", "kind": "copy", "params": {"source": "x"}, "pin": "node-9"}
        listed = await served.ask("POST", "/v1/tasks", json=[spec, {**spec, "name": "c", "pin": "node-1"}])
        assert [item["warnings"] != [] for item in listed.json["items"]] == [True, False]


@on_loop
async def test_a_task_that_the_node_would_refuse_is_registered_with_a_warning() -> None:
    async with servers(("node-1", "node-2")) as served:
        access = Access("node-1", source_roots=("/srv",), destination_hosts=("s3://allowed",))
        served.node.kinds = InstalledKinds(installed(), access)
        for member in list(served.cluster.machine.state.members.values()):
            where = (member.host, member.raft_port, member.http_port, 9)
            labels = (("node", member.id),)
            served.cluster.ok(Join(1, member.id, *where, labels, 1, ("backup",), member.incarnation))
        source = {"type": "folder", "path": "/etc", "shared": True}
        params = {"source": source, "destination": "s3://other/rota"}
        put = await served.put_task("a", kind="backup", params=params)
        assert put.status == 201
        assert [warning.partition(". Add ")[0] for warning in put.json["warnings"]] == [
            "params.source: /etc: node-1 allows no such source: ROTA_SOURCE_ROOTS there names /srv",
            "params.destination: s3://other/rota/a: node-1 allows no such destination: ROTA_DESTINATION_HOSTS there "
            "names s3://allowed",
        ]
        spec = {"name": "a", "kind": "backup", "params": params}
        elsewhere = {**spec, "name": "b", "group": {"node": "node-2"}}
        right = {"source": {**source, "path": "/srv/x"}, "destination": "s3://allowed"}
        allowed = {**spec, "name": "c", "params": right}
        tried = await served.ask("POST", "/v1/tasks?dry_run=true", json=[spec, elsewhere, allowed])
        assert [item["warnings"] for item in tried.json["items"]] == [put.json["warnings"], [], []]


@on_loop
async def test_a_body_that_is_too_large_or_not_json_is_refused() -> None:
    async with servers() as served:
        as_json = {"Content-Type": "application/json"}

        async def chunks() -> Any:
            for _ in range(40):
                yield b" " * 65_536

        for body in (b"x" * 10_000_000, chunks()):
            large = await served.ask("PUT", "/v1/tasks/a", data=body, headers=as_json)
            assert (large.status, large.problem) == (413, "too-large")
            assert "1024 KiB" in large.json["detail"]
        for text in (b"{", b"", b'{"a": NaN}', b"\xff", b"[" * 5000):
            wrong = await served.ask("PUT", "/v1/tasks/a", data=text, headers=as_json)
            assert (wrong.status, wrong.problem) == (400, "bad-request"), text[:10]
        spec = json.dumps({"kind": "copy", "params": {"source": "x"}}).encode()
        for headers in ({"Content-Type": "text/plain"}, {"Content-Type": "application/x-www-form-urlencoded"}):
            refused = await served.ask("PUT", "/v1/tasks/a", data=spec, headers=headers)
            assert (refused.status, refused.problem) == (415, "media-type")


@on_loop
async def test_lists_are_paged_and_filtered() -> None:
    async with servers(("node-1", "node-2")) as served:
        for number in range(7):
            await served.put_task(f"t{number}", pin="node-2" if number % 2 else "node-1")
        names: list[str] = []
        path: str | None = "/v1/tasks?limit=3"
        while path:
            page = await served.get(path)
            names += [item["name"] for item in page.json["items"]]
            path = page.json["next"] and f"/v1/tasks?limit=3&after={page.json['next']}"
        assert names == [f"t{number}" for number in range(7)]
        owned = await served.get("/v1/tasks?kind=&owner=node-2&limit=&after=")
        assert [item["name"] for item in owned.json["items"]] == ["t1", "t3", "t5"]
        assert (await served.get("/v1/tasks?kind=other")).json == {"items": [], "next": None}
        for query, field in (("limit=0", "limit"), ("limit=1001", "limit"), ("after=x", "after"), ("hue=1", "hue")):
            wrong = await served.get(f"/v1/tasks?{query}")
            assert (wrong.status, list(wrong.fields)) == (422, [field])


@on_loop
async def test_the_owner_and_the_plan_without_a_member() -> None:
    async with servers(("node-1", "node-2", "node-3")) as served:
        await served.put_task("a", pin="node-2", standbys=1, schedule={"every_s": 60})
        reply = await served.get("/v1/tasks/a/owner")
        assert reply.json["owner"] == "node-2"
        assert reply.json["because"] == [{"node": "node-2", "verdict": "chosen"}]
        assert set(reply.json) >= {"running_on", "preference", "standbys", "epoch", "index", "next_fire_at"}
        other = await served.get("/v1/tasks/a/owner?without=node-2")
        assert other.json["because"][0] == {"node": "node-2", "verdict": "down"}
        assert other.json["owner"] != "node-2"
        plan = await served.get("/v1/plan?without=node-2")
        assert plan.json["moves"] == [{"task": "a", "from": "node-2", "to": other.json["owner"]}]
        assert plan.json["load"]["node-2"] == {"now": 1, "then": 0}
        unowned = await served.get("/v1/tasks/a/owner?without=node-1,node-2,node-3")
        assert (unowned.json["owner"], unowned.json["standbys"]) == (None, [])
        for path in ("/v1/plan?without=node-9", "/v1/plan", "/v1/tasks/a/owner?without=node-9"):
            assert list((await served.get(path)).fields) == ["without"]
        assert (await served.get("/v1/tasks/z/owner")).problem == "not-found"


@on_loop
async def test_a_due_task_says_why_it_has_not_begun() -> None:
    async with servers(("node-1", "node-2")) as served:
        await served.put_task("a", pin="node-2", schedule={"every_s": 60})
        assert (await served.get("/v1/tasks/a/owner")).json["waiting"] is None
        served.cluster.now_us += 61_000_000
        served.nodes["node-2"].holds["a"] = Hold("max_runs", "it runs 8 attempts, its most", ("b@1",))
        assert (await served.get("/v1/tasks/a/owner")).json["waiting"] == "it runs 8 attempts, its most: b@1"
        await served.stop("node-2")
        assert "node-2 does not answer" in (await served.get("/v1/tasks/a/owner")).json["waiting"]
        for name in ("node-1", "node-2"):
            served.cluster.ok(MarkDown(served.cluster.now_us, name, 1, "stopped", 0))
        assert "node-2 is down (stopped)" in (await served.get("/v1/tasks/a/owner")).json["waiting"]


@on_loop
async def test_why_a_task_does_not_run_is_asked_of_those_who_know() -> None:
    async with servers(("node-1", "node-2")) as served:
        await served.put_task("a", pin="node-2", schedule={"every_s": 60})
        reply = await served.get("/v1/tasks/a/why")
        assert (reply.json["code"], reply.json["until"]) == ("not_due", "2026-11-18T11:07:40Z")
        served.cluster.now_us += 61_000_000
        assert (await served.get("/v1/tasks/a/why")).json["code"] == "due"
        served.node.overdue_now = Overdue(1, 1.0, frozenset({"a"}))
        served.nodes["node-2"].holds["a"] = Hold("max_runs", "node-2 runs 1 attempt already", ("b@1",))
        held = (await served.get("/v1/tasks/a/why")).json
        assert (held["code"], held["member"], held["runs"]) == ("max_runs", "node-2", ["b@1"])
        assert held["sentence"].startswith("a does not run: node-2 runs 1 attempt already: b@1; wait")
        assert [step["ends"] for step in held["steps"]][-2:] == [False, True]
        listed = (await served.get("/v1/tasks")).json["items"]
        assert [item["held"] for item in listed] == [
            {"code": "max_runs", "detail": "node-2 runs 1 attempt already: b@1", "until": None}
        ]
        await served.stop("node-2")
        assert (await served.get("/v1/tasks/a/why")).json["code"] == "owner_away"
        assert (await served.get("/v1/tasks")).json["items"][0]["held"]["code"] == "owner_away"
        served.node.role = replace(served.node.role, leader=None, has_quorum=False)
        assert (await served.get("/v1/tasks/a/why")).json["code"] == "no_quorum"


@on_loop
async def test_why_a_run_waits_where_it_runs_and_why_a_kind_is_not_offered() -> None:
    async with servers(("node-1", "node-2")) as served:
        await served.put_task("a", overlap="queue")
        first, second = await served.start_run(), await served.start_run()
        served.claim(first, "node-2")
        behind = (await served.get("/v1/tasks/a/why")).json
        assert (behind["code"], behind["run_id"], behind["runs"]) == ("behind", second, [first])
        served.nodes["node-2"].reported[first] = RunProgress(frozen_since_us=served.cluster.now_us)
        runs = (await served.get(f"/v1/tasks/a/why?run_id={first}")).json
        assert (runs["code"], "frozen since 2026-11-18T11:06:40Z" in runs["detail"]) == ("running", True)
        assert list((await served.get("/v1/tasks/a/why?run_id=other")).fields) == ["run_id"]
        assert (await served.get("/v1/tasks/other/why")).status == 404
        for name in ("node-1", "node-2"):
            row = served.cluster.machine.state.members[name]
            again = Join(NOW_US, name, row.host, row.raft_port, row.http_port, 9, (), 1, ("other",), 1)
            served.cluster.ok(again)
        kind = (await served.get(f"/v1/tasks/a/why?run_id={second}")).json
        assert kind["code"] == "no_kind"
        assert [item["held"]["code"] for item in (await served.get("/v1/tasks")).json["items"]] == ["no_kind"]


@on_loop
async def test_members_are_asked_why_they_do_not_offer_a_kind() -> None:
    async with servers(("node-1", "node-2")) as served:
        peers = PeerClient(SECRET, served.node.state, me="node-1")
        assert await peers.unoffered("node-2", "other", 5) == "it is not installed there"
        assert await peers.unoffered("node-2", "copy", 5) is None
        await peers.close()


@on_loop
async def test_pause_resume_and_delete() -> None:
    async with servers() as served:
        await served.put_task("a", schedule={"every_s": 60})
        paused = await served.ask("POST", "/v1/tasks/a/pause")
        assert (paused.status, paused.json["paused"], paused.json["next_fire_at"]) == (200, True, None)
        served.cluster.now_us += 5_000_000
        resumed = await served.ask("POST", "/v1/tasks/a/resume", json={})
        assert (resumed.json["paused"], resumed.json["next_fire_at"]) == (False, "2026-11-18T11:07:45Z")
        run = await served.ask("POST", "/v1/tasks/a/runs")
        gone = await served.ask("DELETE", "/v1/tasks/a")
        assert (gone.status, gone.body) == (204, b"")
        cancelled = await served.get(f"/v1/runs/{run.json['run_id']}")
        assert cancelled.json["state"] == "cancelled"
        for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/pause"), ("GET", "/owner"), ("POST", "/runs")):
            reply = await served.ask(method, f"/v1/tasks/a{path}")
            assert (reply.status, reply.problem) == (404, "not-found"), path
        assert [item["state"] for item in (await served.get("/v1/tasks/a/runs")).json["items"]] == ["cancelled"]
        assert (await served.get("/v1/tasks/never/runs")).status == 404


@on_loop
async def test_a_breached_deadline_is_shown_wherever_a_task_is() -> None:
    async with servers(("node-1", "node-2")) as served:
        cluster = served.cluster
        cluster.ok(TakeLead(NOW_US, "node-1", 1, RULES))
        await served.put_task("a", deadlines={"finish_within_s": 60, "success_every_s": 3600})
        await served.put_task("b", deadlines={"success_every_s": 3600})
        run_id = await served.start_run("a")
        served.claim(run_id, "node-1")
        due_us = cluster.machine.state.runs[run_id].created_at_us
        assert (await served.get("/v1/tasks?late=true")).json["items"] == []
        cluster.ok(Breached(due_us + 61_000_000, "a", "finish_within", due_us))

        late = {
            "deadline": "finish_within",
            "due_at": rfc3339(due_us),
            "since": rfc3339(due_us + 60_000_000),
            "limit_s": 60.0,
            "detail": "not succeeded within 60 s of its due time",
        }
        listed = (await served.get("/v1/tasks?late=true")).json["items"]
        assert [(task["name"], task["late"]) for task in listed] == [("a", [late])]
        listed = (await served.get("/v1/tasks?late=false", node="node-2")).json["items"]
        assert [(task["name"], task["late"]) for task in listed] == [("b", [])]
        assert (await served.get("/v1/tasks/a/why")).json["late"] == [late]
        text = (await served.get("/metrics")).body.decode()
        for line in (
            "rota_late_tasks 1.0",
            'rota_task_deadline_breached{deadline="finish_within",task="a"} 1.0',
            'rota_task_deadline_breached{deadline="success_every",task="a"} 0.0',
            'rota_task_deadline_breached{deadline="success_every",task="b"} 0.0',
        ):
            assert f"\n{line}\n" in text, line
        assert 'deadline="start_within"' not in text


@on_loop
async def test_deadlines_that_cannot_be_are_refused() -> None:
    async with servers() as served:
        for deadlines, field, message in (
            ({"start_within_s": 0}, "deadlines.start_within_s", "greater than or equal to 1"),
            ({"finish_within_s": 5, "start_within_s": 9}, "deadlines", "finish_within_s (5) may not be less"),
            ({"finish": 5}, "deadlines.finish", "there is no such field"),
            ({"success_every_s": 60}, "", "deadlines.success_every_s (60) must be more than schedule.every_s (60)"),
        ):
            reply = await served.put_task("a", schedule={"every_s": 60}, deadlines=deadlines)
            assert reply.status == 422
            [error] = reply.json["errors"]
            assert (error["field"], message in error["message"]) == (field, True), error
