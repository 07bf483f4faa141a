"""Drills on real nodes, which the kernel confines: what they prove, what they leave when they are killed."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from examples.demo.postgres import Server, postgres_server
from node.cli.local import wait_for
from tasks.backup.proofs import Proof, read_proofs
from tasks.places.place import Place
from tasks.processes import stat_fields
from testkit.cluster import Cluster

pytestmark = pytest.mark.integration

WAIT_S = 120.0
GRANTED = {"sql": "SELECT has_table_privilege('reader', 'line', 'SELECT')", "expect": True}


@contextmanager
def backed_up(folder: Path, nodes: int = 1, **source: Any) -> Iterator[tuple[Cluster, Server]]:
    """A cluster, and a server of which the task `orders` has made a backup."""
    with postgres_server("hush-hush") as server, ExitStack() as stack:
        # Of root's scratch servers `nobody` is the user, who must be able to reach their programs.
        programs = {"ROTA_POSTGRES_BIN": str(server.programs)}
        cluster = stack.enter_context(Cluster(folder / "cluster", nodes, programs))
        server.sql("postgres", 'CREATE DATABASE orders; CREATE ROLE reader; CREATE ROLE "Own er"')
        server.sql(
            "orders",
            "CREATE TABLE line AS SELECT n AS id, md5(n::text) AS text FROM generate_series(1, 5000) n;"
            'GRANT SELECT ON line TO reader; CREATE TABLE owned (n int); ALTER TABLE owned OWNER TO "Own er"',
        )
        cluster.start()
        cluster.wait_until_whole()
        (cluster.secrets_dir / "pg").write_text(server.password)
        given = {"type": "postgres", "url": server.url("orders"), "password": {"secret": "pg"}} | source
        params = {"source": given, "destination": str(folder / "to")}
        cluster.register("orders", "backup", params=params, group={"node": "node-1"})
        assert cluster.wait_for_run(cluster.run("orders"), deadline_s=WAIT_S)["state"] == "succeeded"
        yield cluster, server


def drilled(cluster: Cluster, folder: Path, **params: Any) -> Any:
    """The run of a drill, once it has ended."""
    given = {"backups": {"url": str(folder / "to" / "orders")}} | params
    cluster.register("proving", "drill", params=given)
    return cluster.wait_for_run(cluster.run("proving"), deadline_s=WAIT_S)


def proofs(folder: Path) -> tuple[Proof, ...]:
    return read_proofs(Place(str(folder / "to" / "orders"))).proofs


def servers_of(folder: Path) -> list[int]:
    """The processes of scratch servers of the nodes in a folder."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208
        try:
            line = Path("/proc", name, "cmdline").read_bytes().decode(errors="replace")
            ended = stat_fields(int(name))[0] in (b"Z", b"X")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if str(folder) in line and "/server/data" in line and not ended:
            found.append(int(name))
    return found


def scratch_of(cluster: Cluster) -> list[Path]:
    return [path for node in cluster.names for path in (cluster.folder / node / "scratch").glob("*")]


@pytest.mark.more
def test_a_dump_is_proven_and_a_spoilt_one_is_not(tmp_path: Path) -> None:
    with backed_up(tmp_path, fingerprint="content") as (cluster, _):
        run = drilled(cluster, tmp_path, compare="content", checks=[GRANTED])
        assert run["state"] == "succeeded", run["error"]
        result = run["result"]
        assert (result["tables"], result["rows"], result["checks"], result["same_member"]) == (2, 5000, 1, True)
        assert "and a hash of their content" in result["how"][1]
        assert [proof.result for proof in proofs(tmp_path)] == ["proven"]
        assert servers_of(cluster.folder) == []
        wait_for("empty scratch folders", lambda: not scratch_of(cluster))

        stored = Path(result["backup"], "postgres.dump.zst")
        content = bytearray(stored.read_bytes())
        content[len(content) // 2] ^= 1
        stored.write_bytes(content)
        run = drilled(cluster, tmp_path)
        assert run["state"] == "failed"
        assert run["attempt"] == 1, "the same backup would fail again"
        assert "is not proven" in run["error"]
        assert [proof.result for proof in proofs(tmp_path)] == ["proven", "failed"]


@pytest.mark.more
def test_a_server_is_proven_with_all_of_its_log(tmp_path: Path) -> None:
    with backed_up(tmp_path, type="postgres_physical") as (cluster, server):
        del server
        run = drilled(cluster, tmp_path, checks=[GRANTED | {"database": "orders"}])
        assert run["state"] == "succeeded", run["error"]
        assert "tables and indexes checked by pg_amcheck" in run["result"]["how"]
        assert (run["result"]["tables"], run["result"]["rows"], run["result"]["checks"]) == (2, 5000, 1)
