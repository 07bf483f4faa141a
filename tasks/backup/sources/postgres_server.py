"""Dumps the databases of a PostgreSQL server, each under its own snapshot, and its roles and tablespaces as SQL."""

import json
import re
import subprocess
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Final, Literal, NamedTuple

from tasks.backup.fingerprint import Fingerprint
from tasks.backup.objects import NewObjects
from tasks.backup.sources.postgres_database import Database
from tasks.backup.sources.postgres_dump import DatabaseDump, chunks_of, dump_database, dump_together
from tasks.backup.sources.postgres_readable import check_all_readable
from tasks.backup.sources.postgres_sql import database_statements, tablespaces_of
from tasks.backup.sources.postgres_tools import Tools
from tasks.backup.sources.source import NoBackupSource
from tasks.postgres.url import parse

SERVER_FILE: Final = "server.sql.zst"
"""The object of a backup of several databases that holds SQL: the roles, the tablespaces and the databases."""

_DATABASES: Final = """SELECT json_build_object('name', datname, 'oid', oid::bigint, 'template', datistemplate,
'size_bytes', CASE WHEN has_database_privilege(oid, 'CONNECT') THEN pg_database_size(oid) ELSE 0 END)
FROM pg_catalog.pg_database WHERE datallowconn ORDER BY datname"""


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


def dump_server(
    server: Database,
    tools: Tools,
    wanted: ServerDump,
    out: NewObjects,
    step: Callable[[], None],
    now: Callable[[], datetime],
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

    def dump_one(each: ListedDatabase, step: Callable[[], None]) -> None:
        how = DatabaseDump(fingerprint=wanted.fingerprint, file_name=each.file_name, whole=True)
        dump_database(server.of_name(each.name), tools, out, how, step, now)

    dump_together([partial(dump_one, each) for each in new], wanted.parallel, step)
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
        return b"".join(chunks_of(process, step)).decode(errors="surrogateescape")


def _kept(out: NewObjects, database: ListedDatabase) -> str:
    entry = out.keep(database.file_name)
    at = "" if entry.database is None else f" at {entry.database.dumped:%Y-%m-%dT%H:%M:%SZ}"
    return f"the database {database.name} was dumped{at} by an earlier attempt at this run, and is kept as it was then"
