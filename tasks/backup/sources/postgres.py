"""Backs up a PostgreSQL database by pg_dump, in its custom format and through a pipe. Restores it by pg_restore.

Roles and tablespaces belong to the server, not to a database, and are not in the backup.
"""

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, model_validator

from tasks.access import Access
from tasks.backup.archive import CHUNK_BYTES, Content, TargetExists, Writer
from tasks.backup.fingerprint import Fingerprint, table_facts
from tasks.backup.manifest import FileEntry, Manifest
from tasks.backup.objects import NewObjects, StoredObjects
from tasks.backup.sources.postgres_database import Database
from tasks.backup.sources.postgres_tools import NoTool, PostgresFailed, Tools, choose, installed_tools
from tasks.backup.sources.source import RestoreTarget, SourceNotes, SourceWork
from tasks.needs import Needs
from tasks.postgres.connection import PostgresConnection
from tasks.reach import Reach

FILE = "postgres.dump.zst"

POSTGRES_TOOLS: Final = "tasks.backup.sources.postgres_tools:programs"
"""The function that finds PostgreSQL's programs (`tasks.needs.Tools`)."""

_USER_RELATIONS = """SELECT count(*) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_(toast|temp)'"""


_NO_LIMITS: Final = """SET client_encoding = 'UTF8';
SELECT set_config(name, '0', false) FROM pg_catalog.pg_settings WHERE name IN ('statement_timeout', 'lock_timeout',
'idle_in_transaction_session_timeout', 'transaction_timeout');"""
_SNAPSHOT: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; SELECT pg_catalog.pg_export_snapshot();"
"""Begins a transaction, and returns the name by which pg_dump can import its snapshot."""

_STEP_S: Final = 0.5

_DATABASE = "SELECT datname || ' (oid ' || oid || ')' FROM pg_catalog.pg_database WHERE datname = current_database()"
_SYSTEM = "SELECT system_identifier FROM pg_catalog.pg_control_system()"


class PostgresServerSource(PostgresConnection):
    """A source on a PostgreSQL server, which the member reaches over the network or a socket."""

    def is_local(self) -> bool:
        """Return False: all members reach the same server."""
        return False

    def reach(self) -> Reach:
        """Return the addresses of the servers that the URL names."""
        return Reach("source", "source", self.url, addresses=self.addresses())

    def needs(self) -> Needs:
        """Return PostgreSQL's programs, the URL's file of root certificates, and the credential files of libpq."""
        certificate = self.certificate("source")
        return Needs(reaches=certificate, tools=(POSTGRES_TOOLS,), own_credentials=self.own_credentials)

    def check_readable(self, access: Access, node: str) -> None:
        """Raise `AccessRefused` if tasks may not reach the servers."""
        self.check(access)


class PostgresSource(PostgresServerSource):
    """A database on a PostgreSQL server that the member can reach."""

    type: Literal["postgres"] = Field(description="The type of the source")
    fingerprint: Fingerprint = Field(
        default="rows",
        description="What the manifest says of each table, as the dump saw it, for drills to compare: `rows`: how many "
        "it has; `content`: a hash of their content too; `none`: nothing",
    )

    @model_validator(mode="before")
    @classmethod
    def _no_programs(cls, given: Any) -> Any:
        if not isinstance(given, dict) or "bin" not in given:
            return given
        if given["bin"] is not None:
            raise ValueError(
                "`bin` is no longer a param, because the node decides which programs run. Leave it out, and set "
                "ROTA_POSTGRES_BIN on the node to the folder of pg_dump, psql and pg_restore"
            )
        return {name: value for name, value in given.items() if name != "bin"}

    def identity(self, work: SourceWork) -> dict[str, str]:
        """Return the database's identity facts (`tasks.source_identity`). Raises `NoTool`, `PostgresFailed`."""
        database = database_of(self, work)
        return identity(database, database.tools())

    def dump(self, work: SourceWork, out: NewObjects) -> SourceNotes:
        """Write an archive in pg_dump's custom format. Raises `NoTool`, `PostgresFailed`."""
        database = database_of(self, work)
        found = database.tools()
        with out.writing(FILE) as writer:
            dump(database, found, writer, self.fingerprint, work.step)
        return SourceNotes(tools={"pg_dump": found.version})

    @classmethod
    def restore(cls, stored: StoredObjects, target: RestoreTarget) -> list[str]:
        """Restore the archive into a database, in one transaction."""
        with tempfile.TemporaryDirectory(prefix="rota-restore-") as scratch:
            database = Database(target.name, Path(scratch), target.password)
            restore(stored.only(), database, stored.manifest.tools["pg_dump"], target.overwrite)
        return []

    @classmethod
    def verify(cls, content: Content, entry: FileEntry, manifest: Manifest, scratch: Path) -> list[str]:
        """Let pg_restore read the table of contents. Returns a remark if it is not installed."""
        remark = check(content, scratch, manifest.tools["pg_dump"])
        return [] if remark is None else [remark]


def _go_on() -> None:
    """Do nothing: the work need not stop."""


def database_of(source: PostgresConnection, work: SourceWork) -> Database:
    """Return the database of a source, with the attempt's password and programs."""
    password = None if source.password is None else work.secret(source.password)
    return Database(source.url, work.scratch, password, work.access.postgres_bin)


def identity(database: Database, tools: Tools) -> dict[str, str]:
    """Return the database's identity facts (`tasks.source_identity`). Raises `PostgresFailed`.

    The system identifier identifies the data, not the machine: a standby has the same one as its primary. Other servers
    that speak PostgreSQL's protocol may have no system identifier.
    """
    facts = {"type": "postgres", "database": database.ask(tools, _DATABASE)}
    try:
        return facts | {"system": database.ask(tools, _SYSTEM)}
    except PostgresFailed:
        return facts


def dump(
    database: Database, tools: Tools, out: Writer, fingerprint: Fingerprint = "none", step: Callable[[], None] = _go_on
) -> None:
    """Write the database as an archive in pg_dump's custom format, and the facts of its tables into the entry of `out`.

    `step` is called while the tables are still read once the archive is complete; it raises if the work must stop.
    Raises `PostgresFailed`.
    """
    # Let pg_dump not compress, since zstd compresses its output.
    argv = [tools.program("pg_dump"), "--format=custom", "--compress=0", "--no-password", f"--dbname={database.url}"]
    if fingerprint == "none":
        with database.running(argv, subprocess.DEVNULL, subprocess.PIPE) as process:
            for chunk in _chunks(process):
                out.write(chunk)
        return
    # The session is closed before the thread is waited for, so that a dump that fails does not wait for the thread.
    with ThreadPoolExecutor(1) as threads, database.session(tools) as session:
        session.ask(_NO_LIMITS)
        argv.append(f"--snapshot={session.ask(_SNAPSHOT)}")
        reading = threads.submit(table_facts, session.ask, fingerprint)
        with database.running(argv, subprocess.DEVNULL, subprocess.PIPE) as process:
            for chunk in _chunks(process):
                out.write(chunk)
                if reading.done():
                    reading.result()
        while not wait([reading], _STEP_S).done:
            step()
        out.about(tables=reading.result())


def _chunks(process: "subprocess.Popen[bytes]") -> Iterator[bytes]:
    assert process.stdout is not None
    while chunk := process.stdout.read(CHUNK_BYTES):
        yield chunk


def restore(content: Content, database: Database, dumped_with: str, overwrite: bool) -> None:
    """Restore the archive into a database in one transaction. The restoring user owns the objects.

    `overwrite` first drops the objects that are in the archive. Raises `TargetExists` if the database has tables and
    `overwrite` is not set; `PostgresFailed`; `Damaged`.
    """
    tools = database.tools(at_least=int(dumped_with.partition(".")[0]))
    if not overwrite and int(database.ask(tools, _USER_RELATIONS)) > 0:
        raise TargetExists(f"{database.url} is not empty: name another database, or give --overwrite")
    argv = [tools.program("pg_restore"), "--single-transaction", "--no-owner", "--no-privileges", "--no-password"]
    argv += ["--clean", "--if-exists"] if overwrite else []
    with database.running([*argv, f"--dbname={database.url}"], subprocess.PIPE, subprocess.DEVNULL) as process:
        _feed(content, process)


def _feed(content: Content, process: "subprocess.Popen[bytes]") -> None:
    assert process.stdin is not None
    while chunk := content.read(CHUNK_BYTES):
        process.stdin.write(chunk)


def check(content: Content, scratch: Path, dumped_with: str) -> str | None:
    """Read the whole archive, and let pg_restore list it. Returns a remark if no pg_restore fits; else None.

    Raises `Damaged`, and `PostgresFailed` if pg_restore refuses the archive.
    """
    try:
        tools = choose(
            installed_tools(os.environ.get("ROTA_POSTGRES_BIN"), os.environ), int(dumped_with.partition(".")[0])
        )
    except NoTool as error:
        content.drain()
        return str(error)
    listing = Database("", scratch)
    with listing.running([tools.program("pg_restore"), "--list"], subprocess.PIPE, subprocess.DEVNULL) as process:
        try:
            _feed(content, process)
        except BrokenPipeError:
            # pg_restore has read the table of contents and ended. Read the rest for the checksums.
            content.drain()
    return None
