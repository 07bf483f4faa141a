"""A whole cluster in a test: real nodes on this machine, with the verbs that the tests read by.

Starting, killing and pausing are `node.cli.local.LocalCluster`'s; here is what a test asks of it besides. Every
answer to `ask` is checked against the cluster's own /openapi.json.
"""

import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import urllib3

from node.cli.local import LocalCluster, NotInTime, wait_for
from node.client import ApiProblem, path
from tasks.definition.run import FINAL
from testkit import cluster_kinds, processes
from testkit.agreement import disagreements, tokens
from testkit.http.described import Description
from testkit.http.reply import Reply, is_told

NOTHING: Final = object()
STREAM_S: Final = 30.0
"""So long may a stream that a test reads be silent."""


@dataclass(frozen=True)
class Event:
    """One of the server-sent events."""

    id: str
    name: str
    data: Any


@dataclass
class Notes:
    """What the attempts of a probe wrote down, and the gate that lets them go."""

    file: Path
    gate: Path
    params: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.params = {"notes": str(self.file), "gate": str(self.gate)}

    def read(self, what: str | None = None, attempt: int | None = None) -> list[dict[str, Any]]:
        """The notes so far; only those of an attempt, or of what is asked."""
        lines = self.file.read_text().splitlines(keepends=True) if self.file.exists() else []
        notes = [json.loads(line) for line in lines if line.endswith("\n")]
        return [note for note in notes if what in (None, note["what"]) and attempt in (None, note["attempt"])]

    def wait(self, what: str, attempt: int = 1, count: int = 1, deadline_s: float = 30) -> dict[str, Any]:
        """The first such note, once there are so many."""

        def noted() -> dict[str, Any] | None:
            found = self.read(what, attempt)
            return found[0] if len(found) >= count else None

        return wait_for(f"attempt {attempt} notes {count} x {what}", noted, deadline_s)

    def let_go(self) -> None:
        """Open the gate."""
        self.gate.touch()


RESERVE_BYTES: Final = 16 * 1024 * 1024
"""A hundred nodes that each keep 256 MiB of the disk back would want 25 GiB of it for one run of the tests."""


class Cluster(LocalCluster):
    """Nodes with the kinds of `testkit.cluster_kinds`, and verbs. `end` kills all, whatever state they are in."""

    def __init__(
        self,
        folder: Path,
        nodes: int = 3,
        env: Mapping[str, str] | None = None,
        env_of: Mapping[str, Mapping[str, str]] | None = None,
        *,
        open_to_all: bool = True,
    ) -> None:
        kinds = folder / "kinds"
        python_path = cluster_kinds.install(kinds) if not kinds.exists() else ""
        self.secrets_dir = folder / "secrets"
        self.secrets_dir.mkdir(exist_ok=True)
        own = {
            "PYTHONPATH": python_path,
            "ROTA_SECRETS_DIR": str(self.secrets_dir),
            "ROTA_DISK_RESERVE_BYTES": str(RESERVE_BYTES),
            # aiohttp reads the system's certificates twice when it is imported, which takes 50 ms of each node's start.
            # Nothing here speaks TLS.
            "SSL_CERT_FILE": os.devnull,
        }
        super().__init__(folder, nodes, env={**own, **(env or {})}, env_of=env_of, open_to_all=open_to_all)
        self._pool = urllib3.PoolManager(retries=False, maxsize=4)
        self._description: Description | None = None
        self._notes = 0
        self._seen_index = 0

    # -- asking

    def ask(
        self,
        method: str,
        target: str,
        node: str | None = None,
        /,
        *,
        json: Any = NOTHING,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 20,
        fresh: bool = True,
        **query: Any,
    ) -> Reply:
        """One request to one node (the first that runs, unless it is named), and whatever comes, problems too.

        A `fresh` one waits until the node has all that was told to this test before, by whatever node.
        """
        given = {name: value for name, value in query.items() if value is not None}
        sent = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        if json is not NOTHING:
            data = _packed(json)
        if method != "GET":
            sent["Content-Type"] = "application/json"
        if fresh:
            sent["Rota-Index"] = str(self._seen_index)
        response = self._pool.request(
            method,
            self.url(node or self.running()[0]) + target + (f"?{urlencode(given)}" if given else ""),
            body=data,
            headers={name: value for name, value in {**sent, **(headers or {})}.items() if value},
            timeout=timeout_s,
        )
        media_type = response.headers.get("Content-Type", "").partition(";")[0]
        reply = Reply(
            response.status, response.headers, response.data, _parsed(response.data) if "json" in media_type else None
        )
        if is_told(reply.status, target, self.token):
            assert reply.headers["Rota-Epoch"].isdigit()
            self._seen_index = max(self._seen_index, reply.index)
        self.description.check(method, target, reply.status, media_type, reply.json)
        return reply

    @contextmanager
    def streaming(
        self, target: str, node: str, /, headers: Mapping[str, str] | None = None, **query: Any
    ) -> Iterator[Iterator[bytes]]:
        """The pieces of an answer as they come; it is given up where the block ends."""
        sent = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        url = self.url(node) + target + (f"?{urlencode(query)}" if query else "")
        response = self._pool.request(
            "GET", url, headers={**sent, **(headers or {})}, timeout=STREAM_S, preload_content=False
        )
        try:
            assert response.status == 200, response.read()
            yield iter(lambda: response.read1(65_536), b"")
        finally:
            response.close()

    @contextmanager
    def events(self, node: str, last_id: str | None = None) -> Iterator[Iterator["Event"]]:
        """What a node tells of what happens; it begins where the block is entered, or after `last_id`."""
        headers = {"Last-Event-ID": last_id} if last_id else {}
        with self.streaming("/v1/events", node, headers=headers) as pieces:
            yield _events(pieces)

    @property
    def description(self) -> Description:
        """/openapi.json, as a node that runs tells it."""
        if self._description is None:
            self._description = Description(self.client.get("/openapi.json"))
        return self._description

    def get(self, target: str, node: str | None = None, /, **query: Any) -> Any:
        """The body of a GET. Raises `ApiProblem` where a node cannot answer now: `wait_for` asks again."""
        reply = self.ask("GET", target, node, **query)
        if reply.status == 503:
            raise ApiProblem(503, reply.json["type"], reply.json["title"], reply.json["detail"])
        assert reply.status == 200, reply.body
        return reply.json

    def all(self, target: str, node: str | None = None, /, **query: Any) -> list[Any]:
        """All items of a list, page by page."""
        items: list[Any] = []
        after = None
        while True:
            page = self.get(target, node, limit=1000, after=after, **query)
            items += page["items"]
            after = page["next"]
            if after is None:
                return items

    # -- tasks and runs

    def register(self, name: str, kind: str = "probe", node: str | None = None, **spec: Any) -> Any:
        """PUT a task."""
        reply = self.ask("PUT", path("v1", "tasks", name), node, json={"kind": kind, **spec})
        assert reply.status in (200, 201), reply.body
        return reply.json

    def notes(self) -> Notes:
        """A place for a probe's notes, and a gate of its own."""
        self._notes += 1
        place = self.folder / "notes"
        place.mkdir(exist_ok=True)
        return Notes(place / f"{self._notes}.jsonl", place / f"{self._notes}.gate")

    def run(self, name: str, node: str | None = None, **body: Any) -> str:
        """Run a task by hand: the run's id."""
        reply = self.ask("POST", path("v1", "tasks", name, "runs"), node, json=body)
        assert reply.status == 202, reply.body
        return str(reply.json["run_id"])

    def run_of(self, run_id: str, node: str | None = None, *, fresh: bool = True) -> Any:
        """A run as a node tells it."""
        return self.get(path("v1", "runs", run_id), node, fresh=fresh)

    def wait_for_run(self, run_id: str, *states: str, node: str | None = None, deadline_s: float = 30) -> Any:
        """The run, once it is in one of these states (without any: once it has ended)."""
        wanted = frozenset(states) or FINAL

        def there() -> Any:
            run = self.run_of(run_id, node)
            assert run["state"] in wanted or run["state"] not in FINAL, run
            return run if run["state"] in wanted else None

        return wait_for(f"{run_id} is {' or '.join(sorted(wanted))}", there, deadline_s)

    def wait_for_attempt(self, run_id: str, attempt: int, node: str | None = None, deadline_s: float = 30) -> Any:
        """The run, once that attempt at it works."""

        def there() -> Any:
            run = self.run_of(run_id, node)
            return run if (run["attempt"] or 0) >= attempt and run["state"] == "running" else None

        return wait_for(f"attempt {attempt} at {run_id}", there, deadline_s)

    def owner_of(self, name: str, node: str | None = None, without: str | None = None) -> str:
        """Who owns a task."""
        return str(self.get(path("v1", "tasks", name, "owner"), node, without=without)["owner"])

    # -- members

    def leader(self, node: str | None = None) -> str | None:
        """The leader that a node sees, if it sees one that a majority follows."""
        cluster = self.get("/v1/cluster", node)
        return cluster["leader"] if cluster["quorum"] else None

    def wait_for_leader(self, *but: str, node: str | None = None, deadline_s: float = 30) -> str:
        """The leader, once there is one that is none of `but`."""

        def there() -> str | None:
            leader = self.leader(node)
            return leader if leader not in but else None

        return wait_for("a leader is there", there, deadline_s)

    def member(self, name: str, node: str | None = None) -> Any:
        """A member as another tells it."""
        return next(member for member in self.get("/v1/members", node)["items"] if member["id"] == name)

    def wait_for_status(self, name: str, *statuses: str, node: str | None = None, deadline_s: float = 30) -> Any:
        """The member, once it is in one of these states."""

        def there() -> Any:
            member = self.member(name, node)
            return member if member["status"] in statuses else None

        return wait_for(f"{name} is {' or '.join(statuses)}", there, deadline_s)

    def wait_until_whole(self, deadline_s: float = 40) -> None:
        """Until every node is ready, and up as each of the others sees it."""
        self.wait_until_ready(deadline_s=deadline_s)
        for name in self.names:

            def all_up(name: str = name) -> bool:
                return all(member["status"] == "up" for member in self.get("/v1/members", name)["items"])

            wait_for(f"{name} sees all up", all_up, deadline_s)

    def restart(self, name: str) -> None:
        """Start a node that has died, and wait until it is ready."""
        self.start(name)
        self.wait_until_ready(name)

    def others(self, *but: str) -> list[str]:
        """All names but these."""
        return [name for name in self.names if name not in but]

    def said(self, name: str) -> str:
        """All that a node has said on standard error."""
        return self.log_file(name).read_text()

    def workers(self, name: str) -> list[int]:
        """The processes of a node's attempts and of what starts them: all that bear its folder's mark."""
        return processes.marked(self.folder / name)

    def lose_folder(self, name: str) -> None:
        """Delete the data folder of a node that has died, once its supervisors have ended too."""
        wait_for(f"nobody writes into the folder of {name}", lambda: not self.workers(name))
        shutil.rmtree(self.folder / name)

    def mend(self) -> None:
        """Whole again, whatever a test did: resumed, started, ready."""
        for name in self.running():
            self.resume(name)
        dead = [name for name in self.names if name not in self.running()]
        if dead:
            self.start(*dead)
        self.wait_until_whole()

    def check(self) -> None:
        """Section 6's invariants, as far as they can be seen from outside once all is mended: raises if one is broken.

        Each occurrence is there once, each token was given once and they grow, all members tell the same of every
        task (its owner too) and run, and no node has met with what it did not expect.
        """
        self.mend()
        wait_for("the members agree", lambda: not disagreements(self))
        runs = list(self.client.items("/v1/runs"))
        due = Counter((run["task"], run["fire_at"]) for run in runs if run["trigger"] == "schedule")
        assert not [occurrence for occurrence, count in due.items() if count > 1]
        assert not tokens(runs)
        for name in self.names:
            found = [line for line in self.said(name).splitlines() if " CRITICAL " in line or "Traceback" in line]
            assert not found, f"{name} has failed:\n{self.said(name)}"

    def end(self) -> None:
        """kill -9 for every node, by its pid; then nothing that they started may be left."""
        for name in self.running():
            self.kill(name)
        try:
            wait_for("no worker has outlived its node", lambda: not self._left(), deadline_s=10)
        except NotInTime as late:
            raise NotInTime("\n".join([str(late), *map(processes.described, self._left())])) from None
        finally:
            for pid in self._left():
                os.kill(pid, signal.SIGKILL)
            self._pool.clear()

    def _left(self) -> list[int]:
        return [pid for name in self.names for pid in self.workers(name)]

    def __exit__(self, *_: object) -> None:
        self.end()
        self.release_ports()


def _events(pieces: Iterator[bytes]) -> Iterator[Event]:
    text = ""
    for piece in pieces:
        text += piece.decode()
        *whole, text = text.split("\n\n")
        for block in whole:
            fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
            if "event" in fields:
                yield Event(fields["id"], fields["event"], json.loads(fields["data"]))


def _packed(value: Any) -> bytes:
    return json.dumps(value).encode()


def _parsed(body: bytes) -> Any:
    return json.loads(body)
