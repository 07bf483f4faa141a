"""A chain of backups of a server on a real cluster: any member continues it, also when one dies at work."""

from pathlib import Path

import pytest

pytest.importorskip("psycopg2")

from examples.demo.postgres import postgres_server
from node.cli.local import wait_for
from tasks.backup.manifest import survey_url
from testkit.cluster import Cluster
from testkit.servers.postgres_servers import recovered

pytestmark = [pytest.mark.integration, pytest.mark.more]

WAIT_S = 300.0
SUMS = "SELECT count(*), md5(string_agg(t, '|' ORDER BY n)) FROM hex"
HEX = "SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 32) m WHERE m + n > 0"


def test_another_member_continues_the_chain_when_one_dies_at_work(tmp_path: Path) -> None:
    with postgres_server("hush-hush") as server, Cluster(tmp_path / "cluster") as cluster:
        server.sql("postgres", "ALTER SYSTEM SET summarize_wal = on")
        server.sql("postgres", "SELECT pg_reload_conf()")
        server.sql("postgres", f"CREATE TABLE hex AS SELECT n, ({HEX}) AS t FROM generate_series(1, 6000) n")
        cluster.start()
        cluster.wait_until_whole()
        (cluster.secrets_dir / "pg").write_text(server.password)
        to = tmp_path / "to"
        source = {"type": "postgres_physical", "url": server.url("postgres"), "password": {"secret": "pg"}}
        params = {"source": source | {"full_every": 5}, "destination": str(to), "level": 9}
        cluster.register("base", "backup", params=params)
        assert cluster.wait_for_run(cluster.run("base"), deadline_s=WAIT_S)["state"] == "succeeded"
        server.sql("postgres", f"UPDATE hex SET t = ({HEX})")

        run_id = cluster.run("base")
        wait_for("an incremental backup that has begun", lambda: len(list(to.glob("base/*/base.tar.zst"))) == 2, WAIT_S)
        first = cluster.run_of(run_id)["node"]
        cluster.kill(first)
        done = cluster.wait_for_run(run_id, deadline_s=WAIT_S)
        assert (done["state"], done["attempt"]) == ("succeeded", 2)
        assert done["node"] != first
        found = survey_url(f"{to}/base")
        assert [len(each.parents) for each in found.complete] == [1, 0]
        assert found.without == ()
        assert found.complete[0].parents[0].name == found.complete[1].name

        # A confined attempt combines them, too.
        back = {"backups": {"url": f"{to}/base"}, "target": str(tmp_path / "new" / "back")}
        cluster.register("back", "restore", params=back, group={"node": done["node"]})
        restored = cluster.wait_for_run(cluster.run("back"), deadline_s=WAIT_S)
        assert restored["state"] == "succeeded", restored["error"]
        assert len(restored["result"]["remarks"]) == 1
        with recovered(server, lambda target: (tmp_path / "new" / "back").rename(target)) as again:
            assert again.sql("postgres", SUMS) == server.sql("postgres", SUMS)
