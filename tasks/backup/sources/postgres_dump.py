"""Dumps one PostgreSQL database by pg_dump, in its custom format and through pipes: by one program, or by several.

All of them see one snapshot, under which the tables are counted, too. Several programs write an archive each: of the
definitions, of the rows of some tables each, and of indexes, constraints and triggers. pg_restore restores these
archives in the order of their names.
"""

import json
import select
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Final, Literal, NamedTuple, TypeVar

from tasks.backup.archive import CHUNK_BYTES
from tasks.backup.fingerprint import (
    BEGIN,
    LARGE_OBJECTS,
    LOCK,
    DatabaseContent,
    Fingerprint,
    between,
    database_content,
    sequence_positions,
)
from tasks.backup.manifest import DatabaseFacts
from tasks.backup.objects import NewObjects
from tasks.backup.sources.postgres_database import Database
from tasks.backup.sources.postgres_tools import PostgresFailed, Tools

FILE: Final = "postgres.dump.zst"
"""The object of a backup of one database by one program."""

PRE_DATA, DATA, REST, LARGE, POST_DATA = (
    "postgres-1-pre-data.dump.zst",
    "postgres-2-data-{:02}.dump.zst",
    "postgres-3-data-rest.dump.zst",
    "postgres-4-large-objects.dump.zst",
    "postgres-5-post-data.dump.zst",
)
"""The objects of a backup of one database by several programs. `REST` holds the rows of all tables that no `DATA`
holds, and the positions of sequences."""

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

_QUOTED: Final = """'"' || replace({0}, '"', '""') || '"'"""
_SIZES: Final = f"""SELECT json_build_object('schema_name', n.nspname, 'name', c.relname, 'size_bytes',
pg_table_size(c.oid), 'pattern', encode(convert_to({_QUOTED.format("n.nspname")} || '.' ||
{_QUOTED.format("c.relname")}, getdatabaseencoding()), 'hex'))
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' AND c.relpersistence = 'p'
AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid
AND d.deptype = 'e');"""
"""The tables whose rows may be dumped apart from the others. The pattern is in the encoding of the database, in which
pg_dump reads it, and quoted so that it matches this name only."""

_STEP_S: Final = 0.5

_LOCK_WAIT_S: Final = 10
"""How long pg_dump waits for the lock of a table that this package's session has locked before: it has to wait if yet
another session waits to lock the table exclusively, and would wait for ever."""

_SMALL: Final = 100
"""A table that has less than one in this many of the rows of one program is not dumped apart."""

T = TypeVar("T")
Section = Literal["pre-data", "data", "post-data"]
TableName = tuple[str, str]


class SizedTable(NamedTuple):
    """A table of a database: its schema and name, its size on the server's disk, and the pattern that matches it."""

    schema_name: str
    name: str
    size_bytes: int
    pattern: str

    @property
    def key(self) -> TableName:
        """The schema and the name."""
        return self.schema_name, self.name


@dataclass(frozen=True, kw_only=True)
class DatabaseDump:
    """How a database is dumped."""

    #: What is recorded of its content.
    fingerprint: Fingerprint
    #: The number of programs that dump rows at once.
    pipes: int = 1
    #: The name of the object, if one program dumps it.
    file_name: str = FILE
    #: Whether another attempt at the run may use the object.
    whole: bool = False


@dataclass(frozen=True, kw_only=True)
class DumpPart:
    """What one program dumps."""

    #: The name of the object.
    file_name: str
    #: The part of the database; None: all of it.
    section: Section | None = None
    #: The tables whose rows it dumps; None: all others.
    only: frozenset[TableName] | None = None
    #: The tables whose rows other programs dump.
    elsewhere: frozenset[TableName] = frozenset()
    #: Options of pg_dump.
    options: tuple[str, ...] = ()

    def content(self, found: DatabaseContent) -> DatabaseContent:
        """Return what the part holds of the content of the database."""
        if self.section is None or found.tables is None:
            return found
        return DatabaseContent(
            tuple(each for each in found.tables if self._holds((each.schema_name, each.name))),
            found.sequences if self.has_sequences else None,
            found.catalog if self.section == "pre-data" else None,
        )

    @property
    def has_sequences(self) -> bool:
        """Whether the part holds the positions of the sequences."""
        return self.only is None

    def _holds(self, table: TableName) -> bool:
        return table not in self.elsewhere if self.only is None else table in self.only


def grouped(tables: Sequence[SizedTable], groups: int) -> list[list[SizedTable]]:
    """Put tables into `groups` of about the same size. Small ones are all in the first group, and need no listing.

    >>> a, b, c, d = (SizedTable("s", name, size, "") for name, size in (("a", 50), ("b", 40), ("c", 9), ("d", 0)))
    >>> [[each.name for each in group] for group in grouped([a, b, c, d], 2)]
    [['d', 'a'], ['b', 'c']]
    """
    least = max(1, sum(each.size_bytes for each in tables) / groups / _SMALL)
    found: list[list[SizedTable]] = [[each for each in tables if each.size_bytes < least]]
    found += [[] for _ in range(groups - 1)]
    sizes = [sum(each.size_bytes for each in group) for group in found]
    for table in sorted(tables, key=lambda each: (-each.size_bytes, each.key)):
        if table.size_bytes >= least:
            to = sizes.index(min(sizes))
            found[to].append(table)
            sizes[to] += table.size_bytes
    return found


def dump_parts(tables: Sequence[SizedTable], pipes: int) -> list[DumpPart]:
    """Return the parts of a database whose rows `pipes` programs dump: each table's rows are in exactly one part."""
    _, *groups = (group for group in grouped(tables, pipes))
    apart = [group for group in groups if group]
    none: frozenset[TableName] = frozenset()
    parts = [DumpPart(file_name=PRE_DATA, section="pre-data", only=none, options=("--section=pre-data",))]
    for number, group in enumerate(apart, 1):
        parts.append(
            DumpPart(
                file_name=DATA.format(number),
                section="data",
                only=frozenset(each.key for each in group),
                options=("--section=data", *(f"--table={each.pattern}" for each in group)),
            )
        )
    others = [each for group in apart for each in group]
    # Last of the data: a program that dumps a table dumps the position of its sequence, too, as of another moment.
    parts.append(
        DumpPart(
            file_name=REST,
            section="data",
            elsewhere=frozenset({*(each.key for each in others), LARGE_OBJECTS}),
            options=("--section=data", "-B", *(f"--exclude-table-data={each.pattern}" for each in others)),
        )
    )
    # Apart from tables, since a restore writes them in another way. The schema holds nothing that is dumped.
    large = ("--section=data", "-b", "--schema=pg_toast")
    parts.append(DumpPart(file_name=LARGE, section="data", only=frozenset({LARGE_OBJECTS}), options=large))
    parts.append(DumpPart(file_name=POST_DATA, section="post-data", only=none, options=("--section=post-data",)))
    return parts


def dump_database(
    database: Database,
    tools: Tools,
    out: NewObjects,
    how: DatabaseDump,
    step: Callable[[], None],
    now: Callable[[], datetime],
) -> None:
    """Write a database as one archive in pg_dump's custom format, or as several, with facts about it in their entries.

    `step` is called regularly; it raises if the work must stop. Raises `PostgresFailed`.
    """
    # The session is closed before the thread is waited for, so that a dump that fails does not wait for the thread.
    with ThreadPoolExecutor(1) as reading, database.session(tools) as session:
        session.ask(_NO_LIMITS)
        snapshot = session.ask(_SNAPSHOT)
        facts = DatabaseFacts(dumped=now(), **json.loads(session.ask(_FACTS)))
        result_of(reading.submit(session.ask, LOCK), step)
        before = result_of(reading.submit(sequence_positions, session.ask), step)
        parts = [DumpPart(file_name=how.file_name)]
        if how.pipes > 1:
            parts = dump_parts([_sized(line) for line in session.ask(_SIZES).splitlines()], how.pipes)
        counting = reading.submit(database_content, session.ask, how.fingerprint)

        def dump_part(part: DumpPart, step: Callable[[], None]) -> None:
            # Let pg_dump not compress, since zstd compresses its output.
            argv = [tools.program("pg_dump"), "--format=custom", "--compress=0", "--no-password", *part.options]
            argv += [f"--snapshot={snapshot}", f"--lock-wait-timeout={_LOCK_WAIT_S * 1000}", f"--dbname={database.url}"]
            with out.writing(part.file_name, whole=how.whole) as writer:
                writer.about(database=facts, section=part.section)
                with _wait_named(), database.running(argv, subprocess.DEVNULL, subprocess.PIPE) as process:
                    for chunk in chunks_of(process, step):
                        writer.write(chunk)
                        if counting.done():
                            counting.result()
                content = part.content(result_of(counting, step))
                if content.sequences is not None:
                    after = result_of(reading.submit(sequence_positions, session.ask), step)
                    content = replace(content, sequences=between(before, after))
                writer.about(**content.fields())

        dump_together([partial(dump_part, part) for part in parts], len(parts), step)


@contextmanager
def _wait_named() -> Iterator[None]:
    """Say what it means if pg_dump gives up waiting for a lock."""
    try:
        yield
    except PostgresFailed as error:
        if "LOCK TABLE" not in str(error) or "timeout" not in str(error):
            raise
        raise PostgresFailed(
            "another session waits for an exclusive lock on a table that this dump has locked already, so that pg_dump "
            f"would wait for ever: let that session end first (ALTER TABLE, VACUUM FULL), or retry: {error}"
        ) from None


def _sized(line: str) -> SizedTable:
    fields = json.loads(line)
    pattern = bytes.fromhex(fields.pop("pattern")).decode(errors="surrogateescape")
    return SizedTable(**fields, pattern=pattern)


def chunks_of(process: "subprocess.Popen[bytes]", step: Callable[[], None]) -> Iterator[bytes]:
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


def result_of(future: "Future[T]", step: Callable[[], None]) -> T:
    """Return the result of work in another thread. `step` is called regularly meanwhile."""
    while not wait([future], _STEP_S).done:
        step()
    return future.result()


def dump_together(jobs: Sequence[Callable[[Callable[[], None]], None]], at_once: int, step: Callable[[], None]) -> None:
    """Run dumps, several at once, each with a `step` of its own. If one fails, stop the others, and raise its error."""
    stop = threading.Event()

    def step_unless_stopped() -> None:
        if stop.is_set():
            raise PostgresFailed("another dump of this attempt failed")
        step()

    with ThreadPoolExecutor(at_once) as threads:
        dumps = [threads.submit(job, step_unless_stopped) for job in jobs]
        done, pending = wait(dumps, return_when=FIRST_EXCEPTION)
        failed = [error for each in done if (error := each.exception()) is not None]
        stop.set()
        for each in pending:
            each.cancel()
    if failed:
        raise failed[0]
