"""Requests between members are signed one by one: a captured one is worthless."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from node.client import ApiProblem, Client
from node.membership.join_request import JoinRequest
from node.peer.client import PeerClient
from node.peer.join_client import JoinClient
from node.peer.protocol import PeerAway
from node.peer.signing import CHALLENGE, SIGNED, PeerRequest, new_request, response_mac, signing_key
from node.state.entries import Seed
from node.state.members import AddMember
from testkit.http.fake_node import NOW_US, SECRET
from testkit.http.http_cluster import Servers, on_loop, servers
from testkit.http.reply import Reply

pytestmark = pytest.mark.integration

KEY = signing_key(SECRET)


async def _signed(
    served: Servers, path: str, target: str = "node-1", method: str = "GET", body: bytes = b""
) -> PeerRequest:
    """A request of node-2, with the challenge of its target."""
    known = await served.get("/peer/members", node=target or "node-1")
    assert (known.status, known.headers["WWW-Authenticate"]) == (401, "Rota")
    return new_request(method, path, body, "node-2", target, "", known.headers[CHALLENGE])


async def _say(
    served: Servers, question: PeerRequest, node: str = "node-1", path: str = "", data: bytes = b""
) -> Reply:
    headers = {"Authorization": question.header(KEY), "Content-Type": "application/json"}
    return await served.ask(question.method, path or question.path, node=node, headers=headers, data=data or None)


@on_loop
async def test_a_captured_request_is_rejected() -> None:
    async with servers(("node-1", "node-2", "node-3"), token="t0ken") as served:
        question = await _signed(served, "/peer/members")
        first = await _say(served, question)
        assert first.status == 200
        assert first.headers[SIGNED] == response_mac(KEY, question.mac(KEY), 200, first.body)
        again = await _say(served, question)
        assert (again.status, again.problem) == (401, "unauthorized")
        fresh = await _signed(served, "/peer/members")
        assert (await _say(served, fresh, node="node-3")).status == 401, "at another member"
        assert (await _say(served, fresh, path="/peer/kinds/copy")).status == 401, "for something else"
        assert (await _say(served, fresh)).status == 200


@on_loop
async def test_a_signature_is_accepted_between_members_only() -> None:
    async with servers(("node-1",), token="t0ken") as served:
        seed = b'{"id": "node-4", "host": "host-4", "raft_port": 7001, "http_port": 8101}'
        for method, path, body in (
            ("GET", "/v1/cluster", b""),
            ("GET", "/v1/members", b""),
            ("POST", "/v1/members", seed),
            ("PUT", "/v1/tasks/a", b'{"kind": "copy", "params": {"source": "x"}}'),
            ("GET", "/metrics", b""),
            ("GET", "/docs", b""),
        ):
            question = await _signed(served, path, method=method, body=body)
            assert (await _say(served, question, data=body)).status == 401, path
        for header in ("Bearer t0ken", f"Bearer {SECRET}", f"Bearer {KEY.hex()}"):
            assert (await served.get("/peer/members", headers={"Authorization": header})).status == 401


@on_loop
async def test_a_body_is_signed_and_read_only_after_the_check() -> None:
    async with servers(("node-1",)) as served:
        body = b'{"runs": [], "tasks": []}'
        question = await _signed(served, "/peer/progress", method="POST", body=body)
        changed = await _say(served, question, data=body.replace(b"[]", b'["a"]'))
        assert (changed.status, changed.json["detail"]) == (401, "the body differs from the one that was signed")
        question = await _signed(served, "/peer/progress", method="POST", body=body)
        assert (await _say(served, question, data=body)).status == 200


@on_loop
async def test_a_joining_node_may_send_join_requests_only() -> None:
    async with servers(("node-1",), token="t0ken") as served:
        for path in ("/peer/kinds/copy", "/v1/members"):
            assert (await _say(served, await _signed(served, path, target=""))).status == 401
        me = Seed("node-9", "host-9", 7001, 8101)
        newcomer = JoinClient(Client((served.url(""),)), SECRET, me.id)
        join_request = JoinRequest(me, served.url(""), newcomer)
        members = await asyncio.to_thread(join_request.members)
        assert [seed.id for seed in members] == ["node-1", "node-9"]
        await join_request.enter()
        assert "node-9" in served.cluster.machine.state.members
        stranger = JoinClient(Client((served.url(""),)), "another secret", me.id)
        with pytest.raises(ApiProblem) as refused:
            await asyncio.to_thread(stranger.get, "/peer/members")
        assert refused.value.status == 401


@asynccontextmanager
async def _impostor(
    served: Servers, *, replays: Reply | None = None, challenge: str | None = None
) -> AsyncIterator[list[str]]:
    """An impostor at the address of a member; it keeps what it is sent. `challenge`: it answers 401 with that."""
    caught: list[str] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        caught.append(request.headers.get("Authorization", ""))
        if challenge is not None:
            return web.json_response(
                {"status": 401, "title": "Unauthorized"}, status=401, headers={CHALLENGE: challenge}
            )
        if replays is not None:
            return web.Response(body=replays.body, headers={SIGNED: replays.headers[SIGNED]})
        return web.json_response({"cluster_id": "c-1", "index": 10**6, "members": []})

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    [(_, port)] = runner.addresses
    served.cluster.ok(AddMember(NOW_US, Seed("evil", "127.0.0.1", 7999, port)))
    try:
        yield caught
    finally:
        await runner.cleanup()


@on_loop
async def test_an_impostor_at_a_members_address_learns_nothing_and_is_not_believed() -> None:
    async with servers(("node-1",), token="t0ken") as served:
        peers = PeerClient(SECRET, served.node.state, me="node-1")
        try:
            async with _impostor(served) as caught:
                with pytest.raises(PeerAway, match="does not know the cluster's secret"):
                    await peers.roster("evil", 2)
                for path in ("/peer/members", "/v1/cluster"):
                    assert (await served.get(path, headers={"Authorization": caught[0]})).status == 401
                assert SECRET not in caught[0]
        finally:
            await peers.close()


@on_loop
async def test_a_response_to_another_request_is_not_believed() -> None:
    async with servers(("node-1",), token="t0ken") as served:
        peers = PeerClient(SECRET, served.node.state, me="node-1")
        true = await _say(served, await _signed(served, "/peer/members"))
        try:
            async with _impostor(served, replays=true):
                with pytest.raises(PeerAway, match="does not know the cluster's secret"):
                    await peers.roster("evil", 2)
        finally:
            await peers.close()


@on_loop
async def test_a_request_to_a_restarted_member_is_signed_again_with_its_new_challenge() -> None:
    async with servers(("node-1", "node-2")) as served:
        peers = PeerClient(SECRET, served.node.state, me="node-1")
        try:
            for _ in range(2):
                assert len((await peers.roster("node-2", 2)).members) == 2
            await served.restart("node-2")
            assert len((await peers.roster("node-2", 2)).members) == 2
        finally:
            await peers.close()


@on_loop
async def test_another_secret_is_named_in_the_error() -> None:
    async with servers(("node-1", "node-2")) as served:
        strangers = PeerClient("another secret altogether", served.node.state)
        try:
            with pytest.raises(PeerAway, match="ROTA_SECRET"):
                await strangers.roster("node-2", 2)
        finally:
            await strangers.close()


@on_loop
async def test_a_member_of_another_build_is_named_as_such() -> None:
    async with servers(("node-1",)) as served:
        peers = PeerClient(SECRET, served.node.state, me="node-1")
        earlier = f"3-{'0' * 64}"  # its period, and no form
        try:
            async with _impostor(served, challenge=earlier):
                with pytest.raises(PeerAway, match="another build"):
                    await peers.roster("evil", 2)
                address = served.node.state().members["evil"]
                joining = JoinClient(Client((f"http://127.0.0.1:{address.http_port}",)), SECRET, "node-9")
                with pytest.raises(ApiProblem, match="Another build"):
                    await asyncio.to_thread(joining.get, "/peer/members")
            question = await _signed(served, "/peer/members")
            parts = question.header(KEY).removeprefix("Rota ").split(";")
            said = await served.get("/peer/members", headers={"Authorization": f"Rota {';'.join(parts[1:])}"})
            assert said.status == 401
            assert "another build" in said.json["detail"]
        finally:
            await peers.close()
