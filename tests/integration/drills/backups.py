"""A server with a small database, and its backups of each type: good ones, and others that pass for them."""

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from examples.demo.postgres import Server, postgres_server
from tasks.backup.encryption import new_identity
from tasks.backup.kind import Backup
from tasks.backup.params import BackupParams
from testkit.fake_context import FakeContext

TASKS: Final = "dump", "base", "sqlite", "folder", "sealed", "server"
"""The tasks, each with a backup of another type; that of `sealed` is an encrypted dump, that of
`server` has all databases."""

VARIANTS: Final = {
    "less": "DROP TABLE item",
    "fewer": "DELETE FROM line WHERE id = 307",
    "other": "UPDATE line SET text = 'changed' WHERE id = 7",
    "closed": "REVOKE SELECT ON line FROM reader",
}
"""Databases that differ from the good one, by what was done to them. Dumps of them are put in the place of a good one,
with checksums that are right."""

_SQL: Final = """
CREATE EXTENSION hstore;
CREATE TABLE line (id int PRIMARY KEY, text text, more hstore DEFAULT 'a=>1');
INSERT INTO line SELECT n, md5(n::text) FROM generate_series(1, 500) n;
CREATE TABLE item (id int PRIMARY KEY, line int REFERENCES line);
INSERT INTO item SELECT n, n FROM generate_series(1, 100) n;
CREATE INDEX ON line (text);
SELECT lo_create(4711);
GRANT SELECT ON line TO reader;
ALTER TABLE item OWNER TO "Own er";
"""

CHECKS: Final[dict[str, list[dict[str, Any]]]] = {
    "dump": [
        {"sql": "SELECT count(*) FROM line JOIN item ON item.line = line.id", "expect": 100},
        {"sql": "SELECT has_table_privilege('reader', 'line', 'SELECT')", "expect": True},
    ],
    "base": [
        {"sql": "SELECT has_table_privilege('reader', 'line', 'SELECT')", "expect": True, "database": "orders"},
        {"sql": "SELECT count(*) FROM late", "expect": 100, "database": "orders"},
    ],
    "sealed": [],
    "server": [{"sql": "SELECT has_table_privilege('reader', 'line', 'SELECT')", "expect": True, "database": "orders"}],
    "sqlite": [{"sql": "SELECT count(*) FROM line", "expect": 300}],
    "folder": [],
}


@dataclass(frozen=True)
class GoodBackups:
    """Good backups, one of each task of `TASKS`, in folders below `top`, and the archive of the server's log."""

    #: The folder of the destination.
    top: Path
    #: The folder that has a destination of each variant of the database.
    variants: Path
    #: The server.
    server: Server
    #: The identity that decrypts the backup of `sealed`.
    identity: str

    def backup(self, task: str) -> Path:
        """The folder of a task's backup."""
        (found,) = [path for path in (self.top / task).iterdir() if path.name != "proofs"]
        return found

    def params(self, task: str) -> dict[str, Any]:
        """The params of a drill of the task's backup."""
        more: dict[str, Any] = {"wal": {"url": str(self.top / "wal")}} if task == "base" else {}
        more |= {"identity": {"secret": "key"}} if task == "sealed" else {}
        return {"backups": {"url": str(self.top / task)}, "checks": CHECKS[task], "compare": "content", **more}

    def copied(self, to: Path) -> "GoodBackups":
        """The same in a new folder, to be spoilt."""
        shutil.copytree(self.top, to, symlinks=True)
        return replace(self, top=to)


@contextmanager
def good_backups(top: Path) -> Iterator[GoodBackups]:
    """Make the backups in `top`/good, and dumps of the variants in `top`/VARIANT."""
    with postgres_server("hush-hush") as server:
        server.sql("postgres", 'CREATE DATABASE orders; CREATE ROLE reader; CREATE ROLE "Own er"')
        server.sql("orders", _SQL)
        server.sql("postgres", "ALTER SYSTEM SET max_slot_wal_keep_size = '1GB'")
        server.sql("postgres", "SELECT pg_reload_conf()")
        named = {"password": {"secret": "pg"}}
        orders = {"type": "postgres", "url": server.url("orders"), "fingerprint": "content"} | named
        good = top / "good"
        recipient, identity = new_identity(None)
        _back_up(good, "dump", orders)
        _back_up(good, "sealed", orders, encryption={"recipients": [recipient]})
        _back_up(good, "server", orders | {"databases": "all"})
        for name, sql in VARIANTS.items():
            server.sql("postgres", f"CREATE DATABASE {name} TEMPLATE orders")
            server.sql(name, sql)
            _back_up(top / name, "dump", orders | {"url": server.url(name)})
        _archived(good, server, named)
        with closing(sqlite3.connect(top / "app.db")) as database:
            database.execute("CREATE TABLE line (id INTEGER PRIMARY KEY, text TEXT)")
            database.executemany("INSERT INTO line (text) VALUES (?)", [(f"row {n}",) for n in range(300)])
            database.commit()
        _back_up(good, "sqlite", {"type": "sqlite", "path": str(top / "app.db")})
        (top / "files" / "deep").mkdir(parents=True)
        for number in range(20):
            (top / "files" / "deep" / f"{number}.bin").write_bytes(os.urandom(2000))
        (top / "files" / "link").symlink_to("deep/1.bin")
        _back_up(good, "folder", {"type": "folder", "path": str(top / "files")})
        yield GoodBackups(good, top, server, identity)


def _back_up(to: Path, task: str, source: dict[str, Any], **more: Any) -> None:
    params = BackupParams.model_validate({"source": source, "destination": str(to)} | more)
    scratch = to / "scratch" / task
    scratch.mkdir(parents=True)
    Backup().run(FakeContext(params, scratch, task=task, secrets={"pg": "hush-hush"}))
    shutil.rmtree(to / "scratch")


def _archived(good: Path, server: Server, named: dict[str, Any]) -> None:
    """Back the whole server up, and archive the log from then on, in which the table `late` comes to be."""
    from tests.integration.drills.log import archived_until  # psycopg2 is an extra

    with archived_until(good, server, named) as reached:
        _back_up(good, "base", {"type": "postgres_physical", "url": server.url("postgres"), "wal": "archived"} | named)
        server.sql("orders", "CREATE TABLE late AS SELECT n AS id FROM generate_series(1, 100) n")
        server.sql("postgres", "SELECT pg_switch_wal()")
        server.sql("orders", "CREATE TABLE later (n int)")
        reached(int(server.sql("postgres", "SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn")))


def without_extension(server: Server, name: str, to: Path) -> Path:
    """A copy of the server's programs that lacks the extension `name`. Returns their folder."""
    if to.exists():
        return to / "bin"
    subprocess.run(["cp", "-al", str(server.programs.parent), str(to)], check=True)
    for path in (to / "share").rglob(f"{name}*"):
        path.unlink()
    return to / "bin"
