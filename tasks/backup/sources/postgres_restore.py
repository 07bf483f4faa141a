"""Restores PostgreSQL dumps by pg_restore: one database, one table, or the databases and roles of a whole server."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from signal import SIGPIPE
from subprocess import DEVNULL, PIPE, Popen
from typing import IO, Final

from tasks.backup.archive import CHUNK_BYTES, Content, Damaged, TargetExists
from tasks.backup.fingerprint import DatabaseContent
from tasks.backup.manifest import FileEntry, Manifest
from tasks.backup.objects import StoredObjects
from tasks.backup.sources.postgres_database import Database
from tasks.backup.sources.postgres_dump import LARGE
from tasks.backup.sources.postgres_sql import (
    database_statements,
    role_statements,
    roles_of,
    tablespaces_of,
    without_tablespace,
)
from tasks.backup.sources.postgres_tools import PostgresFailed, Tools, check_restricting
from tasks.backup.sources.source import OVER_SOURCE, NoSuchPart, RestoreTarget
from tasks.kind import Unretryable

IDENTITY: Final = (
    "SELECT datname || ' (oid ' || oid || ')' FROM pg_catalog.pg_database WHERE datname = current_database()"
)
"""The name and the oid of a database, as they are in the identity of a backup of it."""

_NO_DATABASE: Final = re.compile(r'database ".*" does not exist$')

_OID: Final = re.compile(r"\(oid (\d+)\)")

SYSTEM: Final = "SELECT system_identifier FROM pg_catalog.pg_control_system()"

_USER_RELATIONS = """SELECT count(*) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_(toast|temp)'"""

_OTHER: Final = "name another database"

_DATABASES: Final = "SELECT datname FROM pg_catalog.pg_database"
_ROLES: Final = "SELECT rolname FROM pg_catalog.pg_roles"
_FIRST_MADE: Final = b"\n--\n-- Name: "
"""Before the first statement of pg_restore that makes something: all drops come before."""

_RESTRICTED: Final = re.compile(rb"^\\restrict (\S+)$", re.MULTILINE)
"""Lets psql refuse its own commands in a script of pg_restore, up to an `\\unrestrict` with the same word."""

_QUOTATION: Final = re.compile(rb"['\"]")

_TABLESPACES: Final = "SELECT spcname FROM pg_catalog.pg_tablespace"


class MissingRoles(Unretryable):
    """Owners and grants are to be restored, and the target's server lacks roles that they name."""


@dataclass(frozen=True, kw_only=True)
class DumpRestore:
    """How one dump is restored."""

    #: Replace what the target holds.
    overwrite: bool
    #: Replace it even if it is the database that was dumped.
    over_source: bool = False
    #: Restore owners and grants; else the restoring role owns everything.
    owners: bool
    #: Restore into the tablespaces of the dump; else into the database's own.
    tablespaces: bool = True
    #: Restore subscriptions.
    subscriptions: bool = True
    #: The only table to restore, as `schema.name`; None: all.
    table: str | None = None


def restore_dumps(stored: StoredObjects, target: RestoreTarget, scratch: Path) -> list[str]:
    """Restore a backup into the database that a URL names; one of a server, into the server. Returns remarks.

    Raises `NoTool`, `PostgresFailed`, `Damaged`, `TargetExists`, `NoSuchPart`, `MissingRoles`.
    """
    database = Database(target.name, scratch, target.password, target.postgres_bin)
    manifest, parts = stored.manifest, target.parts
    try:
        tools = database.tools(at_least=int(manifest.tools["pg_dump"].partition(".")[0]))
    except PostgresFailed as error:
        if _NO_DATABASE.search(str(error)):
            raise PostgresFailed(f"{error}: create it (CREATE DATABASE), and restore again") from None
        raise
    dumps = dumps_of(manifest)
    of_server = [file for file in manifest.files if file.database is None and len(manifest.files) > 1]
    if parts.database is None and of_server:
        if parts.table is not None:
            raise NoSuchPart(f"name the database of the table {parts.table}: the backup has {', '.join(dumps)}")
        text = stored.content(of_server[0]).readall().decode(errors="surrogateescape")
        return _ServerRestore(database, tools, stored, target).restore(text, dumps)
    entries = next(iter(dumps.values()), [*manifest.files])
    if parts.database is not None:
        if parts.database not in dumps:
            there = ", ".join(dumps) or "one database whose name was not recorded: leave the name out"
            raise NoSuchPart(f"the backup has no database {parts.database}; it has {there}")
        entries = dumps[parts.database]
    how = DumpRestore(
        overwrite=target.overwrite, over_source=target.over_source, owners=bool(parts.owners), table=parts.table
    )
    if how.owners:
        check_roles(database, tools, entries[0])
    remarks = check_target_database(database, tools, manifest, entries, how)
    stored.expect(entries)
    restore_dump(stored, entries, database, tools, how)
    return remarks


def dumps_of(manifest: Manifest) -> dict[str, list[FileEntry]]:
    """Return the archives of each database of a backup, in the order in which they are restored."""
    found: dict[str, list[FileEntry]] = {}
    for entry in sorted(manifest.files, key=lambda each: each.name):
        if entry.database is not None:
            found.setdefault(entry.database.name, []).append(entry)
    return found


def check_target_database(
    database: Database, tools: Tools, manifest: Manifest, entries: Sequence[FileEntry], how: DumpRestore
) -> list[str]:
    """Check that a dump may be restored into a database. Returns remarks. Raises `TargetExists`, `NoSuchPart`."""
    if how.table is None:
        found = "is not empty" if int(database.ask(tools, _USER_RELATIONS)) > 0 else None
    else:
        schema, name = _split(entries, how.table)
        found = f"has a table {how.table}" if _has_table(database, tools, schema, name) else None
    if found is None:
        return []
    is_source = _is_source(database, tools, manifest, entries[0])
    if is_source and not how.over_source:
        own = f"is the database that was backed up, and {found}"
        raise TargetExists(f"{database.url} {own}", _OTHER, OVER_SOURCE)
    if not how.overwrite:
        raise TargetExists(f"{database.url} {found}", _OTHER)
    replaced = "what it held" if how.table is None else how.table
    return [f"{database.url} is the database that was backed up: {replaced} was replaced"] if is_source else []


def check_roles(database: Database, tools: Tools, entry: FileEntry) -> None:
    """Raise `MissingRoles` if the server of a database lacks roles that a dump's owners and grants name."""
    if entry.database is None:
        return
    missing = set(entry.database.roles) - _lines(database, tools, _ROLES)
    if missing:
        raise MissingRoles(
            f"the server of {database.url} lacks roles that own something in {entry.database.name}, or that something "
            f"is granted to: {', '.join(sorted(missing))}. Create them, or restore without owners"
        )


def _is_source(database: Database, tools: Tools, manifest: Manifest, entry: FileEntry) -> bool:
    """Whether a database is the one that was dumped, renamed or not: the same oid on a server with the same identifier.

    A server that was made of another one's files has the identifier of that one.
    """
    facts = manifest.identity or {}
    if "system" not in facts:
        return False
    was = _OID.findall(facts.get("database", "")) if entry.database is None else [str(entry.database.oid)]
    try:
        return _OID.findall(database.ask(tools, IDENTITY)) == was and database.ask(tools, SYSTEM) == facts["system"]
    except PostgresFailed:
        # The role may not read the server's identifier. Then it is not known to be the source.
        return False


def restore_dump(
    stored: StoredObjects, entries: Sequence[FileEntry], database: Database, tools: Tools, how: DumpRestore
) -> None:
    """Restore a database in one transaction. Raises `PostgresFailed`, `Damaged`, `NoSuchPart`."""
    argv = [tools.program("pg_restore"), "--no-password"]
    argv += [] if how.owners else ["--no-owner", "--no-privileges"]
    argv += ["--clean", "--if-exists"] if how.overwrite else []
    argv += [] if how.tablespaces else ["--no-tablespaces"]
    argv += [] if how.subscriptions else ["--no-subscriptions"]
    if how.table is not None:
        schema, name = _split(entries, how.table)
        if not int(
            database.ask(tools, f"SELECT count(*) FROM pg_catalog.pg_namespace WHERE nspname = {_text(schema)}")
        ):
            raise NoSuchPart(f"{database.url} has no schema {schema}: create it, and restore the table again")
        argv += [f"--schema={schema}", f"--table={name}"]
        entries = [each for each in entries if each.section in {None, "pre-data"} or _holds(each, schema, name)]
    with _older_server_named(stored, database, tools):
        if len(entries) == 1:
            argv += ["--single-transaction", f"--dbname={database.url}"]
            content = stored.content(entries[0])
            with database.running(argv, PIPE, DEVNULL) as process:
                feed(content, process.stdin)
                stored.doing("pg_restore makes indexes and constraints")
            content.drain()  # so that all checksums are checked, even if pg_restore left the end unread
        else:
            _restore_parts(stored, entries, database, tools, argv)
    if how.table is not None and not _has_table(database, tools, schema, name):
        raise NoSuchPart(f"the dump has no table {how.table}: write it as SCHEMA.NAME, without quotes")


def _restore_parts(
    stored: StoredObjects, entries: Sequence[FileEntry], database: Database, tools: Tools, argv: list[str]
) -> None:
    """Restore several archives in one transaction: pg_restore writes SQL, and one psql runs it.

    The transaction is committed after all checksums of all archives were checked. `argv` is that of pg_restore. Raises
    `NoTool` if psql would obey more than SQL: a dump is untrusted.
    """
    check_restricting(tools)
    script = [tools.program("psql"), "-Xqw", "-v", "ON_ERROR_STOP=1", "-f", "-", "-d", database.url]
    with database.running(script, PIPE, DEVNULL) as psql:
        assert psql.stdin is not None
        psql.stdin.write(b"BEGIN;\n")
        if "--clean" in argv and entries[-1].section == "post-data":
            psql.stdin.write(_drops(stored, entries[-1], database, argv))
        psql.stdin.flush()
        for entry in entries:
            its = [each for each in argv if entry.section != "post-data" or each not in {"--clean", "--if-exists"}]
            with _told_by(psql):
                if entry.plain_name == LARGE:
                    _run_large(stored.content(entry), database, its, psql.stdin)
                    continue
                with database.running([*its, "--file=-"], PIPE, psql.stdin.fileno()) as process:
                    feed(stored.content(entry), process.stdin)
        psql.stdin.write(b"COMMIT;\n")


def _run_large(content: Content, database: Database, argv: list[str], psql: IO[bytes]) -> None:
    """Write the SQL of large objects to psql, without the transactions that pg_restore puts around their content."""
    with ThreadPoolExecutor(1) as threads, database.running([*argv, "--file=-"], PIPE, PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        writing = threads.submit(_write_all, without_transactions(process.stdout), psql)
        feed(content, process.stdin)
        process.stdin.close()
        writing.result()
    psql.flush()


def _write_all(lines: Iterable[bytes], to: IO[bytes]) -> None:
    ended: BrokenPipeError | None = None
    for line in lines:  # to the end, so that who writes them does not wait
        try:
            if ended is None:
                to.write(line)
        except BrokenPipeError as error:
            ended = error
    if ended is not None:
        raise ended


def without_transactions(script: Iterable[bytes]) -> Iterator[bytes]:
    r"""Yield the lines of a script of pg_restore, which copies no rows, without `BEGIN` and `COMMIT`.

    >>> lines = [b"BEGIN;\n", b"COMMENT ON LARGE OBJECT 7 IS 'it''s\n", b"COMMIT;\n", b"';\n", b"COMMIT;\n"]
    >>> b"".join(without_transactions(lines))
    b"COMMENT ON LARGE OBJECT 7 IS 'it''s\nCOMMIT;\n';\n"
    """
    within = b""  # the quotation mark of the literal or name that began in an earlier line
    for line in script:
        if not within and line in {b"BEGIN;\n", b"COMMIT;\n"}:
            continue
        yield line
        if within or not line.startswith((b"--", b"SELECT pg_catalog.lowrite(")):
            for mark in _QUOTATION.findall(line):
                within = b"" if within == mark else within or mark


def _drops(stored: StoredObjects, entry: FileEntry, database: Database, argv: list[str]) -> bytes:
    """Return the SQL that drops what an archive holds. What depends on tables is dropped before the tables."""
    with database.running([*argv, "--file=-"], PIPE, PIPE) as process, ThreadPoolExecutor(1) as threads:
        assert process.stdout is not None
        reading = threads.submit(process.stdout.read)
        feed(stored.content(entry), process.stdin)
        assert process.stdin is not None
        process.stdin.close()
        drops = reading.result().partition(_FIRST_MADE)[0]
    restricted = _RESTRICTED.search(drops)
    return drops + (b"\n" if restricted is None else b"\n\\unrestrict %s\n" % restricted[1])


@contextmanager
def _told_by(psql: "Popen[bytes]") -> Iterator[None]:
    """Let psql's own error be told, if pg_restore fails because psql has ended."""
    try:
        yield
    except PostgresFailed as error:
        if "Broken pipe" not in str(error) and f"exit code {-SIGPIPE}" not in str(error):
            raise
        psql.wait()
        raise BrokenPipeError from None


def _holds(entry: FileEntry, schema: str, name: str) -> bool:
    return entry.section == "data" and (
        entry.tables is None or any((table.schema_name, table.name) == (schema, name) for table in entry.tables)
    )


@contextmanager
def _older_server_named(stored: StoredObjects, database: Database, tools: Tools) -> Iterator[None]:
    """Add to an error of PostgreSQL that the server is older than the dump, if it is."""
    try:
        yield
    except PostgresFailed as error:
        server, made_by = database.ask(tools, "SHOW server_version"), stored.manifest.tools["pg_dump"]
        if int(server.partition(".")[0]) >= int(made_by.partition(".")[0]):
            raise
        raise PostgresFailed(
            f"{error}. The server is PostgreSQL {server}, and the dump is of pg_dump {made_by}, for servers of its own "
            "version and later ones: restore into one of those"
        ) from None


def _has_table(database: Database, tools: Tools, schema: str, name: str) -> bool:
    return bool(database.ask(tools, f"SELECT to_regclass(format('%I.%I', {_text(schema)}, {_text(name)}))"))


def feed(content: Content, pipe: IO[bytes] | None) -> None:
    """Write all of the content to a program's standard input. Raises `BrokenPipeError` if the program ends before."""
    assert pipe is not None
    while chunk := content.read(CHUNK_BYTES):
        pipe.write(chunk)


def _split(entries: Sequence[FileEntry], table: str) -> tuple[str, str]:
    """Return the schema and the name of a table. Raises `NoSuchPart` if its rows are not in the dump."""
    tables = DatabaseContent.of(entries).tables
    if tables is None:
        schema, _, name = table.partition(".")
        return schema, name
    there = {f"{each.schema_name}.{each.name}": (each.schema_name, each.name) for each in tables}
    if table in there:
        return there[table]
    more = f" and {len(there) - 20} more" if len(there) > 20 else ""
    raise NoSuchPart(
        f"the dump has no table {table} with rows of its own; it has {', '.join([*there][:20])}{more}. Of a "
        "partitioned table, restore the partitions, one after another"
    )


def _text(value: str) -> str:
    """Return a value as a literal of SQL.

    >>> _text("it's")
    "'it''s'"
    """
    quoted = value.replace("'", "''")
    return f"'{quoted}'" if "\\" not in value else "E'{}'".format(quoted.replace("\\", "\\\\"))


def executed(statement: str) -> str:
    r"""Return a script of psql that has the server execute a statement, of which psql itself reads nothing.

    A statement out of a backup is untrusted, and psql would obey a backslash in it: `\! PROGRAM` runs a program.

    >>> print(executed("CREATE ROLE a;"))
    SELECT 'CREATE ROLE a;' \gexec
    """
    return f"SELECT {_text(statement)} \\gexec"


def _lines(database: Database, tools: Tools, query: str) -> set[str]:
    return set(database.ask(tools, query).splitlines())


class _ServerRestore:
    """Restores the databases of a backup into a server, and makes the roles and the databases that are missing."""

    def __init__(self, server: Database, tools: Tools, stored: StoredObjects, target: RestoreTarget) -> None:
        self._server = server
        self._tools = tools
        self._stored = stored
        self._overwrite = target.overwrite
        self._over_source = target.over_source
        self._make_roles = target.parts.roles
        self._owners = target.parts.owners is not False

    def restore(self, text: str, dumps: Mapping[str, Sequence[FileEntry]]) -> list[str]:
        """Restore all databases. `text` is the SQL of the backup's roles, tablespaces and databases."""
        existing = _lines(self._server, self._tools, _DATABASES) & dumps.keys()
        how = DumpRestore(overwrite=self._overwrite, over_source=self._over_source, owners=self._owners)
        remarks = []
        for name, entries in dumps.items():
            if self._owners and not self._make_roles:
                check_roles(self._server, self._tools, entries[0])
            if name in existing:
                remarks += check_target_database(
                    self._server.of_name(name), self._tools, self._stored.manifest, entries, how
                )
        absent = sorted(set(tablespaces_of(text)) - _lines(self._server, self._tools, _TABLESPACES))
        if absent:
            remarks.append(
                f"the server lacks the tablespaces {', '.join(absent)}: everything was put where each database is"
            )
        remarks += self._roles(text) if self._make_roles else []
        done: list[str] = []
        for name, entries in dumps.items():
            try:
                self._one(name, entries, [] if name in existing else database_statements(text, name), not absent)
            except (Damaged, PostgresFailed) as error:
                left = [each for each in dumps if each not in (*done, name)]
                raise type(error)(
                    f"the database {name}: {error}; restored before it: {', '.join(done) or 'none'}; "
                    f"not restored: {', '.join([name, *left])}"
                ) from None
            done.append(name)
        return remarks

    def _roles(self, text: str) -> list[str]:
        existing = _lines(self._server, self._tools, _ROLES)
        made = [role for role in roles_of(text) if role not in existing]
        if not made:
            return []
        with self._server.session(self._tools) as session:
            session.ask("\n".join(["BEGIN;", *map(executed, role_statements(text, existing)), "COMMIT;"]))
        said = "" if " PASSWORD '" in text else ", without passwords, which are not in the backup"
        return [f"roles were created{said}: {', '.join(made)}"]

    def _one(self, name: str, entries: Sequence[FileEntry], making: list[str], tablespaces: bool) -> None:
        """Restore one database, which the statements in `making` make first; if it fails, it does not exist again."""
        how = DumpRestore(overwrite=self._overwrite and not making, owners=self._owners, tablespaces=tablespaces)
        if not self._owners:
            making = [said for said in making if not _names_roles(said)]
        try:
            if making:
                with self._server.session(self._tools) as session:
                    session.ask("\n".join(map(executed, making if tablespaces else map(without_tablespace, making))))
            restore_dump(self._stored, entries, self._server.of_name(name), self._tools, how)
        except BaseException:
            if making:
                with self._server.session(self._tools) as session:
                    session.ask(f"SELECT format('DROP DATABASE IF EXISTS %I', {_text(name)}) \\gexec")
            raise


def _names_roles(statement: str) -> bool:
    return statement.startswith(("GRANT ", "REVOKE ", "ALTER ROLE ")) or " OWNER TO " in statement
