"""A server's log on a real cluster: whichever node dies, the archive has no gap and one writer."""

import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("psycopg2")

from examples.demo.postgres import USER, postgres_server
from node.cli.local import wait_for
from tasks.backup.manifest import survey_url
from tasks.places.place import Place
from tasks.wal.archive import archived_systems, read_archive
from tasks.wal.pages import Counted
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
        to = str(tmp_path / "to")
        cluster.register("log", "wal", schedule={"continuous": True}, params={"servers": [named], "destination": to})
        base = {"source": {"type": "postgres_physical"} | named, "destination": to}
        cluster.register("base", "backup", params=base)

        def counted() -> Counted:
            systems = archived_systems(Place(f"{to}/log"))
            return read_archive(Place(f"{to}/log/{systems[0]}")) if systems else Counted()

        bench = [str(server.programs / "pgbench"), "-h", str(server.folder), "-U", USER, "postgres"]
        environ = {"PGPASSWORD": server.password, "PATH": ""}
        subprocess.run([*bench, "-i", "-q"], env=environ, check=True, capture_output=True)
        wait_for("archived log", lambda: counted().position, WAIT_S)
        cluster.wait_for_run(cluster.run("base"))
        load = subprocess.Popen(
            [*bench, "-T", "600", "-c", "2", "-R", "200"],
            env=environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            for _ in range(KILLS):
                before = counted()
                run = the_run(cluster)
                cluster.kill(run["node"])
                wait_for("another claim of the archive", lambda: counted().holder > before.holder, WAIT_S)  # noqa: B023
                wait_for("more log", lambda: counted().number > before.number + 3, WAIT_S)  # noqa: B023
                cluster.restart(run["node"])
                cluster.wait_until_whole()
        finally:
            load.terminate()
            load.wait()
        rows = server.sql("postgres", ROWS)
        lsn = int(server.sql("postgres", "SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn"))
        wait_for("the rest of the log", lambda: reached(counted(), lsn), WAIT_S)
        assert the_run(cluster)["attempt"] > KILLS, "one run, however many attempts"
        assert datetime.fromisoformat(the_run(cluster)["checkpoint"]["at"]).tzinfo is not None
        assert not counted().gaps
        found = survey_url(f"{to}/base").complete
        with recovered(server, lambda target: restore_server(found, target, Moment(), f"{to}/log")) as again:
            assert again.sql("postgres", ROWS) == rows


def the_run(cluster: Cluster) -> Any:
    """The task's only run, once it is held."""

    def held() -> Any:
        [run] = cluster.get("/v1/runs", task="log")["items"]
        return run if run["state"] == "running" else None

    return wait_for("the run of log", held, WAIT_S)


def reached(counted: Counted, lsn: int) -> bool:
    return counted.position is not None and counted.position.lsn >= lsn
