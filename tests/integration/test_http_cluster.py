"""The cluster, its members and settings, and what all requests have in common."""

import asyncio
import base64
import json
import logging
import sqlite3

import pytest

from node.client import ApiProblem, Client
from node.identity.mismatches import Mismatch
from node.raft.errors import ChangeRefused, EntryTooLarge, NoQuorum, OutcomeUnknown, Overloaded, RaftStopped
from node.raft.founding.founding import FoundingWait
from node.raft.ports import RaftRole
from node.state.codec import BadEntry
from node.state.members import Join
from tasks.version import version
from testkit.http.fake_node import SECRET
from testkit.http.http_cluster import on_loop, servers

pytestmark = pytest.mark.integration


@on_loop
async def test_the_cluster_and_its_members() -> None:
    async with servers(("node-1", "node-2")) as served:
        view = (await served.get("/v1/cluster")).json
        assert (view["id"], view["node"], view["leader"], view["term"], view["quorum"]) == (
            "c-1",
            "node-1",
            "node-1",
            3,
            True,
        )
        assert {"index", "epoch", "settings", "members"} <= view.keys()
        page = (await served.get("/v1/members?limit=1")).json
        assert [item["id"] for item in page["items"]] == ["node-1"]
        rest = (await served.get(f"/v1/members?after={page['next']}")).json
        assert ([item["id"] for item in rest["items"]], rest["next"]) == (["node-2"], None)
        fields = "id slot status reason aside incarnation labels capacity kinds url since load running max_runs".split()
        assert set(rest["items"][0]) == {*fields, "bootstrap"}


@on_loop
async def test_nodes_that_do_not_fit_are_told_to_clients_that_show_the_token_and_to_no_others() -> None:
    async with servers(("node-1",), token="t0ken") as served:
        served.node.mismatches = [Mismatch("node-2", "10.0.0.2", "secret", claimed=True, version="9.9")]
        view = (await served.get("/v1/cluster", headers={"Authorization": "Bearer t0ken"})).json
        assert view["version"] == version()
        assert view["mismatches"] == [
            {
                "member": "node-2",
                "address": "10.0.0.2",
                "code": "secret",
                "claimed": True,
                "version": "9.9",
                "detail": "a caller at 10.0.0.2 that says it is node-2 has another secret than node-1: ROTA_SECRET "
                "must be the same on all",
            }
        ]
        for path in ("/v1/cluster", "/healthz", "/readyz"):
            stranger = await served.get(path)
            assert b"9.9" not in stranger.body + repr(stranger.headers).encode()
            assert version().encode() not in stranger.body + repr(stranger.headers).encode()


@on_loop
async def test_members_are_drained_added_and_removed() -> None:
    async with servers(("node-1", "node-2")) as served:
        drained = await served.ask("POST", "/v1/members/node-2/drain")
        assert (drained.status, drained.json["status"]) == (200, "draining")
        assert (await served.ask("POST", "/v1/members/node-2/undrain", json={})).json["status"] == "up"
        seed = {"id": "node-3", "host": "host-3", "raft_port": 7001, "http_port": 8101}
        added = await served.ask("POST", "/v1/members", json=seed)
        assert (added.status, added.json["status"], added.json["reason"], added.json["slot"]) == (201, "down", "new", 2)
        again = await served.ask("POST", "/v1/members", json=seed)
        assert (again.status, again.problem, again.json["code"]) == (409, "conflict", "exists")
        wrong = await served.ask("POST", "/v1/members", json={**seed, "id": "a/b", "raft_port": 0})
        assert set(wrong.fields) == {"id", "raft_port"}
        assert (await served.ask("DELETE", "/v1/members/node-3")).status == 204
        assert (await served.ask("DELETE", "/v1/members/node-3")).problem == "not-found"
        assert (await served.ask("POST", "/v1/members/node-9/drain")).problem == "not-found"
        served.cluster.fault = ChangeRefused("another change is under way")
        busy = await served.ask("POST", "/v1/members", json=seed)
        assert (busy.status, busy.json["detail"]) == (409, "another change is under way")


@on_loop
async def test_settings_are_changed_one_by_one() -> None:
    async with servers() as served:
        assert (await served.get("/v1/settings")).json["balance_slack"] == 0
        changed = await served.ask("PATCH", "/v1/settings", json={"balance_slack": 0.125, "lease_s": 3})
        assert (changed.status, changed.json["balance_slack"], changed.json["lease_s"]) == (200, 0.125, 3)
        off = await served.ask("PATCH", "/v1/settings", json={"balance_slack": None})
        assert (off.json["balance_slack"], off.json["lease_s"]) == (None, 3)
        assert (await served.ask("PATCH", "/v1/settings", json={})).json == off.json
        body = {"balance_slack": 0.0001, "lease_s": "3", "history_days": 0, "hue": 1}
        wrong = await served.ask("PATCH", "/v1/settings", json=body)
        assert set(wrong.fields) == set(body)


@on_loop
async def test_health_and_readiness() -> None:
    async with servers(token="t0ken") as served:
        assert (await served.get("/healthz")).status == 200
        known = {"Authorization": "Bearer t0ken"}
        assert (await served.get("/readyz")).json == {"status": "ready"}
        assert (await served.get("/readyz", headers=known)).json == {"status": "ready", "leader": "node-1"}
        served.node.role, served.node.lease_held = RaftRole(leader=None, ready=False), False
        away = await served.get("/readyz")
        assert (away.status, away.problem) == (503, "not-ready")
        assert away.json["codes"] == ["behind", "no-leader", "no-lease"]
        served.node.outlook = FoundingWait(silent=("node-2",))
        founding = await served.get("/readyz")
        assert (founding.json["codes"], "node-2" in founding.body.decode()) == (["no-cluster"], False)
        assert "node-2 has not answered" in (await served.get("/readyz", headers=known)).json["detail"]
        assert (await served.get("/healthz")).status == 200


@on_loop
async def test_clients_need_the_token_and_members_a_signature() -> None:
    async with servers(token="t0ken") as served:

        async def status(path: str, authorization: str | None) -> int:
            headers = {"Authorization": authorization} if authorization else {}
            return (await served.get(path, headers=headers)).status

        for wrong in (None, "Bearer other", "t0ken", "Bearer t0ken2", f"Bearer {SECRET}"):
            assert await status("/v1/cluster", wrong) == 401
            assert await status("/peer/kinds/copy", wrong) == 401
        refused = await served.get("/v1/cluster")
        assert (refused.problem, refused.headers["WWW-Authenticate"]) == ("unauthorized", 'Bearer realm="rota"')
        for authorization, code in ((None, "no-token"), ("Bearer other", "wrong-token"), ("Basic x", "no-token")):
            headers = {"Authorization": authorization} if authorization else {}
            assert (await served.get("/v1/cluster", headers=headers)).json["code"] == code
        assert not {"Server", "Rota-Index", "Rota-Epoch"} & refused.headers.keys()
        client = Client((served.url(""),), "other", token_from="ROTA_TOKEN_FILE=token")
        with pytest.raises(ApiProblem, match=r"the token is wrong.*from ROTA_TOKEN_FILE=token"):
            await asyncio.to_thread(client.get, "/v1/cluster")
        with pytest.raises(ApiProblem, match="there is no token"):
            await asyncio.to_thread(Client((served.url(""),)).get, "/v1/cluster")
        assert await status("/v1/cluster", "Bearer t0ken") == 200
        assert await status("/peer/kinds/copy", "Bearer t0ken") == 401
        password = "Basic " + base64.b64encode(b":t0ken").decode()
        assert await status("/docs", password) == 200
        # Browsers ask for a password only where Basic is the first challenge of its line.
        assert (await served.get("/docs")).headers["WWW-Authenticate"].startswith("Basic ")
        assert await status("/docs", None) == await status("/metrics", None) == 401
        assert await status("/v1/cluster", password) == 401
        # Without a token, the errors of a request are not disclosed.
        assert (await served.ask("PUT", "/v1/tasks/a%2Fb", json={})).status == 401


@on_loop
async def test_head_is_answered_as_get_without_the_body() -> None:
    async with servers(token="t0ken") as served:
        known = {"Authorization": "Bearer t0ken"}
        for path in ("/healthz", "/readyz", "/v1/cluster", "/v1/tasks/nobody"):
            got, head = await served.get(path, headers=known), await served.ask("HEAD", path, headers=known)
            assert (head.status, head.body) == (got.status, b"")
            assert {"Rota-Index", "Rota-Epoch", "Content-Length"} <= head.headers.keys()
        assert (await served.ask("HEAD", "/v1/cluster")).status == 401
        assert (await served.ask("HEAD", "/v1/events", headers=known)).status == 405


def test_bytes_that_are_not_http_are_refused_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    @on_loop
    async def scanned() -> None:
        async with servers() as served:
            too_long = b"GET / HTTP/1.1\r\nX: " + b"a" * 20_000 + b"\r\n\r\n"
            for sent in (b"\x16\x03\x01\x02\x00\r\n\r\n", too_long, b"SSH-2.0\r\n\r\n"):
                reader, writer = await asyncio.open_connection("127.0.0.1", served.ports["node-1"])
                writer.write(sent)
                answer = await reader.read()
                assert answer.split()[1] == b"400"
                head, _, body = answer.partition(b"\r\n\r\n")
                assert b"Content-Type: application/problem+json" in head
                assert b"Rota-" not in head
                assert b"Server" not in head
                assert b"aiohttp" not in answer
                assert json.loads(body)["status"] == 400
                writer.close()

    scanned()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


@on_loop
async def test_requests_of_foreign_web_pages_are_refused() -> None:
    async with servers() as served:
        for host in ("evil.example", "evil.example:8101", ""):
            refused = await served.get("/v1/cluster", headers={"Host": host})
            assert (refused.status, refused.problem) == (421, "misdirected")
        for host in ("localhost:1", "rota.example", "10.0.0.1"):
            assert (await served.get("/v1/cluster", headers={"Host": host})).status == 200
        await served.put_task("a")
        for page in (
            {"Origin": "http://evil.example"},
            {"Origin": "http://localhost:3000"},
            {"Origin": "null"},
            {"Sec-Fetch-Site": "cross-site"},
        ):
            for body in (None, dict[str, str]()):
                foreign = await served.ask("POST", "/v1/tasks/a/pause", headers=page, json=body)
                assert (foreign.status, foreign.problem) == (403, "foreign-page"), page
            assert (await served.get("/v1/cluster", headers={**page, "Authorization": "Basic eDp5"})).status == 403
            assert (await served.get("/v1/cluster", headers=page)).status == 200, (
                "a page may send it, and cannot read the response"
            )
        for own in (f"http://127.0.0.1:{served.ports['node-1']}", "https://rota.example"):
            headers = {"Origin": own, "Sec-Fetch-Site": "same-origin"}
            assert (await served.ask("POST", "/v1/tasks/a/pause", headers=headers, json={})).status == 200
        link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Authorization": "Basic eDp5"}
        assert (await served.get("/docs", headers=link)).status == 200


@on_loop
async def test_unknown_paths_and_wrong_methods_are_problems() -> None:
    async with servers() as served:
        nothing = await served.get("/v2/things")
        assert (nothing.status, nothing.problem) == (404, "not-found")
        wrong = await served.ask("PATCH", "/v1/tasks/a")
        assert (wrong.status, wrong.problem) == (405, "method-not-allowed")
        assert set(wrong.headers["Allow"].split(", ")) == {"DELETE", "GET", "HEAD", "PUT"}
        assert list((await served.get("/v1/cluster?hue=1")).fields) == ["hue"]


@on_loop
async def test_a_write_without_a_quorum_says_whether_it_may_yet_be_committed() -> None:
    async with servers() as served:
        await served.put_task("a")
        for fault, status, problem in (
            (NoQuorum("no leader"), 503, "no-quorum"),
            (OutcomeUnknown("?"), 504, "outcome-unknown"),
            (Overloaded(), 503, "overloaded"),
            (RaftStopped(), 503, "stopping"),
            (EntryTooLarge(), 413, "too-large"),
            (BadEntry("cannot be packed"), 422, "invalid"),
        ):
            served.cluster.fault = fault
            for reply in (await served.put_task("b"), await served.ask("DELETE", "/v1/tasks/a")):
                assert (reply.status, reply.problem) == (status, problem)
        served.cluster.fault = NoQuorum()
        served.node.role = RaftRole(leader=None, has_quorum=False)
        assert (await served.get("/v1/cluster")).json["quorum"] is False
        assert (await served.get("/v1/tasks/a/owner")).json["owner"] == "node-1"
        behind = await served.get("/v1/tasks/a?consistent=true")
        assert (behind.status, behind.problem) == (503, "no-quorum")


@on_loop
async def test_a_node_that_does_not_answer_blocks_no_request() -> None:
    async with servers() as served:

        async def never(*_: object) -> None:
            await asyncio.Event().wait()

        served.node.propose = served.node.barrier = never  # type: ignore[method-assign, assignment]
        slow = await asyncio.gather(served.put_task("a"), served.get("/v1/tasks?consistent=true"))
        assert [reply.problem for reply in slow] == ["outcome-unknown", "no-quorum"]


@on_loop
async def test_a_request_waits_for_the_index_that_it_names() -> None:
    async with servers(("node-1", "node-2")) as served:
        wrote = await served.put_task("a")
        index = wrote.headers["Rota-Index"]
        assert (await served.get("/v1/tasks/a", node="node-2", headers={"Rota-Index": index})).status == 200
        ahead = await served.get("/v1/tasks/a", headers={"Rota-Index": str(int(index) + 1)})
        assert (ahead.status, ahead.problem) == (503, "behind")
        for wrong in ("x", "-1", "1" * 30, "²"):
            assert (await served.get("/v1/tasks/a", headers={"Rota-Index": wrong})).problem == "bad-request"


@on_loop
async def test_a_consistent_read_waits_for_a_commit() -> None:
    async with servers() as served:
        for value in ("true", "1", "false"):
            assert (await served.get(f"/v1/settings?consistent={value}")).status == 200
        assert list((await served.get("/v1/settings?consistent=maybe")).fields) == ["consistent"]
        assert list((await served.ask("POST", "/v1/tasks?consistent=true", json=[])).fields) == ["consistent"]


@on_loop
async def test_an_unexpected_error_is_answered_and_logged() -> None:
    async with servers() as served:
        served.node.role = None  # type: ignore[assignment]
        logging.getLogger("rota.http").disabled = True
        try:
            reply = await served.get("/v1/cluster")
        finally:
            logging.getLogger("rota.http").disabled = False
        assert (reply.status, reply.problem) == (500, "internal")


@on_loop
async def test_a_failing_disk_is_answered_with_not_ready() -> None:
    class FullDisk:
        def runs(self, *_: object) -> None:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error

    async with servers() as served:
        history, served.cluster.history = served.cluster.history, FullDisk()  # type: ignore[assignment]
        logging.getLogger("rota.http").disabled = True
        try:
            reply = await served.get("/v1/runs")
        finally:
            logging.getLogger("rota.http").disabled = False
            served.cluster.history = history
        assert (reply.status, reply.problem) == (503, "not-ready")
        assert reply.json["detail"] == (
            "the files of node-1 cannot be used now (database or disk is full): ask another member; the disk is full: "
            "delete something on the file system of its ROTA_DATA"
        )


@on_loop
async def test_kinds_have_the_schema_of_their_params_from_any_member() -> None:
    async with servers(("node-1", "node-2")) as served:
        served.nodes["node-1"].kinds = type(served.node.kinds)({})
        [kind] = (await served.get("/v1/kinds")).json["items"]
        assert (kind["kind"], kind["members"]) == ("copy", ["node-1", "node-2"])
        assert kind["params"]["required"] == ["source"]
        wrong = await served.put_task("a", params={"times": 0})
        assert set(wrong.fields) == {"params.source", "params.times"}
        assert (await served.put_task("a")).status == 201
        await served.stop("node-2")
        away = await served.put_task("b")
        assert (away.status, away.problem) == (503, "member-away")
        assert (await served.get("/v1/kinds")).json["items"][0]["params"] is None


@on_loop
async def test_a_kind_that_is_installed_but_not_offered_is_refused() -> None:
    async with servers() as served:
        member = served.cluster.machine.state.members["node-1"]
        served.cluster.ok(
            Join(
                1, "node-1", member.host, member.raft_port, member.http_port, 9, (), 1, ("other",), member.incarnation
            ),
        )
        refused = await served.put_task("a")
        assert "no member offers it" in refused.fields["kind"]
        assert '"other"' in refused.fields["kind"]
