"""The logs of runs over HTTP, fetched and followed, from members that may fall silent."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from node.peer.signing import response_mac, signing_key
from node.state.attempts import Finish
from node.state.members import MarkDown
from testkit.http.fake_node import SECRET
from testkit.http.http_cluster import QUICK, Servers, on_loop, servers

pytestmark = pytest.mark.integration


@on_loop
async def test_a_log_is_fetched_from_the_member_that_ran() -> None:
    async with servers(("node-1", "node-2")) as served:
        await served.put_task("a")
        run_id = await served.start_run()
        early = await served.get(f"/v1/runs/{run_id}/log?follow=true")
        assert (early.status, early.json["detail"]) == (404, "no attempt has been made yet")
        token = served.claim(run_id, "node-2")
        assert (await served.get(f"/v1/runs/{run_id}/log")).body == b""
        path = served.write_log("node-2", run_id, "héllo\n" * 20_000)
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
async def test_the_end_of_a_log_begins_with_a_whole_line() -> None:
    async with servers(("node-1", "node-2")) as served:
        await served.put_task()
        run_id = await served.start_run()
        served.claim(run_id, "node-2")
        served.write_log("node-2", run_id, "one\ntwo\nthree\n")
        path = f"/v1/runs/{run_id}/log"
        for node in ("node-1", "node-2"):
            for query, told in (
                ("tail_bytes=6", b"three\n"),
                ("tail_bytes=9", b"three\n"),
                ("tail_bytes=10", b"two\nthree\n"),
                ("tail_bytes=14", b"one\ntwo\nthree\n"),
                ("tail_bytes=1000", b"one\ntwo\nthree\n"),
                ("tail_bytes=1", b""),
            ):
                assert (await served.ask("GET", f"{path}?{query}", node)).body == told, (node, query)
        assert (await served.get(f"{path}?tail_bytes=0")).status == 422
        served.write_log("node-2", run_id, "x" * 20)
        assert (await served.get(f"{path}?tail_bytes=5")).body == b"xxxxx", "of a line that has not ended"


@on_loop
async def test_a_log_is_followed_until_the_attempt_ends() -> None:
    async with servers(("node-1", "node-2")) as served:
        await served.put_task("a")
        run_id = await served.start_run()
        token = served.claim(run_id, "node-2")
        for node in ("node-1", "node-2"):
            served.write_log("node-2", run_id, f"first {node}\n")
        async with (
            served.session.get(served.url(f"/v1/runs/{run_id}/log?follow=true")) as far,
            served.session.get(served.url(f"/v1/runs/{run_id}/log?follow=true", "node-2")) as near,
        ):
            for answer in (far, near):
                assert await answer.content.readline() == b"first node-1\n"
                assert await answer.content.readline() == b"first node-2\n"
            served.write_log("node-2", run_id, "second\n")
            for answer in (far, near):
                assert await answer.content.readline() == b"second\n"
            served.write_log("node-2", run_id, "last\n")
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
        signed = response_mac(signing_key(SECRET), question.decode(), 200, None)
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
    run_id = await served.start_run()
    served.claim(run_id, "node-2")
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
            token = served.claim(run_id)
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
