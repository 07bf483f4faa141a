"""A server's log on a real cluster: whichever node dies, the archive has no gap and one writer."""

import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("psycopg2")

from examples.demo.postgres import USER, postgres_server
from node.cli.local import wait_for
from node.client import path
from tasks.backup.manifest import survey_url
from tasks.places.place import Place
from tasks.wal.archive import archived_systems, read_archive
from tasks.wal.counted import Counted
from tasks.wal.restore import Moment, restore_server
from testkit.cluster import Cluster
from testkit.servers.postgres_servers import recovered

pytestmark = [pytest.mark.integration, pytest.mark.more]

WAIT_S = 60.0
ROWS = "SELECT count(*), sum(delta) FROM pgbench_history"
KILLS = 6
"""More than `failover.max`, after which a run that does not get on is abandoned."""


def test_the_log_goes_on_however_often_its_node_dies(tmp_path: Path) -> None:
    with postgres_server("hush-hush") as server, Cluster(tmp_path / "cluster") as cluster:
        server.sql("postgres", "ALTER SYSTEM SET max_slot_wal_keep_size = '1GB'")
        server.sql("postgres", "SELECT pg_reload_conf()")
        cluster.start()
        cluster.wait_until_whole()
        (cluster.secrets_dir / "pg").write_text(server.password)
        named = {"url": server.url("postgres"), "password": {"secret": "pg"}}
        to = tmp_path / "to"
        cluster.register(
            "log", "wal", schedule={"continuous": True}, params={"servers": [named], "destination": str(to)}
        )
        base = {"source": {"type": "postgres_physical"} | named, "destination": str(to)}
        cluster.register("base", "backup", params=base)

        bench = [str(server.programs / "pgbench"), "-h", str(server.folder), "-U", USER, "postgres"]
        environ = {"PGPASSWORD": server.password, "PATH": ""}
        subprocess.run([*bench, "-i", "-q"], env=environ, check=True, capture_output=True)
        wait_for("archived log", lambda: counted(to).position, WAIT_S)
        cluster.wait_for_run(cluster.run("base"))
        load = subprocess.Popen(
            [*bench, "-T", "600", "-c", "2", "-R", "200"],
            env=environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            for _ in range(KILLS):
                before = counted(to)
                run = the_run(cluster)
                cluster.kill(run["node"])
                wait_for("another claim of the archive", lambda: counted(to).holder > before.holder, WAIT_S)  # noqa: B023
                wait_for("more log", lambda: counted(to).number > before.number + 3, WAIT_S)  # noqa: B023
                cluster.restart(run["node"])
                cluster.wait_until_whole()
        finally:
            load.terminate()
            load.wait()
        rows = server.sql("postgres", ROWS)
        lsn = int(server.sql("postgres", "SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn"))
        wait_for("the rest of the log", lambda: reached(counted(to), lsn), WAIT_S)
        assert the_run(cluster)["attempt"] > KILLS, "one run, however many attempts"
        assert datetime.fromisoformat(the_run(cluster)["checkpoint"]["at"]).tzinfo is not None
        assert not counted(to).gaps
        found = survey_url(f"{to}/base").complete
        with recovered(server, lambda target: restore_server(found, target, Moment(), f"{to}/log")) as again:
            assert again.sql("postgres", ROWS) == rows


def test_a_task_that_is_drained_paused_deleted_and_made_again_goes_on(tmp_path: Path) -> None:
    with postgres_server("hush-hush") as server, Cluster(tmp_path / "cluster") as cluster:
        server.sql("postgres", "ALTER SYSTEM SET max_slot_wal_keep_size = '1GB'")
        server.sql("postgres", "SELECT pg_reload_conf()")
        server.sql("postgres", "CREATE TABLE ledger (n serial)")
        cluster.start()
        cluster.wait_until_whole()
        (cluster.secrets_dir / "pg").write_text(server.password)
        to = tmp_path / "to"
        named = {"url": server.url("postgres"), "password": {"secret": "pg"}}
        spec: dict[str, Any] = {
            "schedule": {"continuous": True},
            "params": {"servers": [named], "destination": str(to)},
        }
        target = path("v1", "tasks", "log")

        def archived() -> None:
            server.sql("postgres", "INSERT INTO ledger DEFAULT VALUES")
            lsn = int(server.sql("postgres", "SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn"))
            wait_for("the rest of the log", lambda: reached(counted(to), lsn), WAIT_S)

        def idle_slots() -> str:
            return server.sql("postgres", "SELECT count(*) FROM pg_replication_slots WHERE NOT active")

        slots = "SELECT slot_name FROM pg_replication_slots"

        def done(method: str, target: str, **body: Any) -> None:
            assert cluster.ask(method, target, **body).status < 300

        cluster.register("log", "wal", **spec)
        archived()
        slot, owner = server.sql("postgres", slots), the_run(cluster)["node"]
        done("POST", path("v1", "members", owner, "drain"), json={})
        wait_for("another member's run", lambda: the_run(cluster)["node"] != owner, WAIT_S)
        archived()
        done("POST", path("v1", "members", owner, "undrain"), json={})
        done("POST", f"{target}/pause", json={})
        run = the_run(cluster)
        done("DELETE", path("v1", "runs", run["run_id"]))
        cluster.wait_for_run(run["run_id"])
        said = cluster.ask("GET", path("v1", "runs", run["run_id"], "log")).body
        wait_for("the slot of a paused task", lambda: idle_slots() == "1", WAIT_S)
        server.sql("postgres", "INSERT INTO ledger DEFAULT VALUES")
        done("POST", f"{target}/resume", json={})
        archived()
        done("DELETE", target)
        wait_for("the slot of a deleted task", lambda: idle_slots() == "1", WAIT_S)
        server.sql("postgres", "INSERT INTO ledger DEFAULT VALUES")
        cluster.register("log", "wal", **spec)
        archived()
        assert not counted(to).gaps
        assert f"pg_drop_replication_slot('{slot}')" in str(said)


def counted(to: Path) -> Counted:
    systems = archived_systems(Place(f"{to}/log"))
    return read_archive(Place(f"{to}/log/{systems[0]}")) if systems else Counted()


def the_run(cluster: Cluster) -> Any:
    """The task's only run, once it is held."""

    def held() -> Any:
        [run] = cluster.get("/v1/runs", task="log")["items"]
        return run if run["state"] == "running" else None

    return wait_for("the run of log", held, WAIT_S)


def reached(counted: Counted, lsn: int) -> bool:
    return counted.position is not None and counted.position.lsn >= lsn
