"""Runs and events over HTTP, and the description of the API."""

import asyncio

import aiohttp
import pytest

from node.peer.client import PeerClient
from node.peer.portions import Gap
from node.peer.protocol import PeerAway, RunProgress
from node.state.attempts import Finish
from node.state.times import rfc3339
from testkit.http.fake_node import SECRET
from testkit.http.http_cluster import on_loop, servers

pytestmark = pytest.mark.integration


@on_loop
async def test_a_manual_run_is_created_once_for_each_key() -> None:
    async with servers() as served:
        await served.put_task("a")
        body = {"fire_at": "2026-11-01T00:00:00+01:00", "params": {"source": "y"}}
        run_id = await served.start_run(json=body, headers={"Idempotency-Key": "k1"})
        assert await served.start_run(json=body, headers={"Idempotency-Key": "k1"}) == run_id
        view = (await served.get(f"/v1/runs/{run_id}")).json
        assert (view["fire_at"], view["trigger"], view["state"]) == ("2026-10-31T23:00:00Z", "manual", "waiting")
        assert view["params"] == {"source": "y"}
        refused = await served.ask("POST", "/v1/tasks/a/runs")
        assert (refused.status, refused.problem, refused.json["code"]) == (409, "conflict", "overlap")
        wrong = await served.ask("POST", "/v1/tasks/a/runs", json={"params": {}, "fire_at": "2026-11-01T00:00:00Z"})
        assert list(wrong.fields) == ["params.source"]
        naive = await served.ask("POST", "/v1/tasks/a/runs", json={"fire_at": "2026-11-01T00:00:00"})
        assert list(naive.fields) == ["fire_at"]
        assert (await served.ask("POST", "/v1/tasks/a/runs", headers={"Idempotency-Key": "k" * 300})).status == 400
        unknown = await served.ask("GET", "/v1/runs/a/log")
        assert (unknown.status, unknown.json["detail"].endswith("`rota runs a` lists its runs")) == (404, True)


@on_loop
async def test_a_run_keeps_the_params_that_were_given_for_it_and_their_secrets_as_references() -> None:
    async with servers() as served:
        await served.put_task("a", params={"source": "x", "times": 2})
        given = {"source": "y", "options": {"key": {"secret": "s3_key"}, "id": {"env": "S3_ID"}}}
        run_id = await served.start_run(json={"params": given})
        # Another definition meanwhile changes nothing about the run.
        await served.put_task("a", params={"source": "z"})
        assert (await served.get(f"/v1/runs/{run_id}")).json["params"] == given
        served.cluster.ok(Finish(served.cluster.now_us, run_id, served.claim(run_id), "succeeded", {}))
        without = await served.start_run()
        listed = (await served.get("/v1/tasks/a/runs")).json["items"]
        assert {run["run_id"]: run["params"] for run in listed} == {run_id: given, without: None}
        asked = await served.ask("POST", "/v1/tasks/a/actions/preview", json={"args": {"rows": 3}})
        action = (await served.get(f"/v1/runs/{asked.json['run_id']}")).json
        assert (action["action"], action["args"], action["params"]) == ("preview", {"rows": 3}, None)


@on_loop
async def test_active_and_finished_runs_are_one_list() -> None:
    async with servers() as served:
        await served.put_task("a", overlap="allow")
        made = []
        for number in range(5):
            served.cluster.now_us += 1_000_000
            made.append(await served.start_run())
            if number < 3:
                token = served.claim(made[-1])
                served.cluster.ok(Finish(served.cluster.now_us, made[-1], token, "succeeded", {"n": number}))
        listed: list[str] = []
        path: str | None = "/v1/runs?limit=2"
        while path:
            page = (await served.get(path)).json
            listed += [item["run_id"] for item in page["items"]]
            path = page["next"] and f"/v1/runs?limit=2&after={page['next']}"
        assert listed == made[::-1]

        async def found(query: str) -> list[str]:
            return [item["run_id"] for item in (await served.get(f"/v1/{query}")).json["items"]]

        assert await found("tasks/a/runs?limit=&state=") == made[::-1]
        assert await found("tasks/a/runs?state=succeeded") == made[2::-1]
        assert await found("runs?state=waiting") == [made[4], made[3]]
        assert await found("runs?node=node-1&task=a") == made[2::-1]
        assert await found("runs?task=other") == []
        assert list((await served.get("/v1/runs?state=lost")).fields) == ["state"]


@on_loop
async def test_a_run_is_cancelled_once() -> None:
    async with servers() as served:
        await served.put_task("a")
        run_id = await served.start_run()
        served.claim(run_id)
        asked = await served.ask("DELETE", f"/v1/runs/{run_id}")
        assert (asked.status, asked.json["state"], asked.json["cancelling"]) == (202, "running", "asked")
        token = served.cluster.machine.state.runs[run_id].token
        served.cluster.ok(Finish(served.cluster.now_us, run_id, token, "cancelled"))
        over = await served.ask("DELETE", f"/v1/runs/{run_id}")
        assert (over.status, over.problem, over.json["state"]) == (409, "conflict", "cancelled")
        waiting = await served.start_run()
        assert (await served.ask("DELETE", f"/v1/runs/{waiting}")).json["state"] == "cancelled"
        assert (await served.ask("DELETE", "/v1/runs/never")).problem == "not-found"


@on_loop
async def test_progress_comes_from_the_member_that_runs() -> None:
    async with servers(("node-1", "node-2")) as served:
        await served.put_task("a")
        run_id = await served.start_run()
        served.claim(run_id, "node-2")
        assert (await served.get(f"/v1/runs/{run_id}")).json["progress"] is None
        served.nodes["node-2"].reported[run_id] = RunProgress(3.0, 10.0, "rows")
        expected = {"done": 3, "total": 10, "unit": "rows"}
        for node in ("node-1", "node-2"):
            assert (await served.get(f"/v1/runs/{run_id}", node=node)).json["progress"] == expected
            assert (await served.get("/v1/runs", node=node)).json["items"][0]["progress"] == expected
        await served.stop("node-2")
        away = await served.get(f"/v1/runs/{run_id}")
        assert (away.status, away.json["progress"], away.json["node"]) == (200, None, "node-2")


@on_loop
async def test_a_run_without_a_lease_is_frozen_since_a_time() -> None:
    async with servers(("node-1", "node-2")) as served:
        await served.put_task("a")
        run_id = await served.start_run()
        served.claim(run_id, "node-2")
        since_us = served.cluster.now_us
        assert (await served.get(f"/v1/runs/{run_id}")).json["frozen_since"] is None
        for said, progress in (
            (RunProgress(frozen_since_us=since_us), None),
            (RunProgress(3.0, 10.0, "rows", since_us), {"done": 3, "total": 10, "unit": "rows"}),
        ):
            served.nodes["node-2"].reported[run_id] = said
            for node in ("node-1", "node-2"):
                run = (await served.get(f"/v1/runs/{run_id}", node=node)).json
                assert (run["frozen_since"], run["progress"]) == (rfc3339(since_us), progress)


@on_loop
async def test_events_are_sent_and_replayed_from_the_last_one_seen() -> None:
    async def events(answer: aiohttp.ClientResponse, count: int) -> list[dict[str, str]]:
        found: list[dict[str, str]] = []
        event: dict[str, str] = {}
        while len(found) < count:
            line = (await answer.content.readline()).decode().rstrip("\n")
            if line:
                name, _, value = line.partition(": ")
                event[name] = value
            else:
                found += [event] if "event" in event else []
                event = {}
        return found

    async with servers(("node-1", "node-2")) as served:
        async with served.session.get(served.url("/v1/events")) as answer:
            assert answer.content_type == "text/event-stream"
            await served.put_task("a")
            [owner] = await events(answer, 1)
            assert owner["event"] == "owner"
            await served.ask("POST", "/v1/members/node-2/drain")
            run_id = await served.start_run()
            later = await events(answer, 2)
            assert [event["event"] for event in later] == ["member", "run"]
            assert run_id in later[1]["data"]
        async with served.session.get(served.url("/v1/events"), headers={"Last-Event-ID": owner["id"]}) as answer:
            assert await events(answer, 2) == later
        async with served.session.get(served.url("/v1/events"), headers={"Last-Event-ID": "0-gone-7"}) as answer:
            assert [event["event"] for event in await events(answer, 1)] == ["reset"]


@on_loop
async def test_the_description_is_valid_openapi_and_the_page_shows_it() -> None:
    from openapi_spec_validator import OpenAPIV31SpecValidator

    async with servers() as served:
        document = await served.get("/openapi.json")
        OpenAPIV31SpecValidator(document.json).validate()
        page = (await served.get("/docs")).body.decode()
        assert "http" not in page.replace("http-equiv", "")
        for part in ("swagger-ui.css", "swagger-ui-bundle.js", "start.js", "favicon-32x32.png"):
            assert f"docs/{part}" in page
            assert (await served.get(f"/docs/{part}")).status == 200
        assert (await served.get("/docs/..%2F..%2F__init__.py")).status == 404


@on_loop
async def test_members_export_finished_runs() -> None:
    async with servers(("node-1", "node-2")) as served:
        await served.put_task("a")
        run_id = await served.start_run()
        served.cluster.ok(Finish(served.cluster.now_us, run_id, served.claim(run_id), "succeeded"))
        index = served.cluster.machine.state.index
        peers = PeerClient(SECRET, served.node.state)
        strangers = PeerClient("another secret altogether", served.node.state)
        try:
            portion = await peers.history("node-2", Gap(0, index))
            assert portion is not None
            assert ([entry for entry, _ in portion.runs], portion.through) == ([index], index)
            assert await peers.history("node-2", Gap(0, index + 1)) == portion, "as far as it knows"
            assert await peers.history("node-2", Gap(index, index + 1)) is None
            for asking in (strangers.history("node-2", Gap(0, 1)), peers.history("node-9", Gap(0, 1))):
                with pytest.raises(PeerAway):
                    await asking
        finally:
            await peers.close()
            await strangers.close()


@on_loop
async def test_a_disconnected_stream_leaves_nothing_behind() -> None:
    async with servers(("node-1", "node-2")) as served:
        paths = ["/v1/events"]
        for task, node in (("a", "node-1"), ("b", "node-2")):
            await served.put_task(task)
            run_id = await served.start_run(task)
            served.claim(run_id, node)
            served.write_log(node, run_id, "x\n")
            paths.append(f"/v1/runs/{run_id}/log?follow=true")
        before = len(asyncio.all_tasks())
        for path in paths:
            async with aiohttp.ClientSession() as session, session.get(served.url(path)) as answer:
                await answer.content.readline()
        async with asyncio.timeout(5):
            while len(asyncio.all_tasks()) > before:  # noqa: ASYNC110 - nothing tells when a task is gone
                await asyncio.sleep(0.01)
