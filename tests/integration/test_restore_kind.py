"""Backups of a real database and a folder, restored by tasks on real nodes, which the kernel confines."""

import os
from pathlib import Path

import pytest

from examples.demo.postgres import postgres_server
from testkit.cluster import Cluster

pytestmark = pytest.mark.integration

ROWS = "SELECT count(*), sum(id) FROM line"


@pytest.mark.more
def test_nodes_restore_into_new_places_only(tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "a.txt").write_text("a")
    if os.geteuid() == 0:
        os.chown(tmp_path / "from" / "a.txt", 65534, 65533)
        (tmp_path / "from" / "a.txt").chmod(0o6755)
    with postgres_server("hush-hush") as server, Cluster(tmp_path / "cluster", 1) as cluster:
        for name in ("orders", "again"):
            server.sql("postgres", f"CREATE DATABASE {name}")
        server.sql("orders", "CREATE TABLE line AS SELECT n AS id FROM generate_series(1, 1000) n")
        cluster.start()
        cluster.wait_until_whole()
        (cluster.secrets_dir / "pg").write_text(server.password)
        secret = {"password": {"secret": "pg"}}
        here = {"node": "node-1"}
        to = str(tmp_path / "to")
        database = {"type": "postgres", "url": server.url("orders")} | secret
        cluster.register("orders", "backup", params={"source": database, "destination": to})
        folder = {"type": "folder", "path": str(tmp_path / "from")}
        cluster.register("files", "backup", params={"source": folder, "destination": to}, group=here)
        for name in ("orders", "files"):
            assert cluster.wait_for_run(cluster.run(name))["state"] == "succeeded"

        again = {"backups": {"url": f"{to}/orders"}, "target": server.url("again")} | secret
        cluster.register("orders-again", "restore", params=again)
        back = {"backups": {"url": f"{to}/files"}, "target": str(tmp_path / "new" / "back")}
        cluster.register("files-back", "restore", params=back, group=here)
        for name in ("orders-again", "files-back"):
            run = cluster.wait_for_run(cluster.run(name))
            assert run["state"] == "succeeded", run["error"]
            assert run["result"]["remarks"] == []
        assert server.sql("again", ROWS) == server.sql("orders", ROWS)
        assert (tmp_path / "new" / "back" / "a.txt").read_text() == "a"
        was, now = ((tmp_path / name / "a.txt").stat() for name in ("from", "new/back"))
        assert (was.st_uid, was.st_gid, was.st_mode) == (now.st_uid, now.st_gid, now.st_mode)
        assert [path.name for path in (tmp_path / "new").iterdir()] == ["back"]

        server.sql("postgres", "CREATE DATABASE part")
        part = {**again, "target": server.url("part"), "table": "public.line"}
        cluster.register("orders-line", "restore", params=part)
        run = cluster.wait_for_run(cluster.run("orders-line"))
        assert (run["state"], run["error"]) == ("succeeded", None)
        assert server.sql("part", ROWS) == server.sql("orders", ROWS)

        for name, why in (("orders-again", "is not empty"), ("files-back", "a restore replaces nothing")):
            run = cluster.wait_for_run(cluster.run(name))
            assert run["state"] == "failed"
            assert why in run["error"]
