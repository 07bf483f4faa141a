"""Drills on a real node, whose attempt or node is killed at drawn moments: nothing is left of them."""

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from examples.demo.postgres import postgres_server
from node.cli.local import wait_for
from node.execution import process_tree
from tasks.backup.proofs import read_proofs
from tasks.places.place import Place
from testkit.cluster import Cluster
from testkit.processes import marked

WAIT_S: Final = 120.0
LONG_S: Final = 4.0
"""About how long a drill takes on a busy machine; moments are drawn from it."""


class DrilledCluster:
    """One node, and a task whose backup its drills restore."""

    def __init__(self, cluster: Cluster, backups: Path) -> None:
        self._cluster = cluster
        self._backups = backups
        self._node = cluster.folder / "node-1"
        # A worker that is killed is an attempt that failed; a node that is killed is one that was lost.
        self._params = {"backups": {"url": str(backups)}}
        cluster.register("proving", "drill", params=self._params, retry={"backoff_s": 0.1})

    def kill(self, draw: random.Random, *, node: bool) -> str:
        """Start a drill, and kill it at a drawn moment. Wait until the run has proven the backup all the same.

        Returns what was killed and when. Raises `AssertionError` if something is left of the killed attempt.
        """
        before = len(read_proofs(Place(str(self._backups))).proofs)
        run_id = self._cluster.run("proving")
        worker = wait_for("the worker", self._worker, WAIT_S)
        began_s, moment_s = time.monotonic(), draw.uniform(0, LONG_S)
        wait_for("the moment", lambda: time.monotonic() - began_s >= moment_s, WAIT_S)
        server = "with a server" if self._servers() else "without a server"
        if node:
            self._cluster.kill("node-1")
        else:
            try:
                os.kill(worker, signal.SIGKILL)
            except ProcessLookupError:
                server = "which had ended"
        if node:
            wait_for("the end of all processes", lambda: not marked(self._node), WAIT_S)
            self._cluster.restart("node-1")
            self._cluster.wait_until_whole()
        run = self._cluster.wait_for_run(run_id, deadline_s=WAIT_S)
        assert run["state"] == "succeeded", run["error"]
        wait_for("the end of all servers", lambda: not self._servers(), WAIT_S)
        wait_for("empty scratch folders", lambda: not list((self._node / "scratch").iterdir()), WAIT_S)
        proofs = read_proofs(Place(str(self._backups))).proofs
        assert {proof.result for proof in proofs} == {"proven"}, proofs
        assert len(proofs) >= min(before + 1, 10)
        return f"killed the {'node' if node else 'attempt'} after {moment_s:.2f} s, {server}: attempt {run['attempt']}"

    def _worker(self) -> int | None:
        """The process of the attempt: the first one in the scratch folder."""
        scratch = self._node / "scratch"
        for pid in marked(self._node):
            if _is_in(pid, scratch) and (one := process_tree.process(pid)) and not _is_in(one.parent, scratch):
                return pid
        return None

    def _servers(self) -> list[int]:
        return [pid for pid in marked(self._node) if _command(pid).startswith("postgres")]


def _is_in(pid: int, folder: Path) -> bool:
    try:
        return Path(os.readlink(f"/proc/{pid}/cwd")).is_relative_to(folder)  # noqa: PTH115
    except OSError:
        return False


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""


@contextmanager
def drilled_cluster(folder: Path) -> Iterator[DrilledCluster]:
    """Start a node and a server, and back the server's database up."""
    with postgres_server("hush-hush") as server, ExitStack() as stack:
        server.sql("postgres", "CREATE DATABASE orders")
        server.sql("orders", "CREATE TABLE line AS SELECT n AS id, md5(n::text) AS t FROM generate_series(1, 50000) n")
        cluster = stack.enter_context(Cluster(folder, 1, {"ROTA_POSTGRES_BIN": str(server.programs)}))
        cluster.start()
        cluster.wait_until_whole()
        (cluster.secrets_dir / "pg").write_text(server.password)
        source: dict[str, Any] = {"type": "postgres", "url": server.url("orders"), "password": {"secret": "pg"}}
        cluster.register("orders", "backup", params={"source": source, "destination": str(folder / "to")})
        assert cluster.wait_for_run(cluster.run("orders"), deadline_s=WAIT_S)["state"] == "succeeded"
        yield DrilledCluster(cluster, folder / "to" / "orders")
