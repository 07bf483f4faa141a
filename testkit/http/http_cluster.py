"""Real HTTP servers on loopback, on ports chosen by the kernel, over one `FakeCluster`."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from yarl import URL

from node.http.app import build_app, serve_on
from node.http.door.connection import ConnectionTimeouts
from node.http.door.server_context import RequestLimits
from node.peer.client import PeerClient
from node.state.attempts import Began
from node.state.claims import Claim
from node.web.views import PAGES
from testkit.http.fake_node import SECRET, FakeCluster, FakeNode
from testkit.http.reply import Reply, is_told

QUICK = RequestLimits(write_s=1, index_s=0.05, placement_s=1, peer_s=1, peer_log_s=1, attempt_s=0.05, poll_log_s=0.01)
TIMEOUTS = ConnectionTimeouts(garbage_s=0.05)


@dataclass
class Servers:
    """The nodes and their servers. Verbs: `ask`, `start_run`, `claim`, `stop`, `restart`."""

    cluster: FakeCluster
    nodes: dict[str, FakeNode]
    session: aiohttp.ClientSession
    ports: dict[str, int] = field(default_factory=dict)
    runners: dict[str, web.AppRunner] = field(default_factory=dict)

    @property
    def node(self) -> FakeNode:
        """The node that is asked by default."""
        return self.nodes["node-1"]

    def url(self, path: str, node: str = "node-1") -> str:
        """The URL of a path."""
        return f"http://127.0.0.1:{self.ports[node]}{path}"

    async def ask(self, method: str, path: str, node: str = "node-1", **more: Any) -> Reply:
        """Send a request, and read the response."""
        url = URL(self.url(path, node), encoded=True)
        async with self.session.request(method, url, allow_redirects=False, **more) as response:
            body = await response.read()
            if is_told(response.status, path, self.nodes[node].settings.token):
                assert response.headers["Rota-Index"].isdigit()
                assert response.headers["Rota-Epoch"].isdigit()
            is_json = bool(body) and response.content_type.endswith("json")
            return Reply(
                response.status, response.headers, body, await response.json(content_type=None) if is_json else None
            )

    async def get(self, path: str, **more: Any) -> Reply:
        """Send a GET."""
        return await self.ask("GET", path, **more)

    async def put_task(self, name: str = "a", /, **spec: Any) -> Reply:
        """Register a task."""
        body = {"kind": "copy", "params": {"source": "x"}, **spec}
        return await self.ask("PUT", f"/v1/tasks/{name}", json=body)

    async def start_run(self, task: str = "a", **more: Any) -> str:
        """Start a run of the task; its id."""
        reply = await self.ask("POST", f"/v1/tasks/{task}/runs", **more)
        assert reply.status == 202, reply.json
        assert reply.headers["Location"] == f"/v1/runs/{reply.json['run_id']}"
        return str(reply.json["run_id"])

    def claim(self, run_id: str, node: str = "node-1") -> int:
        """Have the node claim the run and begin an attempt; its token."""
        run, now_us = self.cluster.machine.state.runs[run_id], self.cluster.now_us
        token = self.cluster.ok(Claim(now_us, run.task, run.fire_at_us, node, 1, run_id))["token"]
        self.cluster.ok(Began(now_us, run_id, token))
        return int(token)

    def write_log(self, node: str, run_id: str, text: str) -> Path:
        """Append to the log of the run's first attempt on the node; the log's path."""
        path = self.nodes[node].log_path(run_id, 1)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(text)
        return path

    async def restart(self, node: str) -> None:
        """Stop a node's server, and start another one on its port."""
        await self.stop(node)
        of = self.nodes[node]
        app = build_app(of, PeerClient(SECRET, of.state), QUICK, lambda: self.cluster.now_us, PAGES)
        self.runners[node], self.ports[node] = await serve_on(app, "127.0.0.1", self.ports[node])

    async def stop(self, node: str) -> None:
        """Stop a node's server."""
        await self.runners.pop(node).cleanup()


@asynccontextmanager
async def servers(
    names: tuple[str, ...] = ("node-1",),
    limits: RequestLimits = QUICK,
    token: str | None = None,
    clients: int = 1000,
    timeouts: ConnectionTimeouts = TIMEOUTS,
) -> AsyncIterator[Servers]:
    """Serve a cluster of these members."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = FakeCluster(Path(folder))
        nodes = {name: FakeNode(cluster, name, token) for name in names}
        async with aiohttp.ClientSession() as session:
            served = Servers(cluster, nodes, session)
            try:
                for name, node in nodes.items():
                    app = build_app(node, PeerClient(SECRET, node.state), limits, lambda: cluster.now_us, PAGES)
                    served.runners[name], served.ports[name] = await serve_on(app, "127.0.0.1", 0, clients, timeouts)
                cluster.start(served.ports)
                yield served
            finally:
                await session.close()
                for name in list(served.runners):
                    await served.stop(name)
                cluster.close()


def on_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test on an event loop, for 20 seconds at most."""

    def run() -> None:
        async def limited() -> None:
            async with asyncio.timeout(20):
                await test()

        asyncio.run(limited())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run
