"""All databases of a server on a real cluster: its node is killed between two databases, and the next one goes on."""

from pathlib import Path

import pytest

from examples.demo.postgres import postgres_server
from node.cli.local import wait_for
from tasks.backup.manifest import survey_url
from tasks.backup.restore import restore_backup
from tasks.backup.sources.postgres_database import Database
from testkit.cluster import Cluster

pytestmark = [pytest.mark.integration, pytest.mark.more]

WAIT_S = 90.0


def test_the_next_node_keeps_the_databases_that_were_dumped(tmp_path: Path) -> None:
    with postgres_server("hush-hush") as server, Cluster(tmp_path / "cluster") as cluster:
        for name in ("early", "late"):
            server.sql("postgres", f"CREATE DATABASE {name}")
            server.sql(name, "CREATE TABLE line AS SELECT n AS id FROM generate_series(1, 1000) n")
        # The largest database is dumped first.
        server.sql("early", "CREATE TABLE pad AS SELECT repeat('x', 1000) FROM generate_series(1, 5000)")
        cluster.start()
        cluster.wait_until_whole()
        (cluster.secrets_dir / "pg").write_text(server.password)
        source = {"type": "postgres", "url": server.url("postgres"), "password": {"secret": "pg"}, "parallel": 1}
        to = tmp_path / "to"
        params = {"source": source | {"databases": ["early", "late"]}, "destination": str(to)}
        cluster.register("server", "backup", params=params)
        locking = Database(server.url("late"), tmp_path, server.password)
        with locking.session(locking.tools()) as lock:
            lock.ask("BEGIN; LOCK TABLE line;")
            run_id = cluster.run("server")
            wait_for("the dump of early", lambda: list(to.glob("server/*/early-*.whole.json")), WAIT_S)
            node = cluster.run_of(run_id)["node"]
            server.sql("early", "INSERT INTO line VALUES (0)")
            cluster.kill(node)
        run = cluster.wait_for_run(run_id, node=cluster.others(node)[0], deadline_s=WAIT_S)
        assert (run["state"], run["attempt"]) == ("succeeded", 2), run["error"]

        [backup] = survey_url(str(to / "server")).complete
        [remark] = backup.remarks
        assert remark.startswith("the database early was dumped at 20")
        assert [path.name for path in (to / "server").iterdir()] == [backup.url.rpartition("/")[2]]
        server.sql("postgres", "DROP DATABASE early; DROP DATABASE late")
        restore_backup(backup.url, server.url("postgres"), password=server.password)
        assert server.sql("early", "SELECT count(*) FROM line") == "1000"
        assert server.sql("late", "SELECT count(*) FROM line") == "1000"
