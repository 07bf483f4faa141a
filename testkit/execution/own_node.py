"""One node, started as a user starts it: with `rota node`, and secrets in its variables; as any user."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from node.cli.local import wait_for
from node.cli.ports import free_ports
from node.client import Client, path
from node.execution import process_tree
from testkit.users import NOBODY, as_nobody, folder_of

ROOT = Path(__file__).parents[2]

OWN = {
    "ROTA_SECRET": "between-members-5d1f0c",
    "ROTA_TOKEN": "of-clients-9a77e2",
    "ROTA_READ_TOKEN": "of-readers-c03b41",
}
ALLOWED = {"API_KEY": "key-of-the-api-77ab", "OTHER_KEY": "key-of-another-31fe"}
SECRETS = [*OWN.values(), *ALLOWED.values()]


class OwnNode:
    """One node, started as a user starts it: with `rota node`, and secrets in its variables."""

    def __init__(self, folder: Path, rights: tuple[str, ...], **env: str) -> None:
        raft, http = free_ports(2)
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "PLAIN": "is-inherited",
            "ROTA_NODE": "node-1",
            "ROTA_MEMBERS": f"node-1=127.0.0.1:{raft}:{http}",
            "ROTA_DATA": str(folder / "data"),
            "ROTA_SECRETS_DIR": str(folder / "secrets"),
            "ROTA_ALLOW_COMMAND": "1",
            "ROTA_DISK_RESERVE_BYTES": "0",
            "ROTA_ENV_ALLOW": "API_KEY, OTHER_KEY,UNSET_KEY",
            **OWN,
            **ALLOWED,
            **env,
        }
        self.folder = folder
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [*rights, sys.executable, "-W", "ignore", "-m", "node.cli.entry", "node", "--log-format", "json"],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.client = Client([f"http://127.0.0.1:{http}"], OWN["ROTA_TOKEN"])
        self._tasks = 0

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def ready(self) -> bool:
        assert self.process.poll() is None, self.log
        return bool(self.client.call("GET", "/readyz"))

    def run(self, params: dict[str, Any], kind: str = "command") -> tuple[Any, str]:
        """A run of a new task, once it is over, and its log."""
        return self.ended(self.begin(params, kind))

    def begin(self, params: dict[str, Any], kind: str = "command") -> str:
        """The id of a run of a new task."""
        self._tasks += 1
        name = f"task-{self._tasks}"
        body = {"kind": kind, "params": params, "schedule": None, "retry": {"attempts": 1}}
        self.client.call("PUT", path("v1", "tasks", name), body=body)
        return str(self.client.call("POST", path("v1", "tasks", name, "runs")).json["run_id"])

    def ended(self, run_id: str) -> tuple[Any, str]:
        """A run, once it is over, and its log."""

        def over() -> Any:
            run = self.client.get(path("v1", "runs", run_id))
            return run if run["finished_at"] is not None else None

        run = wait_for(f"{run_id} is over", over, 30)
        return run, b"".join(self.client.stream(path("v1", "runs", run_id, "log"))).decode()

    def shell(self, script: str, **env: Any) -> str:
        """What a script prints as a task of this node."""
        run, log = self.run({"argv": ["sh", "-c", script], "env": env})
        assert run["state"] == "succeeded", (run["error"], log)
        return log

    def below(self) -> list[int]:
        return [one.pid for one in process_tree.descendants([self.process.pid], process_tree.processes())]


@contextmanager
def own_node(uid: int, **env: str) -> Iterator[OwnNode]:
    with folder_of(uid) as folder:
        node = OwnNode(folder, as_nobody() if uid == NOBODY else (), **env)
        try:
            wait_for("the node is ready", node.ready, 30)
            yield node
        finally:
            node.process.terminate()
            try:
                node.process.wait(20)
            finally:
                node.process.kill()
                node.process.wait()
            assert node.process.stdin is not None
            node.process.stdin.close()
