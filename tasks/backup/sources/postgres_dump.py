"""Dumps PostgreSQL databases by pg_dump, in its custom format and through pipes: one database, or those of a server.

Each database is dumped under a snapshot of its own, under which its tables are counted, too.
"""

import json
import re
import select
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple, TypeVar

from tasks.backup.archive import CHUNK_BYTES, Writer
from tasks.backup.fingerprint import (
    BEGIN,
    LOCK,
    Fingerprint,
    between,
    database_content,
    sequence_positions,
)
from tasks.backup.manifest import DatabaseFacts
from tasks.backup.objects import NewObjects
from tasks.backup.sources.postgres_database import Database
from tasks.backup.sources.postgres_readable import check_all_readable
from tasks.backup.sources.postgres_sql import database_statements, tablespaces_of
from tasks.backup.sources.postgres_tools import PostgresFailed, Tools
from tasks.backup.sources.source import NoBackupSource
from tasks.postgres.url import parse

FILE: Final = "postgres.dump.zst"
"""The object of a backup of one database."""

SERVER_FILE: Final = "server.sql.zst"
"""The object of a backup of several databases that holds SQL: the roles, the tablespaces and the databases."""

_NO_LIMITS: Final = """SELECT set_config(name, '0', false) FROM pg_catalog.pg_settings WHERE name IN (
'statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout');"""
_SNAPSHOT: Final = f"{BEGIN} SELECT pg_catalog.pg_export_snapshot();"
"""Begins a transaction, and returns the name by which pg_dump can import its snapshot."""

_OWNERS: Final = {
    "pg_class": "relowner",
    "pg_proc": "proowner",
    "pg_namespace": "nspowner",
    "pg_type": "typowner",
    "pg_operator": "oprowner",
    "pg_collation": "collowner",
    "pg_publication": "pubowner",
    "pg_event_trigger": "evtowner",
    "pg_statistic_ext": "stxowner",
    "pg_foreign_server": "srvowner",
    "pg_foreign_data_wrapper": "fdwowner",
    "pg_ts_config": "cfgowner",
    "pg_ts_dict": "dictowner",
    "pg_largeobject_metadata": "lomowner",
}
_OF_FIRST: Final = " OR ".join(
    f"EXISTS (SELECT FROM {catalog} o WHERE o.{owner} = 10 AND o.oid >= 16384 AND NOT EXISTS (SELECT FROM pg_depend e "
    f"WHERE e.classid = '{catalog}'::regclass AND e.objid = o.oid AND e.deptype = 'e'))"
    for catalog, owner in _OWNERS.items()
)
_FACTS: Final = f"""SELECT json_build_object('name', b.datname, 'oid', b.oid::bigint, 'roles', array(
SELECT r.rolname FROM pg_shdepend d JOIN pg_roles r ON r.oid = d.refobjid
WHERE d.refclassid = 'pg_authid'::regclass AND d.dbid = b.oid
UNION SELECT r.rolname FROM pg_roles r WHERE r.oid = 10 AND ({_OF_FIRST}) ORDER BY 1))
FROM pg_database b WHERE b.datname = current_database();"""
"""The roles are those that own something in the database, or that something is granted to. What belongs to the first
superuser, whose oid is 10, is not noted in pg_shdepend."""

_DATABASES: Final = """SELECT json_build_object('name', datname, 'oid', oid::bigint, 'template', datistemplate,
'size_bytes', CASE WHEN has_database_privilege(oid, 'CONNECT') THEN pg_database_size(oid) ELSE 0 END)
FROM pg_catalog.pg_database WHERE datallowconn ORDER BY datname"""

_STEP_S: Final = 0.5

_LOCK_WAIT_S: Final = 10
"""How long pg_dump waits for the lock of a table that this package's session has locked before: it has to wait if yet
another session waits to lock the table exclusively, and would wait for ever."""

T = TypeVar("T")


class ListedDatabase(NamedTuple):
    """A database of a server: its name, its oid, and its size on the server's disk."""

    name: str
    oid: int
    size_bytes: int

    @property
    def file_name(self) -> str:
        """The name of the object with the dump. The oid tells apart names that differ in other characters only.

        >>> ListedDatabase("größe/1", 16384, 0).file_name
        'gr__e_1-16384.dump.zst'
        """
        return f"{re.sub('[^A-Za-z0-9_-]', '_', self.name)}-{self.oid}.dump.zst"


class ServerDump(NamedTuple):
    """What to dump of a server, and how."""

    #: The names of the databases, or all that take connections and are no templates.
    databases: Literal["all"] | Sequence[str]
    #: How many databases are dumped at once.
    parallel: int
    #: Whether the roles' passwords are dumped, as the server stores them.
    passwords: bool
    #: What is recorded of each table.
    fingerprint: Fingerprint


def dump_database(
    database: Database, tools: Tools, out: Writer, fingerprint: Fingerprint, step: Callable[[], None]
) -> None:
    """Write a database as an archive in pg_dump's custom format, and facts about it into the entry of `out`.

    `step` is called regularly; it raises if the work must stop. Raises `PostgresFailed`.
    """
    # Let pg_dump not compress, since zstd compresses its output.
    argv = [tools.program("pg_dump"), "--format=custom", "--compress=0", "--no-password", f"--dbname={database.url}"]
    argv.append(f"--lock-wait-timeout={_LOCK_WAIT_S * 1000}")
    # The session is closed before the thread is waited for, so that a dump that fails does not wait for the thread.
    with ThreadPoolExecutor(1) as threads, database.session(tools) as session:
        session.ask(_NO_LIMITS)
        argv.append(f"--snapshot={session.ask(_SNAPSHOT)}")
        out.about(database=DatabaseFacts(dumped=datetime.now(UTC), **json.loads(session.ask(_FACTS))))
        _result(threads.submit(session.ask, LOCK), step)
        counting = threads.submit(database_content, session.ask, fingerprint)
        with database.running(argv, subprocess.DEVNULL, subprocess.PIPE) as process:
            for chunk in _chunks(process, step):
                out.write(chunk)
                if counting.done():
                    counting.result()
        content = _result(counting, step)
        if content.sequences is not None:
            positions = _result(threads.submit(sequence_positions, session.ask), step)
            content = replace(content, sequences=between(content.sequences, positions))
        out.about(**content.fields())


def _result(future: "Future[T]", step: Callable[[], None]) -> T:
    while not wait([future], _STEP_S).done:
        step()
    return future.result()


def _chunks(process: "subprocess.Popen[bytes]", step: Callable[[], None]) -> Iterator[bytes]:
    """Yield what a program writes. `step` is called while it writes nothing, such as while it waits for a lock."""
    assert process.stdout is not None
    output = select.poll()
    output.register(process.stdout)
    while True:
        while not output.poll(_STEP_S * 1000):
            step()
        if not (chunk := process.stdout.read(CHUNK_BYTES)):
            return
        yield chunk


def dump_server(
    server: Database, tools: Tools, wanted: ServerDump, out: NewObjects, step: Callable[[], None]
) -> list[str]:
    """Write the databases of a server, each as a whole object, and the SQL of its roles, tablespaces and databases.

    Databases that an earlier attempt at the run dumped are kept. `step` is as of `dump_database`. Returns remarks.
    Raises `PostgresFailed`, `NoBackupSource` if a database does not exist, and `NotReadable`; these before anything is
    written.
    """
    databases = _wanted(server, tools, wanted.databases)
    new = [each for each in databases if each.file_name not in out.kept]
    for each in new:
        check_all_readable(server.of_name(each.name), tools)
    text = _server_sql(server, tools, databases, wanted.passwords, step)
    with out.writing(SERVER_FILE) as writer:
        writer.write(text.encode(errors="surrogateescape"))
    remarks = [_kept(out, each) for each in databases if each not in new]
    _dump_all(server, tools, wanted, new, out, step)
    if others := tablespaces_of(text):
        remarks.append(f"tablespaces are in the backup by name and path only: {', '.join(others)}")
    return remarks


def _wanted(server: Database, tools: Tools, names: Literal["all"] | Sequence[str]) -> list[ListedDatabase]:
    """Return the databases to dump, the largest first."""
    found = [json.loads(line) for line in server.ask(tools, _DATABASES).splitlines()]
    listed = [
        ListedDatabase(each["name"], each["oid"], each["size_bytes"])
        for each in found
        if (not each["template"] if names == "all" else each["name"] in names)
    ]
    missing = [] if names == "all" else [name for name in names if name not in {each.name for each in listed}]
    if missing:
        there = ", ".join(each["name"] for each in found)
        raise NoBackupSource(f"the server has no database {', '.join(missing)} that takes connections; it has {there}")
    return sorted(listed, key=lambda each: -each.size_bytes)


def _server_sql(
    server: Database, tools: Tools, databases: Sequence[ListedDatabase], passwords: bool, step: Callable[[], None]
) -> str:
    """Return the SQL that makes the server's roles and tablespaces, and these databases with their properties."""
    argv = [tools.program("pg_dumpall"), "--globals-only", "--encoding=UTF8", "--no-password", f"--dbname={server.url}"]
    argv += [] if passwords else ["--no-role-passwords"]
    # pg_dumpall connects to a database `postgres` otherwise, which need not exist.
    text = _output(server, [*argv, f"--database={parse(server.url).database or 'postgres'}"], step)
    for each in databases:
        database = server.of_name(each.name)
        # Of one schema without objects of its own, so that only the database's own statements are left.
        argv = [tools.program("pg_dump"), "--create", "--section=pre-data", "--schema=pg_toast", "--encoding=UTF8"]
        of_one = _output(database, [*argv, "--no-password", f"--dbname={database.url}"], step)
        text += "\n".join(database_statements(of_one, each.name)) + "\n"
    return text


def _output(database: Database, argv: list[str], step: Callable[[], None]) -> str:
    with database.running(argv, subprocess.DEVNULL, subprocess.PIPE) as process:
        return b"".join(_chunks(process, step)).decode(errors="surrogateescape")


def _kept(out: NewObjects, database: ListedDatabase) -> str:
    entry = out.keep(database.file_name)
    at = "" if entry.database is None else f" at {entry.database.dumped:%Y-%m-%dT%H:%M:%SZ}"
    return f"the database {database.name} was dumped{at} by an earlier attempt at this run, and is kept as it was then"


def _dump_all(
    server: Database,
    tools: Tools,
    wanted: ServerDump,
    databases: Sequence[ListedDatabase],
    out: NewObjects,
    step: Callable[[], None],
) -> None:
    """Dump the databases, several at once. If one fails, stop the others, and raise its error."""
    stop = threading.Event()

    def step_unless_stopped() -> None:
        if stop.is_set():
            raise PostgresFailed("the dump of another database failed")
        step()

    def dump_one(each: ListedDatabase) -> None:
        with out.writing(each.file_name, whole=True) as writer:
            dump_database(server.of_name(each.name), tools, writer, wanted.fingerprint, step_unless_stopped)

    with ThreadPoolExecutor(wanted.parallel) as threads:
        dumps = [threads.submit(dump_one, each) for each in databases]
        done, pending = wait(dumps, return_when=FIRST_EXCEPTION)
        failed = [error for each in done if (error := each.exception()) is not None]
        stop.set()
        for each in pending:
            each.cancel()
    if failed:
        raise failed[0]
