"""Restores dumps of MariaDB into a server of one drill, and compares their tables with what is recorded of the dumps.

The server is in the attempt's scratch folder, on a Unix socket only, and gone with the attempt. It runs no events and
replicates nothing, and the kernel lets it reach nothing but its own folder and its callers (`tasks.drill.enclosure`).
"""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from tasks.access import Access
from tasks.backup.fingerprint import differing_tables
from tasks.backup.manifest import TableFacts
from tasks.backup.sources.mariadb.server import (
    MariadbFailed,
    MariadbServer,
    NoMariadbProgram,
    connected,
    mariadb_programs,
    quoted_name,
)
from tasks.backup.sources.source import RestoreTarget
from tasks.drill.enclosure import ServerRoom
from tasks.drill.proving import CHECK_USER, DrillWork, Findings, run_checks
from tasks.drill.scratch_server import ServerUnfit, as_server, server_environment
from tasks.drill.watch import DrillWatch
from tasks.needs import Tool

_NAMES: Final = "mariadbd", "mysqld"
_MORE_PLACES: Final = "/usr/sbin", "/usr/libexec", "/usr/local/sbin"
_SHARED: Final = "/usr/share/mysql", "/usr/share/mariadb", "/usr/local/share/mysql"
"""Where the SQL lies that makes the tables of a new server."""

_SYSTEM: Final = "system_tables.sql", "performance_tables.sql", "system_tables_data.sql"
"""The files with that SQL, which are named `mysql_...` or `mariadb_...`, by version."""

_VERSION: Final = re.compile(r"Ver (\d+\.\d+)")
_OPTIONS: Final = (
    "--skip-networking --skip-log-bin --skip-slave-start --event-scheduler=OFF --local-infile=0 "
    "--performance-schema=OFF --innodb-buffer-pool-size=64M --innodb-log-file-size=32M --innodb-doublewrite=0 "
    "--innodb-flush-log-at-trx-commit=0 --max-allowed-packet=1G --lower-case-table-names=0 --innodb-use-native-aio=0"
).split()
"""It is reached by this attempt only, tells and follows nobody, and need not survive a crash."""

_TABLES: Final = """SELECT table_schema, table_name, table_type FROM information_schema.tables
WHERE table_type IN ('BASE TABLE', 'SYSTEM VERSIONED')
AND table_schema NOT IN ('information_schema', 'mysql', 'performance_schema', 'sys')
AND COALESCE(engine, '') NOT IN ('MRG_MyISAM', 'MRG_ISAM', 'CONNECT', 'OQGRAPH', 'SPIDER', 'VP', 'FEDERATED')"""
"""The tables whose rows mariadb-dump dumps."""

_POLL_S: Final = 0.05


def mariadb_server_programs(environ: Mapping[str, str], access: Access) -> Iterator[Tool]:
    """MariaDB's programs, that of its server too, and what a server needs to be started (`tasks.needs.Tools`)."""
    yield from mariadb_programs(environ, access)
    yield from (Tool(program, "run") for program in _found(environ))


def _found(environ: Mapping[str, str]) -> list[str]:
    path = os.pathsep.join((environ.get("PATH", os.defpath), *_MORE_PLACES))
    return list(filter(None, (shutil.which(name, path=path) for name in _NAMES)))


def _program(version: str) -> str:
    """Find the server of the series of `version`, such as 10.11. Raises `NoMariadbProgram`."""
    wanted = ".".join(version.split(".")[:2])
    here: dict[str, str] = {}
    for program in _found(os.environ):
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
        if found := _VERSION.search(said):
            here.setdefault(found[1], program)
    if wanted in here:
        return here[wanted]
    raise NoMariadbProgram(
        f"a drill needs a MariaDB server of version {wanted}, which is not there (found: {', '.join(here) or 'none'}). "
        "Install the package mariadb-server of that version on this node, or bind the drill to nodes that have it, by "
        "their group"
    )


class ScratchMariadb:
    """A server whose data folder is `folder`/data. Its folder must be in the attempt's scratch folder."""

    def __init__(self, folder: Path, program: str, watch: DrillWatch) -> None:
        self._folder = folder
        self._program = program
        self._watch = watch
        self._descriptor = -1
        self._data = folder / "data"
        self._log = folder / "server.log"
        # `nobody` makes the data folder in it. Nobody else can enter the scratch folder.
        folder.mkdir()
        folder.chmod(0o777 if os.geteuid() == 0 else 0o700)

    def initialize(self) -> None:
        """Make an empty data folder. Raises `ServerUnfit` and `NoMariadbProgram`."""
        begin = "SET @auth_root_socket = NULL;\nCREATE DATABASE mysql;\nUSE mysql;\n"
        made = subprocess.run(as_server(["mkdir", "-p", str(self._data), str(self._folder / "tmp")]), check=False)
        done = subprocess.run(
            self._argv("--bootstrap"),
            input=begin + "\n".join(map(_system_sql, _SYSTEM)),
            text=True,
            capture_output=True,
            env=server_environment(os.environ),
            cwd=self._folder,
            check=False,
        )
        if made.returncode or done.returncode:
            raise ServerUnfit(f"{self._program} made no data folder: {done.stderr.strip()[-2000:]}")

    def _argv(self, *more: str) -> list[str]:
        room = ServerRoom(reads=("/etc/ssl/openssl.cnf",), writes=(str(self._folder),))
        options = (f"--datadir={self._data}", f"--tmpdir={self._folder / 'tmp'}", f"--secure-file-priv={self._data}")
        return as_server(room.argv(self._program, "--no-defaults", *options, *_OPTIONS, *more))

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the server during the block. Raises `ServerUnfit` if it does not start."""
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                self._argv("--socket=socket", "--pid-file=pid"),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env=server_environment(os.environ),
            )
        try:
            with self._watch.ending(process.kill):
                self._descriptor = os.open(self._data, os.O_PATH | os.O_DIRECTORY)
                self._wait_until_ready(process)
                yield
        finally:
            process.send_signal(signal.SIGKILL)  # nothing of it is needed any more
            process.wait()
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    def url(self, user: str = "root") -> str:
        """Return the server's URL. A socket's path has at most 107 bytes, and a scratch folder's may be longer."""
        return f"mysql://{user}@/?socket=/proc/{os.getpid()}/fd/{self._descriptor}/socket"

    def connected(self, user: str = "root") -> AbstractContextManager[MariadbServer]:
        """Reach the running server during the block."""
        return connected(self.url(user), "", self._folder.parent)

    def _wait_until_ready(self, process: "subprocess.Popen[bytes]") -> None:
        with self.connected() as server:
            while True:
                self._watch.check()
                if process.poll() is not None:
                    said = self._log.read_bytes()[-2000:].decode(errors="replace").strip()
                    raise ServerUnfit(f"the scratch server did not start: {said}")
                if (self._data / "socket").exists():
                    try:
                        server.ask("SELECT 1")
                    except MariadbFailed as error:
                        if "Can't connect" not in str(error):
                            raise
                    else:
                        return
                time.sleep(_POLL_S)


def _system_sql(name: str) -> str:
    for folder in _SHARED:
        for prefix in ("mariadb_", "mysql_"):
            path = Path(folder, prefix + name)
            if path.exists():
                return path.read_text(encoding="utf-8", errors="replace")
    raise NoMariadbProgram(f"the package of MariaDB's server lacks mysql_{name} in {', '.join(_SHARED)}")


def prove_mariadb(work: DrillWork, found: Findings) -> None:
    """Restore all databases and accounts of a backup into a scratch server, and compare the tables.

    Raises `Damaged` and `MariadbFailed` if they do not restore, `NoMariadbProgram` if this member has no server of the
    version.
    """
    version = work.manifest.tools["mariadb"]
    server = ScratchMariadb(work.scratch / "server", _program(version), work.watch)
    server.initialize()
    with server.running():
        done = work.restore(RestoreTarget(server.url(), password=""))
        found.how.append(f"restored into a scratch server of MariaDB {version}, with accounts and grants")
        found.how += [remark for remark in done.remarks if remark not in done.manifest.remarks]
        recorded = [file.tables for file in done.manifest.files if file.tables is not None]
        with server.connected() as connection:
            now = _tables(connection)
            found.tables, found.rows = len(now), sum(table.rows for table in now)
            if recorded:
                found.how.append(f"{len(now)} tables compared with the dump: their numbers of rows")
                found.problems += differing_tables([table for tables in recorded for table in tables], now)
            else:
                found.how.append("tables were only counted: the manifest does not say how many rows the dump has")
            _run_checks(work, server, connection, sorted({table.schema_name for table in now}), found)


def _tables(server: MariadbServer) -> list[TableFacts]:
    facts = []
    for schema, name, kind in server.ask(_TABLES):
        versions = " FOR SYSTEM_TIME ALL" if kind == "SYSTEM VERSIONED" else ""
        [(rows,)] = server.ask(f"SELECT COUNT(*) FROM {quoted_name(schema)}.{quoted_name(name)}{versions}")
        facts.append(TableFacts(schema_name=schema, name=name, rows=int(rows)))
    return facts


def _run_checks(
    work: DrillWork, server: ScratchMariadb, root: MariadbServer, databases: list[str], found: Findings
) -> None:
    """Run the checks of the user, as an account that may read everything and change nothing."""
    if not work.params.checks:
        return
    root.ask(f"CREATE USER {CHECK_USER}@localhost; GRANT SELECT, SHOW VIEW ON *.* TO {CHECK_USER}@localhost")
    with server.connected(CHECK_USER) as reader:

        def ask(database: str, sql: str) -> str:
            bounds = f"SET SESSION max_statement_time = {work.left_s()}; SET SESSION TRANSACTION READ ONLY"
            rows = reader.ask(f"{bounds}; USE {quoted_name(database)}; {sql}")
            return "\n".join("|".join(row) for row in rows)

        run_checks(work.params.checks, databases, ask, found, booleans=("1", "0"))
