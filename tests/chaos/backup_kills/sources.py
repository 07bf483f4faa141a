"""Sources of backups, one of each kind, slow enough to be killed midway; each tells whether a restore equals it."""

import os
import random
import shutil
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

from examples.demo.postgres import Server, postgres_server
from node.cli.local import wait_for
from tasks.backup.restore import restore_backup
from tasks.backup.sources.source import RestoreParts
from testkit.servers.mariadb_server import ROOT_PASSWORD, mariadb_server
from testkit.servers.postgres_servers import recovered
from testkit.trees import facts_of_tree

PASSWORD: Final = "hush-hush"
SETTLE_S: Final = 2.5
"""A file that changed less than two seconds before it is read is not known to be unchanged later."""


class KilledSource(Protocol):
    """A source whose backups are killed."""

    @property
    def params(self) -> dict[str, Any]:
        """The params of the backup, without the destination."""

    @property
    def secrets(self) -> Mapping[str, str]:
        """The values of the secrets that the params name."""

    @property
    def env(self) -> Mapping[str, str]:
        """Variables that the nodes need."""

    @property
    def local(self) -> bool:
        """Whether the source is on one member, so that no other one can go on."""

    @property
    def parts(self) -> bool:
        """Whether a backup has objects that are whole by themselves, which the next attempt keeps."""

    def change(self, number: int) -> None:
        """Change the source, so that a backup made before does not pass for a later one."""

    def compare(self, url: str, options: dict[str, Any] | None, scratch: Path) -> None:
        """Restore a backup into a new place. Raises `AssertionError` unless it equals the source."""

    def sessions(self) -> list[str]:
        """Return the sessions of others at the source's server."""


def equal(what: str, source: Any, restored: Any) -> None:
    """Raise `AssertionError` if these are not equal."""
    assert restored == source, f"{what} was restored as {str(restored)[:500]}; the source has {str(source)[:500]}"


_SUMS: Final = (
    "SELECT (SELECT count(*) || ' ' || md5(string_agg(t, '|' ORDER BY id)) FROM line), (SELECT max(number) FROM turn)"
)
_HEX: Final = "(SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 16) m WHERE m + id > 0)"
_SESSIONS: Final = (
    "SELECT backend_type || ' ' || application_name || ' ' || coalesce(query, '') FROM pg_stat_activity "
    "WHERE backend_type IN ('client backend', 'walsender') AND pid <> pg_backend_pid() "
    "UNION ALL SELECT 'slot ' || slot_name FROM pg_replication_slots"
)


class _OnPostgres:
    """What sources on a PostgreSQL server share: databases with `rows` lines of 512 bytes of hex each."""

    secrets: Final = {"pg": PASSWORD}
    local = False
    parts = False

    def __init__(self, stack: ExitStack, rows: dict[str, int]) -> None:
        self.server: Server = stack.enter_context(postgres_server(PASSWORD))
        self.env = {"ROTA_POSTGRES_BIN": str(self.server.programs)}
        self._rows = rows
        for name, count in rows.items():
            if name != "postgres":
                self.server.sql("postgres", f"CREATE DATABASE {name}")
            self.server.sql(
                name,
                f"CREATE TABLE line AS SELECT id, {_HEX} AS t FROM generate_series(1, {count}) id; "
                "CREATE TABLE turn (number int)",
            )

    def _named(self, database: str = "postgres", **more: Any) -> dict[str, Any]:
        return {"url": self.server.url(database), "password": {"secret": "pg"}} | more

    def change(self, number: int) -> None:
        for name in self._rows:
            self.server.sql(name, f"UPDATE line SET t = {_HEX} WHERE id % 5 = {number % 5}")
            self.server.sql(name, f"INSERT INTO turn VALUES ({number})")

    def sessions(self) -> list[str]:
        return [line for line in self.server.sql("postgres", _SESSIONS).splitlines() if line]

    def _compare_database(self, name: str, url: str, options: dict[str, Any] | None, parts: RestoreParts) -> None:
        self.server.sql("postgres", "CREATE DATABASE back")
        try:
            restore_backup(url, self.server.url("back"), options=options, password=PASSWORD, parts=parts)
            equal(f"database {name}", self.server.sql(name, _SUMS), self.server.sql("back", _SUMS))
        finally:
            self.server.sql("postgres", "DROP DATABASE back WITH (FORCE)")


class OneDatabase(_OnPostgres):
    """One database of PostgreSQL."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        super().__init__(stack, {"orders": 12_000})
        source = {"type": "postgres", "fingerprint": "content"} | self._named("orders")
        self.params = {"source": source, "bytes_per_s": 3_000_000}

    def compare(self, url: str, options: dict[str, Any] | None, scratch: Path) -> None:
        self._compare_database("orders", url, options, RestoreParts())


class SeveralDatabases(_OnPostgres):
    """Four databases of a PostgreSQL server, two dumped at once."""

    parts = True

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        super().__init__(stack, dict.fromkeys(("orders", "customers", "stock", "ledger"), 4_800))
        source = {"type": "postgres", "databases": list(self._rows), "parallel": 2} | self._named()
        self.params = {"source": source, "bytes_per_s": 4_000_000}

    def compare(self, url: str, options: dict[str, Any] | None, scratch: Path) -> None:
        for name in self._rows:
            self._compare_database(name, url, options, RestoreParts(database=name))


class WholeServer(_OnPostgres):
    """A PostgreSQL server as its files; each backup is a full one."""

    more: ClassVar[dict[str, Any]] = {}

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        super().__init__(stack, {"postgres": 6_000})
        self.server.sql("postgres", "ALTER SYSTEM SET summarize_wal = on")
        self.server.sql("postgres", "SELECT pg_reload_conf()")
        source = {"type": "postgres_physical"} | self.more | self._named()
        self.params = {"source": source, "bytes_per_s": 16_000_000}

    def compare(self, url: str, options: dict[str, Any] | None, scratch: Path) -> None:
        with recovered(self.server, lambda target: restore_backup(url, str(target), options=options)) as again:
            equal("the server", self.server.sql("postgres", _SUMS), again.sql("postgres", _SUMS))


class IncrementalServer(WholeServer):
    """A PostgreSQL server as its files; each sixth backup is a full one, the others continue it."""

    more: ClassVar = {"full_every": 6}

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        super().__init__(stack, folder)
        self.params["bytes_per_s"] = 8_000_000


class MariadbDatabases:
    """Three databases of a MariaDB server, and its accounts."""

    secrets: Final = {"maria": ROOT_PASSWORD}
    env: Final[Mapping[str, str]] = {}
    local = False
    parts = True
    _rows: Final = {"shop": 30_000, "wiki": 20_000, "blog": 10_000}

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.server = stack.enter_context(mariadb_server())
        for name, rows in self._rows.items():
            self.server.sql(f"CREATE DATABASE {name}; CREATE TABLE {name}.line (id int PRIMARY KEY, t text)")
            self.server.sql(f"INSERT INTO line SELECT seq, repeat(md5(seq), 4) FROM seq_1_to_{rows}", name)
        source = {"type": "mariadb", "url": self.server.url(), "password": {"secret": "maria"}}
        self.params = {"source": source, "bytes_per_s": 3_000_000}

    def change(self, number: int) -> None:
        for name in self._rows:
            self.server.sql(f"UPDATE line SET t = repeat(md5(id + {number}), 4) WHERE id % 5 = {number % 5}", name)

    def compare(self, url: str, options: dict[str, Any] | None, scratch: Path) -> None:
        for name in self._rows:
            parts = RestoreParts(database=name)
            restore_backup(url, self.server.url("back"), options=options, password=ROOT_PASSWORD, parts=parts)
            checksums = [self.server.sql(f"CHECKSUM TABLE {each}.line").split()[-1] for each in (name, "back")]
            self.server.sql("DROP DATABASE back")
            equal(f"database {name}", *checksums)

    def sessions(self) -> list[str]:
        listed = "SELECT user, command, info FROM information_schema.processlist WHERE id <> CONNECTION_ID()"
        return [line for line in self.server.sql(listed).splitlines() if "Daemon" not in line]


class _Files:
    """What sources without a server share."""

    secrets: Final[Mapping[str, str]] = {}
    env: Final[Mapping[str, str]] = {}
    local = False
    parts = False

    def sessions(self) -> list[str]:
        return []


class SqliteFile(_Files):
    """An SQLite database on one member."""

    local = True

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._path = folder / "app.db"
        with closing(sqlite3.connect(self._path)) as database:
            database.execute("CREATE TABLE line (id INTEGER PRIMARY KEY, t TEXT)")
            rows = ((random.randbytes(400).hex(),) for _ in range(10_000))
            database.executemany("INSERT INTO line (t) VALUES (?)", rows)
            database.commit()
        self.params = {"source": {"type": "sqlite", "path": str(self._path)}, "bytes_per_s": 4_000_000}

    def change(self, number: int) -> None:
        with closing(sqlite3.connect(self._path)) as database:
            database.execute("UPDATE line SET t = upper(t) || ? WHERE id % 5 = ?", (str(number), number % 5))
            database.commit()

    def compare(self, url: str, options: dict[str, Any] | None, scratch: Path) -> None:
        restore_backup(url, str(scratch / "back.db"), options=options)
        equal("the database", _content(self._path), _content(scratch / "back.db"))


def _content(path: Path) -> list[Any]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT * FROM line ORDER BY id").fetchall()


class ManyFiles(_Files):
    """A folder of 72,000 files, which are two packs."""

    parts = True

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._top = folder / "files"
        for number in range(72):
            inside = self._top / f"{number:02}"
            inside.mkdir(parents=True)
            for file in range(1000):
                (inside / f"{file:03}").touch()
        source = {"type": "folder", "path": str(self._top), "shared": True}
        self.params: dict[str, Any] = {"source": source, "bytes_per_s": 25_000_000, "level": 1}

    def change(self, number: int) -> None:
        (self._top / f"{number % 72:02}" / "500").write_text(f"of turn {number}")
        changed_s = time.monotonic()
        wait_for("files that are known as unchanged", lambda: time.monotonic() - changed_s > SETTLE_S, SETTLE_S * 4)

    def compare(self, url: str, options: dict[str, Any] | None, scratch: Path) -> None:
        restore_backup(url, str(scratch / "back"), options=options)
        equal("the folder", set(), set(_lines_of(self._top)) ^ set(_lines_of(scratch / "back")))


def _lines_of(top: Path) -> Iterator[tuple[Any, ...]]:
    """What of a folder with very many small files must be equal; `facts_of_tree` takes long for these."""
    for folder, _, files in os.walk(top):
        for name in (".", *files):
            path = Path(folder, name)
            about = path.lstat()
            content = path.read_bytes() if name != "." and about.st_size else b""
            yield path.relative_to(top), about.st_mode, about.st_uid, about.st_gid, about.st_mtime_ns, content


class FewFiles(_Files):
    """A folder of a few large files."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._top = folder / "files"
        self._top.mkdir()
        for number in range(8):
            (self._top / f"{number}.bin").write_bytes(random.randbytes(1 << 20))
        source = {"type": "folder", "path": str(self._top), "shared": True}
        self.params: dict[str, Any] = {"source": source, "bytes_per_s": 4_000_000, "level": 1}

    def change(self, number: int) -> None:
        (self._top / f"{number % 8}.bin").write_bytes(random.randbytes(1 << 20))

    def compare(self, url: str, options: dict[str, Any] | None, scratch: Path) -> None:
        restore_backup(url, str(scratch / "back"), options=options)
        equal("the folder", facts_of_tree(self._top), facts_of_tree(scratch / "back"))
        shutil.rmtree(scratch / "back")


class ProgramOutput(_Files):
    """What a program writes."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._path = folder / "written"
        source = {"type": "stream", "argv": ["cat", str(self._path)], "shared": True}
        self.params = {"source": source, "bytes_per_s": 3_000_000}

    def change(self, number: int) -> None:
        self._path.write_bytes(random.randbytes(8 << 20))

    def compare(self, url: str, options: dict[str, Any] | None, scratch: Path) -> None:
        restore_backup(url, str(scratch / "back"), options=options)
        equal("the output", self._path.read_bytes(), (scratch / "back").read_bytes())
