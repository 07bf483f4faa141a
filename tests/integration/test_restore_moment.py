"""A server's backups and its archived log, by the command line: to which moments they lead, and a restore to one."""

from pathlib import Path

import pytest

pytest.importorskip("psycopg2")

from examples.demo.postgres import Server
from node.cli.local import wait_for
from testkit.servers.postgres_servers import recovered
from tests.integration.test_restore_night import _says
from tests.integration.test_wal import WAIT_S, Archiving, add, back_up, rows, server

pytestmark = [pytest.mark.integration, pytest.mark.more]

__all__ = ["server"]


def test_the_moments_of_a_server_s_backups_are_listed_and_restored(server: Server, tmp_path: Path) -> None:
    archiving = Archiving(tmp_path, server)
    with archiving.running():
        wait_for("archived log", lambda: archiving.counted().position, WAIT_S)
        add(server, 1, 400)
        base = back_up(server, tmp_path).rpartition("/")[0]
        add(server, 401, 500)
        archiving.catch_up(server)
    _says(f"list {base} --wal {archiving.url}", "RESTORES TO", "to the latest moment", code=0)
    _says(f"list {base}", "PROVEN", code=0)
    data = server.sql("postgres", "SHOW data_directory")
    runs = f"a PostgreSQL server runs on {data} (process "
    _says(f"restore {base} {data} --wal {archiving.url} --over-source", runs)
    _says(f"restore {base} {base}/../new --wal {base}", "holds the log of one database system if it is an archive")

    def restore(target: Path) -> None:
        _says(f"restore {base} {target} --wal {archiving.url}", "the log is archived up to", "pg_ctl -D", code=0)
        _says(f"restore {base} {target} --wal {archiving.url} --overwrite", "or of a copy of it: ", "--over-source")

    with recovered(server, restore) as again:
        assert rows(again) == rows(server)
