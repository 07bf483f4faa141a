"""A server of the oldest PostgreSQL that physical backups know, as Debian 12 has it."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("psycopg2")

from bench.pgbackrest import PROGRAMS
from examples.demo.postgres import postgres_server
from tasks.backup.kind import Backup
from tasks.backup.manifest import newest_backup
from tasks.backup.params import BackupParams
from tasks.backup.restore import restore_backup
from tasks.backup.verify import verify
from testkit.fake_context import FakeContext
from testkit.servers.postgres_servers import recovered

pytestmark = [
    pytest.mark.integration,
    pytest.mark.more,
    pytest.mark.skipif(not (PROGRAMS / "postgres").exists(), reason=f"there is no {PROGRAMS} (postgresql-15)"),
]

SUMS = "SELECT count(*), md5(string_agg(t, '|' ORDER BY n)) FROM line"


def test_a_server_of_postgres_15_is_restored_whole_and_database_by_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with postgres_server("hush-hush", PROGRAMS) as server:
        assert server.sql("postgres", "SHOW server_version").startswith("15.")
        for name in ("orders", "again"):
            server.sql("postgres", f"CREATE DATABASE {name}")
        server.sql("orders", "CREATE TABLE line AS SELECT n, md5(n::text) AS t FROM generate_series(1, 50000) n")
        monkeypatch.setenv("ROTA_POSTGRES_BIN", str(server.programs))

        def back_up(token: int, **source: Any) -> str:
            named = {"password": {"secret": "pg"}} | source
            params = {"source": named, "destination": f"{tmp_path}/{source['type']}"}
            scratch = tmp_path / f"scratch-{token}"
            scratch.mkdir()
            made = BackupParams.model_validate(params)
            ctx = FakeContext(made, scratch, token=token, run_id=f"task~{token}", secrets={"pg": "hush-hush"})
            return str(Backup().run(ctx)["url"])

        server_url = server.url("postgres")
        assert newest_backup(back_up(1, type="postgres_physical", url=server_url, full_every=5)).parents == ()
        physical = back_up(2, type="postgres_physical", url=server_url, full_every=5)
        made = newest_backup(physical)
        assert made.parents == (), "incremental backups need PostgreSQL 17"
        assert any("17" in remark for remark in made.remarks), made.remarks
        dump = back_up(3, type="postgres", url=server.url("orders"), fingerprint="content")
        assert all(verify(url).ok for url in (physical, dump))
        restore_backup(dump, server.url("again"), password="hush-hush")
        with recovered(server, lambda target: restore_backup(physical, str(target))) as whole:
            restored = whole.sql("orders", SUMS)
        assert server.sql("orders", SUMS) == server.sql("again", SUMS) == restored
