"""Attacks on the API's port that try to make it unavailable to others."""

import asyncio
import gc
import gzip
import json
import logging
import resource
import socket
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from aiohttp import EMPTY_PAYLOAD, web

from node.http.door.connection import HEAD_BYTES, ConnectionTimeouts
from node.http.door.connection_limits import ConnectionLimits
from node.http.door.listener import Listener
from node.http.door.server_context import RequestLimits
from testkit.execution.attempts import until
from testkit.http.http_cluster import Servers, on_loop, servers

pytestmark = pytest.mark.integration

HALF = b"PUT /v1/tasks/a HTTP/1.1\r\nHost: localhost\r\n"
FORM = b"POST /sign-in HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
WITHIN = FORM + b"Content-Length: 100\r\n\r\nab"
REFUSED = FORM + b"Content-Length: 1000000\r\n\r\nab"
NOWHERE = b"CONNECT /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" + b"a" * 100_000
GARBAGE = b"\x16\x03\x01\x02\x00 this is no HTTP\r\n\r\n"
HASTY = ConnectionTimeouts(request_s=0.2, reader_s=0.3, rest_s=0.2, closing_s=0.2, garbage_s=0.2)

Pipe = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _opened(served: Servers, sent: bytes = b"") -> Pipe:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.ports["node-1"])
    writer.write(sent)
    return reader, writer


async def _heard(pipe: Pipe) -> bytes:
    """All bytes until the other end closes; none if the connection is reset."""
    try:
        return await pipe[0].read()
    except ConnectionError:
        return b""
    finally:
        pipe[1].close()


def _problem(answer: bytes) -> tuple[int, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    document = json.loads(body)
    assert b"application/problem+json" in head
    return int(answer.split()[1]), document["type"].rpartition(":")[2]


@pytest.mark.parametrize(
    "sent", [HALF, WITHIN, REFUSED, NOWHERE], ids=["in a head", "in a body", "refused", "a tunnel"]
)
@pytest.mark.parametrize("by_node", [False, True], ids=["closed by the client", "ended by the node"])
def test_a_connection_that_has_ended_leaves_nothing_to_the_garbage_collector(sent: bytes, by_node: bool) -> None:
    """What is open while the collector freezes what there is would never be freed."""

    async def holds() -> None:
        async with servers(token="a token of sixteen") as served:
            transports: weakref.WeakSet[asyncio.BaseTransport] = weakref.WeakSet()
            [site] = served.runners["node-1"].sites
            assert isinstance(site, Listener)
            gc.disable()
            try:
                pipes = []
                for _ in range(20):
                    pipes.append(await _opened(served, sent))
                    await asyncio.sleep(0)  # the node closes a tunnel as soon as it has answered
                    transports.update(one._wire for one in site._limits if one._wire is not None)
                if sent != NOWHERE:
                    await until(lambda: len(list(site._limits)) >= len(pipes))
                if sent == WITHIN:
                    await until(lambda: all(one._body is not EMPTY_PAYLOAD for one in site._limits))
                if sent == REFUSED:  # and the rest of the body is read and dropped
                    for reader, _ in pipes:
                        await reader.read(1)
                transports.update(one._wire for one in site._limits if one._wire is not None)
                if by_node:
                    for one in list(site._limits):
                        one.end()
                    del one  # it would be held by this name
                for _, writer in pipes:
                    writer.close()
                await until(lambda: not transports)
            finally:
                gc.enable()

    on_loop(holds)()


@on_loop
async def test_idle_connections_are_closed_for_new_ones() -> None:
    async with servers(clients=20, timeouts=ConnectionTimeouts(request_s=60)) as served:
        idle = [await _opened(served, HALF if number % 2 else b"") for number in range(120)]
        for _ in range(10):
            async with served.session.get(served.url("/v1/cluster"), headers={"Connection": "close"}) as answer:
                assert answer.status == 200
        over = await asyncio.gather(*(_heard(pipe) for pipe in idle[:100]))
        assert over == [b""] * 100, "the oldest have been closed"
        for _, writer in idle:
            writer.close()


@on_loop
async def test_requests_are_answered_while_more_connections_come() -> None:
    limits = RequestLimits(body_s=5, write_s=1)
    async with servers(limits=limits, clients=8) as served:
        slow = [await _opened(served, HALF + b"Content-Type: application/json\r\nContent-Length: 9\r\n\r\n")]
        idle = [await _opened(served) for _ in range(50)]
        slow[0][1].write(b'{"a": 1 }')
        answer = await slow[0][0].readuntil(b"\r\n\r\n")
        assert answer.split()[1] == b"422"
        for _, writer in (*slow, *idle):
            writer.close()


@on_loop
async def test_a_head_that_does_not_arrive_times_out() -> None:
    async with servers(timeouts=HASTY) as served:
        trickled = await _opened(served, HALF)

        async def trickle() -> None:
            while not trickled[1].is_closing():
                trickled[1].write(b"X")
                await asyncio.sleep(0.05)

        trickling = asyncio.create_task(trickle())
        silent, asked = (
            await _opened(served),
            await _opened(served, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        )
        assert (await _heard(asked)).startswith(b"HTTP/1.1 200"), "and kept for a while, but not for ever"
        assert {await _heard(silent), await _heard(trickled)} == {b""}
        trickling.cancel()


@on_loop
async def test_endless_headers_are_refused() -> None:
    async with servers() as served:
        pipe = await _opened(served, HALF)
        for number in range(HEAD_BYTES // 4000 + 2):
            pipe[1].write(b"X-%d: %b\r\n" % (number, b"a" * 4000))
        assert _problem(await _heard(pipe)) == (400, "bad-request")


@on_loop
async def test_garbage_is_answered_with_a_delay_and_counts_as_idle() -> None:
    async with servers(clients=4, timeouts=ConnectionTimeouts(garbage_s=1)) as served:
        begun = time.monotonic()
        assert _problem(await _heard(await _opened(served, GARBAGE))) == (400, "bad-request")
        assert time.monotonic() - begun >= 0.5
    async with servers(clients=4, timeouts=ConnectionTimeouts(garbage_s=60)) as served:
        before = len(asyncio.all_tasks())
        garbage = [await _opened(served, GARBAGE + b"more of it") for _ in range(8)]
        for _ in range(5):
            assert (await served.get("/healthz", headers={"Connection": "close"})).status == 200
        assert [await _heard(pipe) for pipe in garbage[:4]] == [b""] * 4, "the oldest have been closed for others"
        for _, writer in garbage:
            writer.close()
        async with asyncio.timeout(10):
            while len(asyncio.all_tasks()) > before:  # noqa: ASYNC110 - nothing tells when the connections are gone
                await asyncio.sleep(0.02)


@on_loop
async def test_a_body_that_does_not_arrive_times_out() -> None:
    limits = RequestLimits(body_s=0.3, write_s=1)
    chunked = HALF + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with servers(limits=limits, timeouts=HASTY) as served:
        assert _problem(await _heard(await _opened(served, chunked + b"1\r\n{\r\n"))) == (408, "request-timeout")
        endless = await _opened(served, chunked)
        endless[1].write(b"".join(b"10000\r\n%b\r\n" % (b" " * 65_536) for _ in range(20)))
        assert _problem(await _heard(endless)) == (413, "too-large")
        # Where no body is read, it is not waited for either.
        unread = chunked.replace(b"PUT /v1/tasks/a", b"GET /healthz") + b"1\r\n{\r\n"
        assert (await _heard(await _opened(served, unread))).startswith(b"HTTP/1.1 200")


@on_loop
async def test_a_body_that_cannot_be_parsed_is_refused_at_once() -> None:
    async with servers(limits=RequestLimits(body_s=60)) as served:
        head = HALF + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        later, together = await _opened(served, head + b"1\r\n{\r\n"), await _opened(served, head + b"zz\r\n")
        later[1].write(b"zz\r\n")
        for pipe in (later, together):
            assert _problem(await _heard(pipe)) == (400, "bad-request")


@on_loop
async def test_without_a_token_no_body_is_read() -> None:
    async with servers(token="t0ken", limits=RequestLimits(body_s=60), timeouts=HASTY) as served:
        for rest in (b"Content-Length: 1000000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"):
            for expect in (b"", b"Expect: 100-continue\r\n"):
                refused = await _heard(await _opened(served, HALF + expect + rest))
                assert _problem(refused) == (401, "unauthorized"), "and not: go on"
                assert b"Connection: close" in refused


@on_loop
async def test_compressed_bodies_are_refused() -> None:
    packed = gzip.compress(b'{"kind": "copy", "params": {"source": "x"}}')
    async with servers(token="t0ken") as served:
        for token, encoding, status in (("t0ken", "gzip", 415), ("t0ken", "x-strange", 415), ("other", "gzip", 401)):
            head = HALF + f"Authorization: Bearer {token}\r\nContent-Encoding: {encoding}\r\n".encode()
            head += b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(packed)
            assert _problem(await _heard(await _opened(served, head + packed)))[0] == status
        plain = {"Content-Encoding": "identity", "Content-Type": "application/json", "Authorization": "Bearer t0ken"}
        async with served.session.put(served.url("/v1/tasks/a"), headers=plain, data=gzip.decompress(packed)) as answer:
            assert answer.status == 201


@on_loop
async def test_a_compressed_body_is_not_decompressed() -> None:
    """aiohttp decompresses while it parses, before a handler could refuse the body."""

    async def echo(request: web.BaseRequest) -> web.Response:
        return web.Response(body=await request.read())

    runner = web.ServerRunner(web.Server(echo))
    await runner.setup()
    site = Listener(runner, "127.0.0.1", 0, ConnectionLimits(9), ConnectionTimeouts())
    await site.start()
    try:
        packed = gzip.compress(b" " * 1000)
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        head = HALF + b"Connection: close\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
        writer.write(head + packed)
        assert (await _heard((reader, writer))).endswith(b"\r\n\r\n" + packed)
    finally:
        await runner.cleanup()


@on_loop
async def test_a_client_that_does_not_read_is_disconnected() -> None:
    async with servers(timeouts=HASTY) as served:
        for number in range(40):
            await served.put_task(f"task-{number}", params={"source": "x" * 200_000})
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(sock, ("127.0.0.1", served.ports["node-1"]))
        before = len(asyncio.all_tasks())
        await loop.sock_sendall(sock, b"GET /v1/tasks HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with asyncio.timeout(10):
            while len(asyncio.all_tasks()) >= before:  # noqa: ASYNC110 - nothing tells when the connection is gone
                await asyncio.sleep(0.02)
        sock.close()


@contextmanager
def _descriptors(most: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_without_descriptors_accepting_pauses_with_few_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    @on_loop
    async def starved() -> None:
        async with servers() as served:
            assert (await served.get("/healthz")).status == 200
            there = ("127.0.0.1", served.ports["node-1"])
            clients = [socket.socket() for _ in range(60)]
            most = max(client.fileno() for client in clients) + 1
            with _descriptors(most):
                for client in clients:
                    client.settimeout(5)
                    client.connect(there)
                async with asyncio.timeout(5):
                    while not caplog.records:  # noqa: ASYNC110 - nothing tells when a line was written
                        await asyncio.sleep(0.02)
                await asyncio.sleep(0)
            answers = []
            for client in clients:
                client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                answers.append(await asyncio.to_thread(client.recv, 12))
                client.close()
            assert answers == [b"HTTP/1.1 200"] * 60

    starved()
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert 1 <= len(warnings) <= 3, warnings
    assert "no connection can be accepted" in warnings[0]


@on_loop
async def test_a_required_index_must_be_possible_and_is_ignored_by_probes() -> None:
    async with servers() as served:
        for wrong in ("-1", str(2**63), "x", "1.5", "+1", "\u00b2"):
            refused = await served.get("/v1/cluster", headers={"Rota-Index": wrong})
            assert (refused.status, refused.problem) == (400, "bad-request"), wrong
            assert "from 0 to 2^63 - 1" in refused.json["detail"]
            assert (await served.get("/healthz", headers={"Rota-Index": wrong})).status == 200
        assert (await served.get("/v1/cluster", headers={"Rota-Index": "0"})).status == 200
        assert (await served.get("/v1/cluster", headers={"Rota-Index": str(2**63 - 1)})).problem == "behind"


@on_loop
async def test_the_number_of_streams_is_limited() -> None:
    async with servers(limits=RequestLimits(streams=2)) as served:
        streams = [await served.session.get(served.url("/v1/events")) for _ in range(2)]
        refused = await served.get("/v1/events")
        assert (refused.status, refused.problem) == (503, "overloaded")
        assert (await served.get("/v1/cluster")).status == 200
        streams[0].close()
        async with asyncio.timeout(5):
            while (again := await served.session.get(served.url("/v1/events"))).status != 200:
                again.close()
        again.close()
        streams[1].close()


@on_loop
async def test_ambiguous_json_is_refused() -> None:
    async with servers() as served:
        headers = {"Content-Type": "application/json"}
        twice = b'{"kind": "copy", "params": {"source": "x", "source": "y"}}'
        for body in (twice, twice.replace(b"{", b"{" + b" " * 70_000, 1)):
            refused = await served.ask("PUT", "/v1/tasks/a", data=body, headers=headers)
            assert (refused.status, refused.problem) == (400, "bad-request")
            assert "'source' occurs twice" in refused.json["detail"]


@on_loop
async def test_the_answer_to_very_many_parameters_is_bounded() -> None:
    async with servers() as served:
        many = await served.get("/v1/tasks?" + "&".join(f"x{number}=1" for number in range(900)))
        assert (many.status, len(many.json["errors"])) == (422, 100)
        assert (await served.get("/v1/tasks?limit=1&" + "a" * 9000)).problem == "bad-request"
