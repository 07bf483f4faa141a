"""Backups made by programs, on real nodes: confined to what they need, and taken over when their node dies."""

import os
from pathlib import Path
from typing import Any, Final

import pytest

from node.cli.local import wait_for
from tasks.backup.manifest import survey_url
from tasks.backup.restore import restore_backup
from tasks.backup.verify import verify
from testkit.cluster import Cluster
from testkit.servers.mariadb_server import ROOT_PASSWORD, mariadb_server, why_no_mariadb

pytestmark = [pytest.mark.integration, pytest.mark.more]

needs_mariadb = pytest.mark.skipif(bool(why_no_mariadb()), reason=why_no_mariadb())

WAIT_S: Final = 120.0


@needs_mariadb
def test_a_mariadb_server_is_backed_up_by_a_confined_attempt_and_taken_over(tmp_path: Path) -> None:
    allowed = {
        "ROTA_ALLOW_COMMAND": "0",
        "ROTA_SOURCE_HOSTS": "localhost",
        "ROTA_DESTINATION_HOSTS": "localhost",
        "ROTA_DESTINATION_ROOTS": str(tmp_path / "to"),
    }
    to = tmp_path / "to"
    to.mkdir()
    with mariadb_server() as server, Cluster(tmp_path / "cluster", env=allowed) as cluster:
        server.sql("CREATE DATABASE a_first; CREATE TABLE a_first.t (id int); INSERT INTO a_first.t VALUES (1)")
        server.sql("CREATE DATABASE big; USE big; CREATE TABLE t (id int PRIMARY KEY, v text)")
        server.sql("INSERT INTO big.t SELECT seq, repeat(sha2(seq, 512), 4) FROM seq_1_to_200000", "big")
        cluster.start()
        cluster.wait_until_whole()
        (cluster.secrets_dir / "maria").write_text(ROOT_PASSWORD)
        source = {"type": "mariadb", "url": server.url(), "password": {"secret": "maria"}}
        cluster.register("db", "backup", params={"source": source, "destination": str(to)})
        run_id = cluster.run("db")

        def first_is_whole() -> bool:
            return bool(list(to.rglob("database.a_first.sql.zst.whole.json")) and list(to.rglob("database.big*")))

        wait_for("the first database is dumped, the second begun", first_is_whole, WAIT_S)
        server.sql("INSERT INTO a_first.t VALUES (2)")
        run = cluster.run_of(run_id)
        cluster.kill(run["node"])
        run = cluster.wait_for_run(run_id, "succeeded", node=cluster.running()[0], deadline_s=WAIT_S)
        assert run["attempt"] == 2
        [backup] = survey_url(str(to / "db")).complete
        assert len(list((to / "db").iterdir())) == 1
        assert verify(backup.url).ok
        with mariadb_server() as other:
            wanted = {"backups": {"url": str(to / "db")}, "target": other.url(), "password": {"secret": "maria"}}
            cluster.register("again", "restore", node=cluster.running()[0], params=wanted)
            again = cluster.run("again", node=cluster.running()[0])
            cluster.wait_for_run(again, "succeeded", node=cluster.running()[0], deadline_s=WAIT_S)
            assert other.sql("SELECT COUNT(*) FROM a_first.t") == "1", "kept, not dumped again"
            sum_ = "SELECT COUNT(*), SUM(CRC32(v)) FROM big.t"
            assert other.sql(sum_) == server.sql(sum_)
        cluster.mend()


def test_a_program_s_output_is_backed_up_and_taken_over(tmp_path: Path) -> None:
    with Cluster(tmp_path / "cluster") as cluster:
        cluster.start()
        cluster.wait_until_whole()
        gate = tmp_path / "work" / "gate"
        gate.parent.mkdir()
        (tmp_path / "to").mkdir()
        script = f"echo $$ >> {gate.parent}/pids; echo half; while [ ! -e {gate} ]; do sleep 0.05; done; echo whole"
        source = {"type": "stream", "argv": ["/bin/sh", "-c", script], "name": "out", "shared": True}
        cluster.register("out", "backup", params={"source": source, "destination": str(tmp_path / "to")})
        run_id = cluster.run("out")
        wait_for("the program runs", (gate.parent / "pids").exists, WAIT_S)
        run = wait_for("its bytes are shown", lambda: _with_bytes(cluster, run_id), WAIT_S)
        cluster.kill(run["node"])
        left = cluster.running()[0]
        wait_for("the second attempt runs", lambda: len((gate.parent / "pids").read_text().split()) == 2, WAIT_S)
        gate.touch()
        cluster.wait_for_run(run_id, "succeeded", node=left, deadline_s=WAIT_S)
        [backup] = survey_url(str(tmp_path / "to" / "out")).complete
        assert len(list((tmp_path / "to" / "out").iterdir())) == 1
        restore_backup(backup.url, str(tmp_path / "restored"))
        assert (tmp_path / "restored").read_text() == "half\nwhole\n"
        first, _ = map(int, (gate.parent / "pids").read_text().split())
        wait_for("the first program has ended", lambda: not os.path.exists(f"/proc/{first}"), WAIT_S)  # noqa: PTH110


def _with_bytes(cluster: Cluster, run_id: str) -> Any:
    run = cluster.run_of(run_id)
    return run if (run["progress"] or {}).get("done") else None


def test_a_node_that_runs_no_commands_runs_no_stream(tmp_path: Path) -> None:
    with Cluster(tmp_path / "cluster", 1, env={"ROTA_ALLOW_COMMAND": "0", "ROTA_DESTINATION_ROOTS": "/"}) as cluster:
        cluster.start()
        cluster.wait_until_whole()
        source = {"type": "stream", "argv": ["/bin/echo", "x"], "shared": True}
        reply = cluster.register("out", "backup", params={"source": source, "destination": str(tmp_path / "to")})
        assert any("runs no programs of tasks" in warning for warning in reply["warnings"])
        run = cluster.wait_for_run(cluster.run("out"), "failed")
        assert "AccessRefused: /bin/echo: node-1 runs no programs of tasks" in run["error"]
        assert not (tmp_path / "to").exists()
