"""Restores PostgreSQL dumps by pg_restore: one database, one table, or the databases and roles of a whole server."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import IO, Final

from tasks.backup.archive import CHUNK_BYTES, Content, Damaged, TargetExists
from tasks.backup.manifest import FileEntry, Manifest
from tasks.backup.objects import StoredObjects
from tasks.backup.sources.postgres_database import Database
from tasks.backup.sources.postgres_sql import (
    database_statements,
    role_statements,
    roles_of,
    tablespaces_of,
    without_tablespace,
)
from tasks.backup.sources.postgres_tools import PostgresFailed, Tools
from tasks.backup.sources.source import OVER_SOURCE, NoSuchPart, RestoreTarget
from tasks.kind import Unretryable

IDENTITY: Final = (
    "SELECT datname || ' (oid ' || oid || ')' FROM pg_catalog.pg_database WHERE datname = current_database()"
)
"""The name and the oid of a database, as they are in the identity of a backup of it."""

_OID: Final = re.compile(r"\(oid (\d+)\)")

SYSTEM: Final = "SELECT system_identifier FROM pg_catalog.pg_control_system()"

_USER_RELATIONS = """SELECT count(*) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_(toast|temp)'"""

_OTHER: Final = "name another database"

_DATABASES: Final = "SELECT datname FROM pg_catalog.pg_database"
_ROLES: Final = "SELECT rolname FROM pg_catalog.pg_roles"
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
    #: The only table to restore, as `schema.name`; None: all.
    table: str | None = None


def restore_dumps(stored: StoredObjects, target: RestoreTarget, scratch: Path) -> list[str]:
    """Restore a backup into the database that a URL names; one of a server, into the server. Returns remarks.

    Raises `NoTool`, `PostgresFailed`, `Damaged`, `TargetExists`, `NoSuchPart`, `MissingRoles`.
    """
    database = Database(target.name, scratch, target.password, target.postgres_bin)
    manifest, parts = stored.manifest, target.parts
    tools = database.tools(at_least=int(manifest.tools["pg_dump"].partition(".")[0]))
    dumps = {file.database.name: file for file in manifest.files if file.database is not None}
    of_server = [file for file in manifest.files if file.database is None and len(manifest.files) > 1]
    if parts.database is None and of_server:
        if parts.table is not None:
            raise NoSuchPart(f"name the database of the table {parts.table}: the backup has {', '.join(dumps)}")
        text = stored.content(of_server[0]).readall().decode(errors="surrogateescape")
        return _ServerRestore(database, tools, stored, target).restore(text, dumps)
    entry = manifest.files[0]
    if parts.database is not None:
        if parts.database not in dumps:
            there = ", ".join(dumps) or "one database whose name was not recorded: leave the name out"
            raise NoSuchPart(f"the backup has no database {parts.database}; it has {there}")
        entry = dumps[parts.database]
    how = DumpRestore(
        overwrite=target.overwrite, over_source=target.over_source, owners=bool(parts.owners), table=parts.table
    )
    if how.owners:
        check_roles(database, tools, entry)
    remarks = check_target_database(database, tools, manifest, entry, how)
    stored.expect([entry])
    restore_dump(stored, database, tools, entry, how)
    return remarks


def check_target_database(
    database: Database, tools: Tools, manifest: Manifest, entry: FileEntry, how: DumpRestore
) -> list[str]:
    """Check that a dump may be restored into a database. Returns remarks. Raises `TargetExists`, `NoSuchPart`."""
    if how.table is None:
        found = "is not empty" if int(database.ask(tools, _USER_RELATIONS)) > 0 else None
    else:
        schema, name = _split(entry, how.table)
        found = f"has a table {how.table}" if _has_table(database, tools, schema, name) else None
    if found is None:
        return []
    is_source = _is_source(database, tools, manifest, entry)
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


def restore_dump(stored: StoredObjects, database: Database, tools: Tools, entry: FileEntry, how: DumpRestore) -> None:
    """Restore one archive in one transaction. Raises `PostgresFailed`, `Damaged`, `NoSuchPart`."""
    argv = [tools.program("pg_restore"), "--single-transaction", "--no-password", f"--dbname={database.url}"]
    argv += [] if how.owners else ["--no-owner", "--no-privileges"]
    argv += ["--clean", "--if-exists"] if how.overwrite else []
    argv += [] if how.tablespaces else ["--no-tablespaces"]
    if how.table is not None:
        schema, name = _split(entry, how.table)
        if not int(
            database.ask(tools, f"SELECT count(*) FROM pg_catalog.pg_namespace WHERE nspname = {_text(schema)}")
        ):
            raise NoSuchPart(f"{database.url} has no schema {schema}: create it, and restore the table again")
        argv += [f"--schema={schema}", f"--table={name}"]
    with database.running(argv, PIPE, DEVNULL) as process:
        feed(stored.content(entry), process.stdin)
        stored.doing("pg_restore makes indexes and constraints")
    if how.table is not None and not _has_table(database, tools, schema, name):
        raise NoSuchPart(f"the dump has no table {how.table}: write it as SCHEMA.NAME, without quotes")


def _has_table(database: Database, tools: Tools, schema: str, name: str) -> bool:
    return bool(database.ask(tools, f"SELECT to_regclass(format('%I.%I', {_text(schema)}, {_text(name)}))"))


def feed(content: Content, pipe: IO[bytes] | None) -> None:
    """Write all of the content to a program's standard input. Raises `BrokenPipeError` if the program ends before."""
    assert pipe is not None
    while chunk := content.read(CHUNK_BYTES):
        pipe.write(chunk)


def _split(entry: FileEntry, table: str) -> tuple[str, str]:
    """Return the schema and the name of a table. Raises `NoSuchPart` if its rows are not in the dump."""
    schema, _, name = table.partition(".")
    if entry.tables is None:
        return schema, name
    for each in entry.tables:
        if f"{each.schema_name}.{each.name}" == table:
            return each.schema_name, each.name
    there = [f"{each.schema_name}.{each.name}" for each in entry.tables]
    more = f" and {len(there) - 20} more" if len(there) > 20 else ""
    raise NoSuchPart(
        f"the dump has no table {table} with rows of its own; it has {', '.join(there[:20])}{more}. Of a partitioned "
        "table, restore the partitions, one after another"
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

    def restore(self, text: str, dumps: Mapping[str, FileEntry]) -> list[str]:
        """Restore all databases. `text` is the SQL of the backup's roles, tablespaces and databases."""
        existing = _lines(self._server, self._tools, _DATABASES) & dumps.keys()
        how = DumpRestore(overwrite=self._overwrite, over_source=self._over_source, owners=self._owners)
        remarks = []
        for name, entry in dumps.items():
            if self._owners and not self._make_roles:
                check_roles(self._server, self._tools, entry)
            if name in existing:
                remarks += check_target_database(
                    self._server.of_name(name), self._tools, self._stored.manifest, entry, how
                )
        absent = sorted(set(tablespaces_of(text)) - _lines(self._server, self._tools, _TABLESPACES))
        if absent:
            remarks.append(
                f"the server lacks the tablespaces {', '.join(absent)}: everything was put where each database is"
            )
        remarks += self._roles(text) if self._make_roles else []
        done: list[str] = []
        for name, entry in dumps.items():
            try:
                self._one(name, entry, [] if name in existing else database_statements(text, name), not absent)
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

    def _one(self, name: str, entry: FileEntry, making: list[str], tablespaces: bool) -> None:
        """Restore one database, which the statements in `making` make first; if it fails, it does not exist again."""
        how = DumpRestore(overwrite=self._overwrite and not making, owners=self._owners, tablespaces=tablespaces)
        if not self._owners:
            making = [said for said in making if not _names_roles(said)]
        try:
            if making:
                with self._server.session(self._tools) as session:
                    session.ask("\n".join(map(executed, making if tablespaces else map(without_tablespace, making))))
            restore_dump(self._stored, self._server.of_name(name), self._tools, entry, how)
        except BaseException:
            if making:
                with self._server.session(self._tools) as session:
                    session.ask(f"SELECT format('DROP DATABASE IF EXISTS %I', {_text(name)}) \\gexec")
            raise


def _names_roles(statement: str) -> bool:
    return statement.startswith(("GRANT ", "REVOKE ", "ALTER ROLE ")) or " OWNER TO " in statement
