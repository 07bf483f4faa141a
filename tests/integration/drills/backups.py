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
from unittest.mock import patch

from examples.demo.postgres import Server, postgres_server, run_as_server
from tasks.backup.encryption import new_identity
from tasks.backup.kind import Backup
from tasks.backup.params import BackupParams
from tasks.backup.tree import read_tree
from testkit.fake_context import FakeContext
from testkit.servers.mariadb_server import ROOT_PASSWORD, mariadb_server, why_no_mariadb

TASKS: Final = (
    *("dump", "base", "sqlite", "folder", "sealed", "server", "chain", "packs", "stream"),
    *(() if why_no_mariadb() else ("maria",)),
)
"""The tasks, each with a backup of another type: `sealed` has an encrypted dump, `server` all databases, `chain` an
incremental backup of a server, and `packs` a folder in several archives. `maria` is there if MariaDB is installed."""

VARIANTS: Final = {
    "less": "DROP TABLE item",
    "fewer": "DELETE FROM line WHERE id = 307",
    "other": "UPDATE line SET text = 'changed' WHERE id = 7",
    "closed": "REVOKE SELECT ON line FROM reader",
    "owned": "ALTER TABLE line OWNER TO reader",
    "slow": "DROP INDEX line_text_idx",
    "open": "DROP POLICY own ON line",
    "back": "SELECT setval('ids', 5)",
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
CREATE SEQUENCE ids;
SELECT setval('ids', 4000);
CREATE POLICY own ON line TO reader USING (id > 1);
CREATE FUNCTION seen() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END';
CREATE EVENT TRIGGER seen ON ddl_command_end EXECUTE FUNCTION seen();
CREATE FOREIGN DATA WRAPPER far;
ALTER EVENT TRIGGER seen OWNER TO "Bo ss";
ALTER FOREIGN DATA WRAPPER far OWNER TO "Bo ss";
"""

_MARIA_SQL: Final = """CREATE DATABASE shop; USE shop;
CREATE TABLE line (id int PRIMARY KEY, text text);
INSERT INTO line SELECT seq, MD5(seq) FROM seq_1_to_500;
CREATE TABLE item (id int PRIMARY KEY, line int, FOREIGN KEY (line) REFERENCES line (id));
INSERT INTO item SELECT seq, seq FROM seq_1_to_100;
CREATE TRIGGER kept BEFORE INSERT ON line FOR EACH ROW SET NEW.id = NEW.id + 0;
CREATE USER reader@localhost; GRANT SELECT ON shop.line TO reader@localhost;"""

MARIA_VARIANTS: Final = {"fewer": "DELETE FROM shop.line WHERE id = 307", "less": "DROP TABLE shop.item"}
"""As `VARIANTS`, of MariaDB; one after another."""

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
    "packs": [],
    "stream": [],
    "chain": [{"sql": "SELECT count(*) FROM line WHERE text = 'changed later'", "expect": 3, "database": "orders"}],
    "maria": [{"sql": "SELECT COUNT(*) FROM line", "expect": 500, "database": "shop"}],
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

    def chain(self, task: str) -> list[Path]:
        """The folders of the backups that a task's newest one needs, itself last."""
        return sorted(path for path in (self.top / task).iterdir() if path.name != "proofs")

    def backup(self, task: str) -> Path:
        """The folder of a task's newest backup."""
        return self.chain(task)[-1]

    def params(self, task: str) -> dict[str, Any]:
        """The params of a drill of the task's backup."""
        more: dict[str, Any] = {"wal": {"url": str(self.top / "wal")}} if task in {"base", "chain"} else {}
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
        server.sql("postgres", 'CREATE ROLE "Bo ss" SUPERUSER')
        server.sql("orders", _SQL)
        server.sql("postgres", "ALTER SYSTEM SET max_slot_wal_keep_size = '1GB'")
        server.sql("postgres", "ALTER SYSTEM SET summarize_wal = on")
        place = server.folder / "history"
        run_as_server(["mkdir", str(place)], server.folder)
        server.sql("postgres", f"CREATE TABLESPACE history LOCATION '{place}'")
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
            server.sql("postgres", f"DROP DATABASE {name}")
        server.sql("orders", "ALTER TABLE item SET TABLESPACE history")
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
        with patch.object(read_tree, "PACK_FILES", 6):
            _back_up(good, "packs", {"type": "folder", "path": str(top / "files")})
        _back_up(good, "stream", {"type": "stream", "argv": ["cat", str(top / "app.db")]})
        if "maria" in TASKS:
            _back_up_maria(good, top)
        yield GoodBackups(good, top, server, identity)


def _back_up_maria(good: Path, top: Path) -> None:
    with mariadb_server() as server:
        server.sql(_MARIA_SQL)
        source = {"type": "mariadb", "url": server.url(), "password": {"secret": "maria"}}
        _back_up(good, "maria", source)
        for name, sql in MARIA_VARIANTS.items():
            server.sql(sql)
            _back_up(top / name, "maria", source)


def _back_up(to: Path, task: str, source: dict[str, Any], token: int = 1, **more: Any) -> None:
    params = BackupParams.model_validate({"source": source, "destination": str(to)} | more)
    scratch = to / "scratch" / task
    scratch.mkdir(parents=True)
    secrets = {"pg": "hush-hush", "maria": ROOT_PASSWORD}
    Backup().run(FakeContext(params, scratch, task=task, token=token, run_id=f"{task}~{token}", secrets=secrets))
    shutil.rmtree(to / "scratch")


def _archived(good: Path, server: Server, named: dict[str, Any]) -> None:
    """Back the whole server up, and archive the log from then on, in which the table `late` comes to be."""
    from tests.integration.drills.log import archived_until  # psycopg2 is an extra

    with archived_until(good, server, named) as reached:
        source = {"type": "postgres_physical", "url": server.url("postgres"), "wal": "archived"} | named
        _back_up(good, "base", source)
        _back_up(good, "chain", source | {"full_every": 9})
        server.sql("orders", "UPDATE line SET text = 'changed later' WHERE id < 4")
        _back_up(good, "chain", source | {"full_every": 9}, token=2)
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
