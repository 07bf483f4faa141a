"""Hostile requests to every route: no answer is a 500, and each says what is wrong."""

import asyncio
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgpack
import pytest

from node.http.api.openapi import openapi_document
from node.http.app import ENDPOINTS
from node.http.door.problems import CATALOGUE, MEDIA_TYPE, TYPE_PREFIX
from node.peer.signing import CHALLENGE, new_request, signing_key
from node.raft.founding.founding import FoundingWait
from node.state.attempts import Began, Checkpoint, Finish
from node.state.backfills import StartBackfill
from node.state.blackouts import SetBlackout
from node.state.calendars import SetCalendar
from node.state.channel import Channel
from node.state.claims import Claim
from node.state.codec import from_pieces, snapshot_pieces
from node.state.entries import Seed
from node.state.members import AddMember, TakeLead
from node.state.occurrences import Start
from node.state.registry import Put, PutTasks
from node.state.telling import PutChannel
from node.state.value import RULES
from tasks.definition.spec import Spec
from testkit.http.fake_node import NOW_US, SECRET
from testkit.http.hostile import BODIES, EVERYWHERE, HEADERS, IDS, PATHS, QUERIES, Heard, say, spoilt
from testkit.http.http_cluster import Servers, on_loop, servers

pytestmark = pytest.mark.integration

DOCUMENT: Final = openapi_document(ENDPOINTS, secured=True)
TAGS: Final = [tag["name"] for tag in DOCUMENT["tags"]]
CLIENT: Final = {b"Authorization": b"Bearer t0ken"}
JSON: Final = {b"Content-Type": b"application/json"}

SPEC: Final[dict[str, Any]] = {
    "kind": "copy",
    "params": {"source": "x", "times": 2, "also": ["y"]},
    "schedule": {"every_s": 60},
    "key": "k",
    "group": {"disk": "ssd"},
    "pin": "node-1",
    "sticky": True,
    "weight": 2,
    "standbys": 1,
    "overlap": "allow",
    "catch_up": "all",
    "timeout_s": 5,
    "retry": {"attempts": 3, "backoff_s": 10, "factor": 2, "max_s": 900},
    "failover": {"grace_s": 0, "resume": "checkpoint", "max": 3},
    "enabled": True,
}
AT: Final = {"name": "at", "kind": "copy", "params": {"source": "x"}, "schedule": {"at": "2027-01-01T00:00:00Z"}}
CRON: Final = {**AT, "name": "cron", "schedule": {"cron": "0 3 * * *", "timezone": "Europe/Paris"}}
KEPT: Final = {
    "task": {**AT, "name": "kept", "schedule": {"continuous": True}},
    "order": 7,
    "version": 2,
    "registered_at_us": 5,
    "since_us": 6,
    "through_us": 7,
    "paused": False,
    "incumbent": None,
    "skipped": 1,
    "missed": 2,
    "last": {"run_id": "r", "state": "succeeded", "fire_at_us": 1, "finished_at_us": 2, "error": "no"},
    "requests": [["key", "run"]],
}
SENT: Final[dict[str, Any]] = {
    "PUT /v1/tasks/{name}": SPEC,
    "POST /v1/tasks": [AT, CRON],
    "POST /v1/tasks/{name}/runs": {"params": {"source": "z", "more": 1}, "fire_at": "2027-01-01T00:00:00Z"},
    "POST /v1/tasks/{name}/actions/{action}": {"args": {"rows": 3}, "params": {"source": "z"}},
    "PATCH /v1/settings": {
        "balance_slack": 0.5,
        "lease_s": 2,
        "window_s": 1,
        "margin_s": 0.5,
        "refusal_is_death": True,
        "history_days": 3,
    },
    "POST /v1/tasks/{name}/backfills": {"from": "2026-11-17T23:00:00Z", "parallel": 2},
    "PUT /v1/calendars/{name}": {"dates": ["2026-12-24", "2026-12-31"]},
    "PUT /v1/blackouts/{name}": {
        "begins": "2090-01-01T00:00:00Z",
        "ends": "2090-01-02T00:00:00+01:00",
        "labels": {"team": "a"},
    },
    "PUT /v1/channels/{name}": {
        "kind": "webhook",
        "url": "https://hooks.example/rota",
        "secret": {"secret": "hook"},
        "events": ["run_failed"],
        "min_severity": "info",
        "labels": {"team": "a"},
        "quiet": {"from": "22:00", "to": "07:00", "timezone": "UTC"},
        "digest": {"at": "07:30", "timezone": "UTC"},
        "group_s": 5,
        "enabled": True,
    },
    "POST /v1/members": {"id": "node-4", "host": "host-4", "raft_port": 7001, "http_port": 8101},
    "POST /v1/cluster/found": {"without": ["node-2"]},
    "POST /v1/cluster/saved": {
        "beside": 2,
        "token": 1,
        "orders": 7,
        "settings": {"balance_slack": 0.1, "lease_s": 2, "history_days": 3},
        "tasks": [KEPT],
    },
    "POST /peer/members": {"id": "node-4", "host": "host-4", "raft_port": 7001, "http_port": 8101},
    "POST /peer/progress": {"runs": ["r"], "tasks": ["a"]},
    "POST /peer/bootstrap": {
        "member": "node-2",
        "started_us": 5,
        "indexes_total": 20,
        "indexes": 5,
        "index": 5,
        "feeder": "node-1",
        "fed": [["node-1", 7]],
        "fetching_s": 0.5,
        "waiting": "no",
        "finished_us": 6,
    },
    "POST /peer/check": {"kind": "copy", "params": [{"source": "x"}], "bound": [False]},
}
"""A valid body for each route that takes one."""


class Ground:
    """A cluster with some of everything, which is reset before each request."""

    def __init__(self, served: Servers) -> None:
        self.port = served.ports["node-1"]
        self._cluster = cluster = served.cluster
        puts = tuple(Put(Spec.model_validate({**SPEC, "name": name}).pack()) for name in ("a", "b"))
        served.node.receiver_says = "200"
        cluster.ok(PutTasks(NOW_US, puts))
        cluster.ok(TakeLead(NOW_US, "node-1", cluster.machine.state.lead.term + 1, RULES))
        cluster.ok(PutChannel(NOW_US, "a", Channel.model_validate(SENT["PUT /v1/channels/{name}"]).pack()))
        cluster.ok(SetCalendar(NOW_US, "a", (740_000,)))
        cluster.ok(SetBlackout(NOW_US, "a", 2 * NOW_US, 3 * NOW_US))
        backfill = cluster.ok(StartBackfill(NOW_US, "b", NOW_US - 600_000_000, NOW_US, 10))["backfill"]
        cluster.ok(AddMember(NOW_US, Seed("node-3", "host-3", 7003, 8103)))
        [over, run_id] = [self._running(name) for name in ("b", "a")]
        cluster.ok(Finish(NOW_US, over, cluster.machine.state.runs[over].attempts[-1].token, "succeeded", {"rows": 7}))
        self._state, self._ownership = cluster.machine.state, cluster.ownership
        log = served.node.log_path(run_id, 1)
        log.parent.mkdir(parents=True)
        log.write_text("said")
        self._challenge = ""
        self.names = {"name": b"a", "id": b"node-2", "run_id": run_id.encode(), "kind": b"copy", "asset": b"start.js"}
        self.names |= {"action": b"preview", "number": str(backfill).encode()}
        self.asked: dict[str, dict[str, bytes]] = {
            "GET /v1/plan": {"without": b"node-2"},
            "GET /peer/log": {"run_id": run_id.encode(), "attempt": b"1"},
            "GET /peer/history": {"after": b"0", "through": b"1"},
        }

    def _running(self, task: str) -> str:
        cluster = self._cluster
        run_id = str(cluster.ok(Start(NOW_US, task))["run_id"])
        fire_at_us = cluster.machine.state.runs[run_id].fire_at_us
        token = cluster.ok(Claim(NOW_US, task, fire_at_us, "node-1", 1, run_id))["token"]
        cluster.ok(Began(NOW_US, run_id, token))
        cluster.ok(Checkpoint(NOW_US, run_id, token, bytes(msgpack.packb({"row": 7}))))
        return run_id

    async def ask(self, method: str, target: bytes, headers: dict[bytes, bytes], body: bytes) -> Heard:
        """Send a request, signed if the route is for members."""
        if not target.startswith(b"/peer/"):
            return await say(self.port, method, target, CLIENT | headers, body)
        path, cluster = (each.decode(errors="surrogateescape") for each in (target, headers.get(b"Rota-Cluster", b"")))
        heard = Heard(401, {}, None)
        for _ in range(2):
            question = new_request(method, path, body, "node-2", "node-1", cluster, self._challenge)
            signed = {b"Authorization": question.header(signing_key(SECRET)).encode()}
            heard = await say(self.port, method, target, signed | headers, body)
            if heard.status != 401 or b"Authorization" in headers:
                break
            self._challenge = heard.headers[CHALLENGE]
        return heard

    def restore(self) -> None:
        """Reset the cluster."""
        self._cluster.machine.state, self._cluster.ownership = self._state, self._ownership

    async def sound(self) -> bool:
        """Whether the present state can be served and stored."""
        state, before = self._cluster.machine.state, self._state
        if (state.tasks, state.runs) == (before.tasks, before.runs):
            return True
        answers = [
            await say(self.port, "GET", path, CLIENT) for path in (b"/v1/tasks", b"/v1/runs", b"/v1/cluster/saved")
        ]
        return [each.status for each in answers] == [200] * 3 and from_pieces(snapshot_pieces(state)) == state


@dataclass(frozen=True)
class Case:
    """The differences from a valid request."""

    names: dict[str, bytes] = field(default_factory=dict)
    asked: dict[str, bytes] = field(default_factory=dict)
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes | None = None


class Route:
    """A route, as /openapi.json describes it."""

    def __init__(self, method: str, path: str, ground: Ground) -> None:
        self.method, self.path, self.name = method, path, f"{method} {path}"
        self._told: dict[str, Any] = DOCUMENT["paths"][path][method.lower()]
        self._ground = ground
        self._headers: dict[bytes, bytes] = {}
        self._body = b""
        if "requestBody" in self._told:
            self._headers = self._headers | JSON
            self._body = json.dumps(SENT[self.name]).encode()

    @property
    def cases(self) -> Iterator[Case]:
        """Requests to it, each with one hostile value."""
        for name in self._named("path"):
            yield from (Case(names={name: value}) for value in PATHS)
        for name in self._named("query"):
            yield from (Case(asked={name: value}) for value in QUERIES)
        yield from (Case(asked={"strange": value}) for value in (b"%ff", b"\xff", b"%00"))
        for name in self._named("header"):
            yield from (Case(headers={name.encode(): value}) for value in HEADERS)
        if "Last-Event-ID" in self._named("header"):
            yield from (Case(headers={b"Last-Event-ID": value}) for value in IDS)
        yield from (Case(headers={name: value}) for name, values in EVERYWHERE.items() for value in values)
        if self._body:
            yield from (Case(body=body) for body in (*BODIES, *spoilt(SENT[self.name])))

    async def ask(self, case: Case) -> Heard:
        """Send a valid request with the differences of the case."""
        target = self.path.encode()
        for name, value in (self._ground.names | case.names).items():
            target = target.replace(b"{%b}" % name.encode(), value)
        asked = self._ground.asked.get(self.name, {}) | case.asked
        if asked:
            target += b"?" + b"&".join(b"%b=%b" % (name.encode(), value) for name, value in asked.items())
        body = self._body if case.body is None else case.body
        return await self._ground.ask(self.method, target, self._headers | case.headers, body)

    def fault(self, case: Case, heard: Heard) -> str | None:
        """The fault of an answer; None if it has none."""
        if heard.status < 400:
            return None
        if "X-Content-Type-Options" not in heard.headers:
            return "no answer of ours"
        if heard.headers["Content-Type"] != MEDIA_TYPE or heard.body is None:
            return "no problem document"
        document = json.loads(heard.body.decode())
        kind = document["type"].removeprefix(TYPE_PREFIX)
        if (document["status"], document["title"]) != (heard.status, CATALOGUE[kind][1]) or not document["detail"]:
            return f"not a {kind}"
        # Another path is another route.
        documented = str(heard.status) in self._told["responses"] or bool(case.names)
        return None if documented and kind != "internal" else f"{kind}: {document['detail']}"

    def _named(self, where: str) -> list[str]:
        return [one["name"] for one in self._told["parameters"] if one["in"] == where]


async def _faults(tag: str) -> list[str]:
    """The faults in the answers of a topic's routes."""
    found: list[str] = []
    async with servers(("node-1", "node-2"), token="t0ken") as served:
        ground = Ground(served)
        for endpoint in (each for each in ENDPOINTS if each.tag == tag):
            route = Route(endpoint.method, endpoint.path, ground)
            # A cluster is founded by a node that has none.
            outlook = FoundingWait(silent=("node-2",)) if endpoint.path == "/v1/cluster/found" else None
            for case in (Case(), *route.cases):
                ground.restore()
                served.node.outlook = outlook
                heard = await route.ask(case)
                fault = route.fault(case, heard)
                if fault is None and case == Case() and heard.status >= 400:
                    fault = f"refused as it should be asked: {heard.body!r}"
                if fault is None and heard.status < 400 and not await ground.sound():
                    fault = "the new state cannot be served or stored"
                if fault is not None:
                    found.append(f"{route.name}, {case!r:.200}: {heard.status}, {fault:.200}")
    return found


@pytest.mark.parametrize("tag", TAGS)
def test_hostile_requests_are_answered_and_leave_a_state_that_can_be_served(
    tag: str, caplog: pytest.LogCaptureFixture
) -> None:
    faults = asyncio.run(asyncio.wait_for(_faults(tag), 60))
    assert not faults, f"{len(faults)} answers: " + "\n".join(faults[:20])
    assert not [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


@on_loop
async def test_a_task_that_is_deleted_while_a_body_arrives_is_not_found() -> None:
    async with servers() as served:
        await served.put_task("a")
        body = b'{"params": {"source": "z"}}'
        reader, writer = await asyncio.open_connection("127.0.0.1", served.ports["node-1"])
        head = "POST /v1/tasks/a/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:5])
        await writer.drain()
        assert (await served.ask("DELETE", "/v1/tasks/a")).status == 204
        writer.write(body[5:])
        answer = await reader.readuntil(b"\r\n\r\n")
        writer.close()
        assert answer.startswith(b"HTTP/1.1 404")


@on_loop
async def test_an_undecodable_header_is_refused_by_name() -> None:
    async with servers(token="t0ken") as served:
        ground = Ground(served)
        for method, path, header in (
            ("PUT", "/v1/tasks/{name}", b"If-Match"),
            ("PUT", "/v1/tasks/{name}", b"If-None-Match"),
            ("POST", "/v1/tasks/{name}/runs", b"Idempotency-Key"),
            ("GET", "/v1/events", b"Last-Event-ID"),
            ("GET", "/peer/members", b"Rota-Cluster"),
            ("GET", "/peer/members", b"Rota-Member"),
        ):
            heard = await Route(method, path, ground).ask(Case(headers={header: b"\xff"}))
            assert heard.status == 400, header
            assert heard.body is not None
            assert f"{header.decode()} is not UTF-8" in json.loads(heard.body)["detail"]


@on_loop
async def test_a_number_that_cannot_be_stored_is_an_error_of_its_field() -> None:
    async with servers() as served:
        await served.put_task("a")
        params = {"source": "x", "big": 2**70}
        started = await served.ask("POST", "/v1/tasks/a/runs", json={"params": params})
        assert (started.status, list(started.fields)) == (422, ["params"])
        kept = [KEPT, {**KEPT, "task": {**AT, "params": params}}]
        back = await served.ask("POST", "/v1/cluster/saved", json={"beside": 1, "token": 1, "orders": 7, "tasks": kept})
        assert (back.status, list(back.fields)) == (422, ["tasks[1].task"])
