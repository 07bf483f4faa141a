"""Runs, their logs, events and metrics over HTTP."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from node.duty.overdue import Overdue
from node.http.times import rfc3339
from node.peer.client import PeerClient
from node.peer.portions import Gap
from node.peer.protocol import PeerAway, RunProgress
from node.peer.signing import member_key, response_mac
from node.state.entries import Began, Claim, Finish, MarkDown, TakeLead
from node.state.value import RULES
from testkit.fake_node import NOW_US, SECRET
from tests.integration.http_cluster import QUICK, Servers, on_loop, servers

pytestmark = pytest.mark.integration


async def _start(served: Servers, task: str = "a", **more: Any) -> str:
    reply = await served.ask("POST", f"/v1/tasks/{task}/runs", **more)
    assert reply.status == 202, reply.json
    assert reply.headers["Location"] == f"/v1/runs/{reply.json['run_id']}"
    return str(reply.json["run_id"])


def _claim(served: Servers, run_id: str, node: str = "node-1") -> int:
    run, now_us = served.cluster.machine.state.runs[run_id], served.cluster.now_us
    token = served.cluster.ok(Claim(now_us, run.task, run.fire_at_us, node, 1, run_id))["token"]
    served.cluster.ok(Began(now_us, run_id, token))
    return int(token)


def _write_log(served: Servers, node: str, run_id: str, text: str) -> Path:
    path = served.nodes[node].log_path(run_id, 1)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(text)
    return path


@on_loop
async def test_a_manual_run_is_created_once_for_each_key() -> None:
    async with servers() as served:
        await served.put_task("a")
        body = {"fire_at": "2026-11-01T00:00:00+01:00", "params": {"source": "y"}}
        run_id = await _start(served, json=body, headers={"Idempotency-Key": "k1"})
        assert await _start(served, json=body, headers={"Idempotency-Key": "k1"}) == run_id
        view = (await served.get(f"/v1/runs/{run_id}")).json
        assert (view["fire_at"], view["trigger"], view["state"]) == ("2026-10-31T23:00:00Z", "manual", "waiting")
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
async def test_active_and_finished_runs_are_one_list() -> None:
    async with servers() as served:
        await served.put_task("a", overlap="allow")
        made = []
        for number in range(5):
            served.cluster.now_us += 1_000_000
            made.append(await _start(served))
            if number < 3:
                token = _claim(served, made[-1])
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
        run_id = await _start(served)
        _claim(served, run_id)
        asked = await served.ask("DELETE", f"/v1/runs/{run_id}")
        assert (asked.status, asked.json["state"], asked.json["cancelling"]) == (202, "running", "asked")
        token = served.cluster.machine.state.runs[run_id].token
        served.cluster.ok(Finish(served.cluster.now_us, run_id, token, "cancelled"))
        over = await served.ask("DELETE", f"/v1/runs/{run_id}")
        assert (over.status, over.problem, over.json["state"]) == (409, "conflict", "cancelled")
        waiting = await _start(served)
        assert (await served.ask("DELETE", f"/v1/runs/{waiting}")).json["state"] == "cancelled"
        assert (await served.ask("DELETE", "/v1/runs/never")).problem == "not-found"


@on_loop
async def test_progress_comes_from_the_member_that_runs() -> None:
    async with servers(("node-1", "node-2")) as served:
        await served.put_task("a")
        run_id = await _start(served)
        _claim(served, run_id, "node-2")
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
        run_id = await _start(served)
        _claim(served, run_id, "node-2")
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
async def test_a_log_is_fetched_from_the_member_that_ran() -> None:
    async with servers(("node-1", "node-2")) as served:
        await served.put_task("a")
        run_id = await _start(served)
        early = await served.get(f"/v1/runs/{run_id}/log?follow=true")
        assert (early.status, early.json["detail"]) == (404, "no attempt has been made yet")
        token = _claim(served, run_id, "node-2")
        assert (await served.get(f"/v1/runs/{run_id}/log")).body == b""
        path = _write_log(served, "node-2", run_id, "héllo\n" * 20_000)
        served.cluster.ok(Finish(served.cluster.now_us, run_id, token, "succeeded"))
        for node in ("node-1", "node-2"):
            for query in ("", "?attempt=1", "?follow=true"):
                log = await served.get(f"/v1/runs/{run_id}/log{query}", node=node)
                assert (log.status, log.headers["Content-Type"]) == (200, "text/plain; charset=utf-8")
                assert log.body == path.read_bytes()
            assert (await served.get(f"/v1/runs/{run_id}/log?attempt=2", node=node)).problem == "not-found"
            assert list((await served.get(f"/v1/runs/{run_id}/log?attempt=0", node=node)).fields) == ["attempt"]
        path.unlink()
        for node in ("node-1", "node-2"):
            assert (await served.get(f"/v1/runs/{run_id}/log", node=node)).problem == "not-found"
        await served.stop("node-2")
        away = await served.get(f"/v1/runs/{run_id}/log")
        assert (away.status, away.problem, away.json["member"]) == (503, "member-away", "node-2")


@on_loop
async def test_a_log_is_followed_until_the_attempt_ends() -> None:
    async with servers(("node-1", "node-2")) as served:
        await served.put_task("a")
        run_id = await _start(served)
        token = _claim(served, run_id, "node-2")
        for node in ("node-1", "node-2"):
            _write_log(served, "node-2", run_id, f"first {node}\n")
        async with (
            served.session.get(served.url(f"/v1/runs/{run_id}/log?follow=true")) as far,
            served.session.get(served.url(f"/v1/runs/{run_id}/log?follow=true", "node-2")) as near,
        ):
            for answer in (far, near):
                assert await answer.content.readline() == b"first node-1\n"
                assert await answer.content.readline() == b"first node-2\n"
            _write_log(served, "node-2", run_id, "second\n")
            for answer in (far, near):
                assert await answer.content.readline() == b"second\n"
            _write_log(served, "node-2", run_id, "last\n")
            served.cluster.ok(Finish(served.cluster.now_us, run_id, token, "succeeded"))
            for answer in (far, near):
                assert await answer.content.read() == b"last\n"


@asynccontextmanager
async def _falling_silent(served: Servers, sent: bytes) -> AsyncIterator[None]:
    """A server in the place of node-2 that begins an answer and falls silent, like a member without power."""
    never = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        [question] = re.findall(rb";([0-9a-f]{64})\r\n", asked)
        signed = response_mac(member_key(SECRET), question.decode(), 200, None)
        writer.write(sent.replace(b"SIGNATURE", signed.encode()))
        await never.wait()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", served.ports["node-2"])
    try:
        yield
    finally:
        never.set()
        server.close()


async def _on_a_lost_node(served: Servers) -> str:
    """A run of node-2, which is unreachable."""
    await served.put_task("a")
    run_id = await _start(served)
    _claim(served, run_id, "node-2")
    await served.stop("node-2")
    return run_id


BEGUN = b"HTTP/1.1 200 OK\r\nRota-Signed: SIGNATURE\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nfirst\n\r\n"


@on_loop
async def test_a_followed_log_ends_when_its_member_is_lost_and_the_run_taken_over() -> None:
    async with servers(("node-1", "node-2")) as served:
        run_id = await _on_a_lost_node(served)
        async with (
            _falling_silent(served, BEGUN),
            served.session.get(served.url(f"/v1/runs/{run_id}/log?follow=true")) as answer,
        ):
            assert await answer.content.readline() == b"first\n"
            with pytest.raises(TimeoutError):  # it may be silent for as long as it holds the attempt
                await asyncio.wait_for(answer.content.readany(), 2 * QUICK.peer_log_s)
            served.cluster.ok(MarkDown(served.cluster.now_us, "node-2", 1, "stopped", 0))
            token = _claim(served, run_id)
            served.cluster.ok(Finish(served.cluster.now_us, run_id, token, "succeeded"))
            with pytest.raises(aiohttp.ClientError):
                await asyncio.wait_for(answer.content.read(), 3 * QUICK.peer_log_s)


@on_loop
async def test_a_log_that_is_not_followed_ends_when_its_member_falls_silent() -> None:
    async with servers(("node-1", "node-2")) as served:
        run_id = await _on_a_lost_node(served)
        async with (
            _falling_silent(served, BEGUN),
            served.session.get(served.url(f"/v1/runs/{run_id}/log")) as answer,
        ):
            assert await answer.content.readline() == b"first\n"
            with pytest.raises(aiohttp.ClientError):
                await asyncio.wait_for(answer.content.read(), 3 * QUICK.peer_log_s)
        for query in ("", "?follow=true"):
            async with _falling_silent(served, b""):
                away = await asyncio.wait_for(served.get(f"/v1/runs/{run_id}/log{query}"), 3 * QUICK.peer_log_s)
                assert (away.status, away.problem) == (503, "member-away")


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
            run_id = await _start(served)
            later = await events(answer, 2)
            assert [event["event"] for event in later] == ["member", "run"]
            assert run_id in later[1]["data"]
        async with served.session.get(served.url("/v1/events"), headers={"Last-Event-ID": owner["id"]}) as answer:
            assert await events(answer, 2) == later
        async with served.session.get(served.url("/v1/events"), headers={"Last-Event-ID": "0-gone-7"}) as answer:
            assert [event["event"] for event in await events(answer, 1)] == ["reset"]


@on_loop
async def test_metrics_are_in_prometheus_format() -> None:
    async with servers(("node-1", "node-2")) as served:
        await served.put_task("a")
        await _start(served)
        text = (await served.get("/metrics")).body.decode()
        for line in (
            'rota_members{status="up"} 2.0',
            "rota_tasks 1.0",
            'rota_active_runs{state="waiting"} 1.0',
            'rota_occurrences_passed_over_total{state="missed"} 0.0',
            "rota_raft_term 3.0",
            "rota_raft_is_leader 1.0",
            "rota_raft_has_quorum 1.0",
            "rota_lease_held 1.0",
            'rota_http_proposals_total{code="ok",entry="PutTasks"} 1.0',
            'rota_http_request_seconds_count{method="PUT",path="/v1/tasks/{name}",status="201"} 1.0',
        ):
            assert f"\n{line}\n" in text, line


@on_loop
async def test_the_tasks_registered_first_have_metrics_of_their_own() -> None:
    async with servers(("node-1", "node-2")) as served:
        served.cluster.ok(TakeLead(NOW_US, "node-1", 1, RULES))
        for name in ("b", "a", "left-out"):
            await served.put_task(name)
        run_id = await _start(served, "b")
        token = _claim(served, run_id, "node-1")
        served.cluster.ok(Began(NOW_US, run_id, token))
        served.cluster.ok(Finish(NOW_US + 2_500_000, run_id, token, "succeeded"))
        served.nodes["node-2"].overdue_now = Overdue(3, 70.5)
        text = (await served.get("/metrics", node="node-2")).body.decode()
        for line in (
            'rota_runs_total{state="succeeded"} 1.0',
            'rota_runs_total{state="failed"} 0.0',
            'rota_task_runs_total{state="succeeded",task="b"} 1.0',
            'rota_task_runs_total{state="abandoned",task="a"} 0.0',
            'rota_task_last_success_timestamp_seconds{task="b"} 1.7950000025e+09',
            'rota_task_last_duration_seconds{task="b"} 2.5',
            "rota_tasks_without_metrics 1.0",
            "rota_overdue_tasks 3.0",
            "rota_overdue_seconds 70.5",
        ):
            assert f"\n{line}\n" in text, line
        assert 'task="left-out"' not in text
        assert 'last_success_timestamp_seconds{task="a"}' not in text, "it never succeeded"


@on_loop
async def test_the_description_is_valid_openapi_and_the_page_shows_it() -> None:
    from openapi_spec_validator import OpenAPIV31SpecValidator

    async with servers() as served:
        document = await served.get("/openapi.json")
        OpenAPIV31SpecValidator(document.json).validate()
        root = await served.get("/")
        assert (root.status, root.headers["Location"]) == (302, "docs")
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
        run_id = await _start(served)
        served.cluster.ok(Finish(served.cluster.now_us, run_id, _claim(served, run_id), "succeeded"))
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
            run_id = await _start(served, task)
            _claim(served, run_id, node)
            _write_log(served, node, run_id, "x\n")
            paths.append(f"/v1/runs/{run_id}/log?follow=true")
        before = len(asyncio.all_tasks())
        for path in paths:
            async with aiohttp.ClientSession() as session, session.get(served.url(path)) as answer:
                await answer.content.readline()
        async with asyncio.timeout(5):
            while len(asyncio.all_tasks()) > before:  # noqa: ASYNC110 - nothing tells when a task is gone
                await asyncio.sleep(0.01)
