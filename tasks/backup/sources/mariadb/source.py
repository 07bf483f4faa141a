"""Backs up databases of a MariaDB server by mariadb-dump, as SQL. Restores them by the client, mariadb.

Each database is one object, dumped in a transaction of its own, so that it can be restored alone, and an attempt that
takes a run over keeps those that are complete. With `one_moment` all databases are one object of one transaction.
"""

import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from tasks.access import Access
from tasks.backup.archive import Content, Writer
from tasks.backup.manifest import FileEntry, Manifest
from tasks.backup.objects import NewObjects, StoredObjects
from tasks.backup.sources.mariadb.connection import MARIADB_TOOLS, MariadbConnection
from tasks.backup.sources.mariadb.dumped import ALL, USERS, DumpReader, header, object_name
from tasks.backup.sources.mariadb.grants import lacks, sees_all_routines
from tasks.backup.sources.mariadb.restore import restore_databases
from tasks.backup.sources.mariadb.row_counter import RowCounter
from tasks.backup.sources.mariadb.server import (
    MariadbFailed,
    MariadbServer,
    connected,
    quoted_name,
    quoted_text,
    server_facts,
)
from tasks.backup.sources.mariadb.url import FORM, parse_mariadb
from tasks.backup.sources.program import output_of
from tasks.backup.sources.source import RestoreTarget, SourceNotes, SourceWork
from tasks.needs import Needs
from tasks.reach import Reach

SYSTEMS: Final = frozenset({"information_schema", "mysql", "performance_schema", "sys"})
"""The databases of the server itself."""

_DUMP: Final = (
    "--single-transaction --quick --routines --events --triggers --hex-blob --no-tablespaces --max-allowed-packet=1G"
).split()
_INEXACT: Final = {
    "data_type = 'float' AND numeric_scale IS NULL": "mariadb-dump writes FLOAT with six digits, so further digits are "
    "lost; DOUBLE is exact",
    "data_type = 'double' AND numeric_precision - numeric_scale > 65": "the server reads no number of more than 65 "
    "digits back, so larger values of this DOUBLE(M,D) are cut down; DOUBLE without digits is exact",
    "data_type IN ('enum', 'set') AND column_type LIKE '%?%' AND character_set_name RLIKE '^utf(8mb4|16|32)'": "in "
    "the values of an ENUM or SET MariaDB shows an emoji, or another character beyond U+FFFF, as ?; if these have one, "
    "rows that hold it are restored as empty text",
}
"""Conditions for columns whose values a dump changes, and what happens to them."""

_SHOWN: Final = 20
"""How many names a remark has at most."""


def _users_own(name: str) -> str:
    if name.lower() in SYSTEMS:
        raise ValueError(f"{name} is a database of the server itself, which cannot be restored into another server")
    return name


DatabaseName = Annotated[
    str, StringConstraints(min_length=1, max_length=64, pattern=r"^[^\x00-\x1f]+$"), AfterValidator(_users_own)
]


class MariadbSource(MariadbConnection):
    """Databases of a MariaDB server. Its account needs SELECT, SHOW VIEW, TRIGGER and EVENT on them."""

    type: Literal["mariadb"] = Field(description="The type of the source")
    databases: Literal["all"] | Annotated[tuple[DatabaseName, ...], Field(min_length=1, max_length=1000)] = Field(
        default="all",
        description="The names of the databases; `all`: all that are not the server's own, and the accounts and grants",
        examples=[["shop", "wiki"]],
    )
    one_moment: bool = Field(
        default=False,
        description="true: all databases as they were at one moment, in one object, which is dumped anew if the run is "
        "taken over and is restored as a whole. false: each database as it was at a moment of its own",
    )

    @model_validator(mode="after")
    def _of_a_server(self) -> "MariadbSource":
        if parse_mariadb(self.url).database:
            raise ValueError(f"the URL names the server only: give the database in `databases` ({FORM})")
        return self

    def is_local(self) -> bool:
        """Return False: all members reach the same server."""
        return False

    def reach(self) -> Reach:
        """Return the server's address."""
        return Reach("source", "source", self.url, addresses=self.addresses())

    def needs(self) -> Needs:
        """Return MariaDB's programs, and the URL's file of certificates."""
        return Needs(reaches=self.certificate("source"), tools=(MARIADB_TOOLS,))

    def check_readable(self, access: Access, node: str) -> None:
        """Raise `AccessRefused` if tasks may not reach the server, or read the file of certificates."""
        self.check(access)

    def identity(self, work: SourceWork) -> dict[str, str]:
        """Return the server's identity facts (`tasks.source_identity`). Raises `NoMariadbProgram`, `MariadbFailed`."""
        with self._connected(work) as server:
            return {"type": self.type} | server_facts(server)

    def _connected(self, work: SourceWork) -> AbstractContextManager[MariadbServer]:
        password = None if self.password is None else work.secret(self.password)
        return connected(self.url, password, work.scratch)

    def dump(self, work: SourceWork, out: NewObjects) -> SourceNotes:
        """Write the databases as SQL. Raises `NoMariadbProgram`, `MariadbFailed`."""
        with self._connected(work) as server:
            names = self._names(server)
            remarks = _check_grants(server, names)
            if self.one_moment:
                with out.writing(ALL) as writer:
                    _dump(server, names, writer, work, named=True)
            else:
                remarks += _foreign_keys(server, names)
                for name in names:
                    if object_name(name) in out.kept:
                        out.keep(object_name(name))
                        continue
                    with out.writing(object_name(name), whole=True) as writer:
                        _dump(server, [name], writer, work, named=False)
            if self.databases == "all":
                with out.writing(USERS) as writer:
                    _pass_on(server, ["--system=users", "--insert-ignore"], writer, work)
            [(version,)] = server.ask("SELECT VERSION()")
            return SourceNotes(tools={"mariadb": version}, remarks=tuple(remarks))

    def _names(self, server: MariadbServer) -> list[str]:
        there = [name for (name,) in server.ask("SHOW DATABASES") if name.lower() not in SYSTEMS]
        if self.databases == "all":
            return there
        missing = [name for name in self.databases if name not in there]
        if missing:
            raise MariadbFailed(
                f"{self.url} has no database {', '.join(missing)} that {server.named.user} may see: correct "
                "`databases`, or grant the account SELECT, SHOW VIEW, TRIGGER and EVENT on them"
            )
        return list(dict.fromkeys(self.databases))

    @classmethod
    def restore(cls, stored: StoredObjects, target: RestoreTarget) -> list[str]:
        """Restore databases into a server that runs. Returns remarks."""
        with tempfile.TemporaryDirectory(prefix="rota-restore-") as scratch:
            return restore_databases(stored, target, Path(scratch))

    @classmethod
    def verify(cls, content: Content, entry: FileEntry, manifest: Manifest, scratch: Path) -> list[str]:
        """Read a whole dump to its end line. Raises `Damaged`."""
        for _ in DumpReader(content, entry.name).chunks():
            pass
        return []


def _check_grants(server: MariadbServer, names: Sequence[str]) -> list[str]:
    """Return remarks on what the account may not read. Raises `MariadbFailed` if it may not read all tables."""
    grants = [grant for (grant,) in server.ask("SHOW GRANTS")]
    for name in names:
        if missing := lacks(grants, name):
            raise MariadbFailed(
                f"{server.named.user} may not read all of the database {name}, and mariadb-dump leaves out what it "
                f"cannot see: GRANT {', '.join(missing)} ON {quoted_name(name)}.* to the account"
            )
    if sees_all_routines(grants):
        return []
    return [
        f"procedures and functions that {server.named.user} may not see are not in the backup: GRANT SELECT ON "
        "mysql.proc to the account to have all"
    ]


def _foreign_keys(server: MariadbServer, names: Sequence[str]) -> list[str]:
    """Return a remark if databases refer to each other, since each is dumped as of a moment of its own."""
    rows = server.ask(
        "SELECT DISTINCT constraint_schema, unique_constraint_schema FROM information_schema.referential_constraints "
        f"WHERE constraint_schema <> unique_constraint_schema AND constraint_schema IN ({_listed(names)})"
    )
    return [
        f"foreign keys of {name} refer to {other}, and each was dumped as of a moment of its own: set `one_moment: "
        "true` to have both as of one"
        for name, other in rows[:_SHOWN]
    ]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(quoted_text, names)) or "''"


def _dump(server: MariadbServer, names: Sequence[str], out: Writer, work: SourceWork, *, named: bool) -> None:
    """Dump databases in one transaction. `named`: the dump has their names, so it restores them under these only."""
    _refuse_events(server, names)
    left_out, remarks = _broken_views(server, names)
    history, lost = _history(server, names)
    remarks += lost + _inexact(server, names)
    out.write(header(names))
    if not named:
        [name] = names
        out.write(_defaults(server, name))
    argv = [*_DUMP, *history, *(f"--ignore-table={view}" for view in left_out)]
    counter = RowCounter("" if named else names[0])
    _pass_on(server, [*argv, *(["--databases"] if named else []), "--", *names], out, work, counter)
    out.about(remarks=tuple(remarks), tables=counter.tables)


def _refuse_events(server: MariadbServer, names: Sequence[str]) -> None:
    """Raise `MariadbFailed` for events that mariadb-dump (10.11) cannot dump, since it quotes the name twice."""
    odd = [name for name in names if not {"'", '"', "\\"}.isdisjoint(name)]
    for (name,) in server.ask(
        f"SELECT DISTINCT event_schema FROM information_schema.events WHERE event_schema IN ({_listed(odd)})"
    ):
        raise MariadbFailed(f"mariadb-dump cannot dump events of a database with a quote in its name: {name}")


def _defaults(server: MariadbServer, name: str) -> bytes:
    """Return the statement that gives the database into which a dump is read the defaults of the one dumped."""
    [(charset, collation, comment)] = server.ask(
        "SELECT default_character_set_name, default_collation_name, schema_comment FROM information_schema.schemata "
        f"WHERE schema_name = {quoted_text(name)}"
    )
    text = f"ALTER DATABASE CHARACTER SET {charset} COLLATE {collation} COMMENT {quoted_text(comment)};\n"
    return b"SET NAMES utf8mb4;\n" + text.encode()


def _pass_on(
    server: MariadbServer, argv: list[str], out: Writer, work: SourceWork, counter: RowCounter | None = None
) -> None:
    """Write what mariadb-dump writes. Raises `MariadbFailed` if it fails, or ends without its end line."""
    end = b""
    command = server.argv(server.tools.dump, *argv)
    with server.running(command, stdout=subprocess.PIPE) as process:
        for chunk in output_of(process, work.step):
            out.write(chunk)
            if counter is not None:
                counter.feed(chunk)
            end = (end + chunk)[-200:]
    if not DumpReader.is_end(end):
        raise MariadbFailed(f"mariadb-dump ended without its last line, and wrote: ...{end[-100:]!r}")


def _broken_views(server: MariadbServer, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the views that mariadb-dump cannot dump, as it takes their names, and a remark on each."""
    views = server.ask(
        "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'VIEW' AND table_schema IN "
        f"({_listed(names)})"
    )
    left_out, remarks = [], []
    for schema, view in views:
        name = f"{quoted_name(schema)}.{quoted_name(view)}"
        checked = server.ask(f"CHECK TABLE {name}")
        if all(status == "status" for _, _, status, _ in checked):
            continue
        try:
            server.ask(f"SHOW FIELDS FROM {name}")
        except MariadbFailed:
            [(_, definition, *_)] = server.ask(f"SHOW CREATE VIEW {name}")
            left_out.append(f"{schema}.{view}")
            why = "; ".join(text for _, _, status, text in checked if status == "Error")
            remarks.append(f"the view {schema}.{view} is broken, and is not in the backup ({why}): {definition}")
    return left_out, remarks


def _history(server: MariadbServer, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the options that dump the history of system-versioned tables, and a remark if it cannot be dumped."""
    versioned = server.ask(
        "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'SYSTEM VERSIONED' AND "
        f"table_schema IN ({_listed(names)})"
    )
    by_transaction = server.ask(
        "SELECT table_schema, table_name FROM information_schema.columns WHERE generation_expression = 'ROW START' "
        f"AND data_type = 'bigint' AND table_schema IN ({_listed(names)})"
    )
    if not versioned:
        return [], []
    if not by_transaction:
        return ["--dump-history"], []
    shown = _shown([f"{schema}.{table}" for schema, table in versioned])
    exact = _shown([f"{schema}.{table}" for schema, table in by_transaction])
    return [], [
        f"the history of {shown} is not in the backup, only the present rows: mariadb-dump cannot dump any history if "
        f"a table's history is by transactions ({exact})"
    ]


def _inexact(server: MariadbServer, names: Sequence[str]) -> list[str]:
    """Return remarks on tables outside the transaction, and on columns whose values a dump changes."""
    tables = server.ask(
        "SELECT CONCAT(t.table_schema, '.', t.table_name, ' (', t.engine, ')') FROM information_schema.tables t "
        "JOIN information_schema.engines e ON e.engine = t.engine "
        f"WHERE t.table_schema IN ({_listed(names)}) AND e.transactions <> 'YES'"
    )
    remarks = []
    if tables:
        remarks.append(
            f"{_shown([name for (name,) in tables])}: the engine has no transactions, so each of these tables was read "
            "at a later moment than the others; ALTER TABLE ... ENGINE=InnoDB changes that"
        )
    for condition, what in _INEXACT.items():
        columns = server.ask(
            "SELECT CONCAT(table_schema, '.', table_name, '.', column_name) FROM information_schema.columns "
            f"WHERE table_schema IN ({_listed(names)}) AND {condition}"
        )
        if columns:
            remarks.append(f"{_shown([name for (name,) in columns])}: {what}")
    return remarks


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
