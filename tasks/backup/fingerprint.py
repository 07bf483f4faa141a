"""Tells what a PostgreSQL database holds: the rows of each table, positions of sequences, definitions, and grants.

A dump stores these facts, as its own snapshot sees them, in the manifest. Whoever restores the dump computes them again
and compares. If asked, there is a hash of each table's content, too. A hash does not depend on the order of the rows,
on the order of the columns or on a session's settings. It does depend on the database's encoding, because values are
hashed as text.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from tasks.backup.catalog import CATALOG, GRANTS, VERSION_MIN
from tasks.backup.manifest import CatalogFacts, FileEntry, SequenceFacts, TableFacts

Fingerprint = Literal["rows", "content", "none"]
"""What is recorded of each table: its number of rows, a hash of its content too, or nothing of the whole database."""

BEGIN: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY;"
"""Begins the transaction that facts are read in, so that they are of one snapshot."""

LARGE_OBJECTS: Final = ("pg_catalog", "pg_largeobject_metadata")
"""The schema and name under which the facts of a database's large objects stand, counted as rows."""

_SETTINGS: Final = """SET search_path = pg_catalog; SET row_security = off; SET timezone = 'UTC';
SET datestyle = 'ISO, MDY'; SET intervalstyle = 'postgres'; SET extra_float_digits = 3; SET bytea_output = 'hex';
SET lc_monetary = 'C'; SET xmlbinary = 'base64'; SET jit = off; SET max_parallel_workers_per_gather = 0;
"""
"""Settings that change how values look as text, and those by which counting would take more than one processor."""

_SCHEME: Final = "2:"
"""Before a hash of content: how it was computed. Hashes of another scheme are not compared."""

_CONTENT: Final = f"""coalesce((WITH columns AS (
SELECT format('t.%I', a.attname) AS named, a.attlen, a.atttypid, a.atttypmod, p.typstorage, row_number()
OVER (ORDER BY a.attname COLLATE "C") AS number FROM pg_attribute a JOIN pg_type p ON p.oid = a.atttypid
WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped), hashed AS (SELECT named, number, format(CASE
WHEN number > 100 OR atttypid >= 16384 THEN NULL
WHEN atttypid = 'bpchar'::regtype THEN CASE WHEN atttypmod > 0 THEN 'hashbpcharextended(%1$s COLLATE "C", %2$s)' END
WHEN attlen = -1 AND typstorage = 'x' THEN 'hashtextextended(%1$s::text COLLATE "C", %2$s)'
WHEN atttypid = 'int2'::regtype THEN 'hashint2extended(%1$s, %2$s)'
WHEN atttypid = 'int4'::regtype THEN 'hashint4extended(%1$s, %2$s)'
WHEN atttypid = 'int8'::regtype THEN 'hashint8extended(%1$s, %2$s)'
WHEN atttypid = 'bool'::regtype THEN 'hashint4extended(%1$s::int4, %2$s)'
WHEN atttypid = 'uuid'::regtype THEN 'uuid_hash_extended(%1$s, %2$s)'
WHEN atttypid = 'timestamp'::regtype THEN 'timestamp_hash_extended(%1$s, %2$s)'
WHEN atttypid = 'timestamptz'::regtype THEN 'timestamp_hash_extended(%1$s AT TIME ZONE ''UTC'', %2$s)'
END, named, number) AS own FROM columns)
SELECT '''{_SCHEME}'' || sum(hashint8extended(' || string_agg(part, ' # ') || ', 0))' FROM (
SELECT format('coalesce(%s, %s)', own, number) FROM hashed WHERE own IS NOT NULL
UNION ALL SELECT format('hashtextextended(ROW(%s)::text COLLATE "C", 0)', string_agg(named, ', ' ORDER BY number))
FROM hashed WHERE own IS NULL HAVING count(*) > 0) AS parts (part)), 'NULL')"""
"""SQL that hashes a row of a table: each value by a hash of its own, with the number of its column, or as text. Hashes
of PostgreSQL's own types are the same in all versions, since partitions by hash depend on them. Some are not exact, and
such types are hashed as text: floats (0 is -0), numeric and jsonb (1.0 is 1)."""

_DUMPED: Final = """FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_sequence s ON s.seqrelid = c.oid
WHERE c.relkind = '{relkind}' AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
AND (c.relpersistence = 'p' OR c.relpersistence = 'u' AND NOT pg_is_in_recovery())
AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid
AND d.deptype = 'e')"""
"""The tables (`r`) whose rows pg_dump dumps, or the sequences (`S`): partitions, but nothing that an extension makes,
and on a standby no unlogged ones. Rows of materialized views are left out: a restore fills them anew, and they may have
been out of date. Their definition tells whether they were filled."""

_IN_ORDER: Final = 'ORDER BY n.nspname COLLATE "C", c.relname COLLATE "C"'

LOCK: Final = f"""SELECT 'LOCK TABLE ' || string_agg(format('ONLY %I.%I', n.nspname, c.relname), ', ')
|| ' IN ACCESS SHARE MODE' {_DUMPED.format(relkind="r")} \\gexec
"""
"""Locks the tables as pg_dump does, so that none is dropped, emptied or altered until the transaction ends."""

_TABLES: Final = """SAVEPOINT counting;
SELECT format('SELECT json_build_object(''schema_name'', %L, ''name'', %L, ''rows'', count(*),
''content'', %s) FROM ONLY %I.%I t', n.nspname, c.relname, {content}, n.nspname, c.relname),
'ROLLBACK TO SAVEPOINT counting' {dumped} {order} \\gexec
"""
"""Returns a row of JSON for each table. The locks of its indexes are given back: a server has a limited number."""

_SEQUENCES: Final = f"""SELECT format('SELECT json_build_object(''schema_name'', %L, ''name'', %L, ''next'',
last_value::numeric + CASE WHEN is_called THEN %s ELSE 0 END) FROM %I.%I', n.nspname, c.relname, s.seqincrement,
n.nspname, c.relname) {_DUMPED.format(relkind="S")}
{_IN_ORDER} \\gexec
"""

_LARGE_OBJECTS_ROWS: Final = "SELECT count(*), NULL AS content FROM pg_largeobject_metadata"
_LARGE_OBJECTS_CONTENT: Final = """WITH RECURSIVE piece (loid, at, size, hash) AS (
SELECT m.oid, 0::bigint, length(got), md5(got) FROM pg_largeobject_metadata m, LATERAL lo_get(m.oid, 0, 1048576) got
UNION ALL SELECT p.loid, p.at + 1048576, length(got), md5(got)
FROM piece p, LATERAL lo_get(p.loid, p.at + 1048576, 1048576) got WHERE p.size = 1048576)
SELECT count(*) FILTER (WHERE at = 0), sum(hashtextextended(concat_ws(' ', loid, at, hash) COLLATE "C", 0))::text
AS content FROM piece"""


@dataclass(frozen=True)
class DatabaseContent:
    """What is known of the content of a database; None: not recorded."""

    tables: tuple[TableFacts, ...] | None = None
    sequences: tuple[SequenceFacts, ...] | None = None
    catalog: tuple[CatalogFacts, ...] | None = None

    @classmethod
    def of(cls, entries: Iterable[FileEntry]) -> "DatabaseContent":
        """Return what the entries of one database say, in one or several objects."""
        given = list(entries)
        told = [entry.tables for entry in given if entry.tables is not None]
        return cls(
            tuple(table for tables in told for table in tables) if told and len(told) == len(given) else None,
            next((entry.sequences for entry in given if entry.sequences is not None), None),
            next((entry.catalog for entry in given if entry.catalog is not None), None),
        )

    def fields(self) -> dict[str, Any]:
        """Return the fields of `FileEntry`."""
        return {"tables": self.tables, "sequences": self.sequences, "catalog": self.catalog}


def database_content(ask: Callable[[str], str], fingerprint: Fingerprint) -> DatabaseContent:
    """Return the facts of one database: its tables, in the order of their names, its sequences and its catalog.

    `ask` runs a script in one session of psql and returns its output (`sources.postgres_database.PsqlSession.ask`).
    The session is in a transaction, which `BEGIN` began. Raises what `ask` raises.
    """
    if fingerprint == "none":
        return DatabaseContent()
    ask(_SETTINGS)
    known = int(ask("SHOW server_version_num;")) >= VERSION_MIN
    catalog = tuple(CatalogFacts(**json.loads(line)) for line in ask(CATALOG).splitlines()) if known else None
    return DatabaseContent(_tables(ask, fingerprint), sequence_positions(ask), catalog)


def _tables(ask: Callable[[str], str], fingerprint: Fingerprint) -> tuple[TableFacts, ...]:
    content, large_objects = "'NULL'", _LARGE_OBJECTS_ROWS
    if fingerprint == "content":
        content, large_objects = _CONTENT, _LARGE_OBJECTS_CONTENT
    tables = _TABLES.format(content=content, dumped=_DUMPED.format(relkind="r"), order=_IN_ORDER)
    schema, name = LARGE_OBJECTS
    counted = (
        f"SELECT json_build_object('schema_name', '{schema}', 'name', '{name}', 'rows', count, 'content', content) "
        f"FROM ({large_objects}) AS of_all WHERE count > 0;\n"
    )
    return tuple(TableFacts(**json.loads(line)) for line in ask(f"{tables}{counted}").splitlines())


def sequence_positions(ask: Callable[[str], str]) -> tuple[SequenceFacts, ...]:
    """Return where each sequence of a database continues now: no snapshot holds a sequence back."""
    found = (json.loads(line) for line in ask(_SEQUENCES).splitlines())
    return tuple(
        SequenceFacts(schema_name=each["schema_name"], name=each["name"], low=each["next"], high=each["next"])
        for each in found
    )


def between(before: Iterable[SequenceFacts], after: Iterable[SequenceFacts]) -> tuple[SequenceFacts, ...]:
    """Return the range in which each sequence was, from its positions before and after a dump.

    >>> was = SequenceFacts(schema_name="public", name="ids", low=7, high=7)
    >>> between([was], [was.model_copy(update={"low": 4, "high": 4})])[0].low
    4
    """
    now = {(each.schema_name, each.name): each for each in after}
    return tuple(
        each.model_copy(update={"low": min(each.low, last.low), "high": max(each.high, last.high)})
        for each in before
        if (last := now.get((each.schema_name, each.name))) is not None
    )


def differences(dumped: DatabaseContent, restored: DatabaseContent) -> list[str]:
    """Return a sentence for each table, sequence and object that differs, by its name. What one lacks is not compared.

    Contents of tables are compared if both sides have a hash.
    """
    return [
        *differing_tables(dumped.tables or (), restored.tables or ()),
        *_differing_sequences(dumped.sequences or (), restored.sequences or ()),
        *(_differing_catalogs(dumped.catalog, restored.catalog or ()) if dumped.catalog is not None else ()),
    ]


def differing_tables(dumped: Iterable[TableFacts], restored: Iterable[TableFacts]) -> list[str]:
    """Return a sentence for each table that differs; contents are compared if both sides have a hash.

    >>> was = TableFacts(schema_name="public", name="line", rows=2)
    >>> differing_tables([was], [was.model_copy(update={"rows": 1})])
    ['public.line has 1 rows; the dump had 2']
    >>> differing_tables([was], [])
    ['public.line is missing; the dump had 2 rows']
    """
    now = {(table.schema_name, table.name): table for table in restored}
    said = []
    for was in dumped:
        is_now = now.pop((was.schema_name, was.name), None)
        name = f"{was.schema_name}.{was.name}"
        if is_now is None:
            said.append(f"{name} is missing; the dump had {was.rows} rows")
        elif is_now.rows != was.rows:
            said.append(f"{name} has {is_now.rows} rows; the dump had {was.rows}")
        elif _by_one_scheme(was.content, is_now.content) and was.content != is_now.content:
            said.append(f"{name} has the {was.rows} rows of the dump, but their content differs")
    return said + [f"{schema}.{name} was not in the dump" for schema, name in now]


def _by_one_scheme(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and one.rpartition(":")[0] == other.rpartition(":")[0]


def _differing_sequences(dumped: Iterable[SequenceFacts], restored: Iterable[SequenceFacts]) -> Iterator[str]:
    now = {(each.schema_name, each.name): each for each in restored}
    for was in dumped:
        name = f"the sequence {was.schema_name}.{was.name}"
        is_now = now.get((was.schema_name, was.name))
        if is_now is None:
            yield f"{name} is missing"
        elif not was.low <= is_now.low <= was.high:
            at = str(was.low) if was.low == was.high else f"between {was.low} and {was.high}"
            yield f"{name} continues with {is_now.low}; in the dump {at}"


def _differing_catalogs(dumped: Iterable[CatalogFacts], restored: Iterable[CatalogFacts]) -> list[str]:
    was = {(each.kind, each.schema_name): each for each in dumped}
    now = {(each.kind, each.schema_name): each for each in restored}
    nothing = CatalogFacts(kind="", schema_name="", count=0, hash="0", names={})
    said: list[str] = []
    absent: set[str] = set()
    for kind, schema in sorted(was | now, key=lambda each: (each[0] == GRANTS, each)):
        before, after = was.get((kind, schema), nothing), now.get((kind, schema), nothing)
        if before.names is not None and after.names is not None:
            said += _differing_objects(kind, before.names, after.names, absent)
        elif before.count != after.count:
            said.append(f"{after.count} times {kind} in the schema {schema}; the dump had {before.count}")
        elif before.hash != after.hash:
            said.append(f"{after.count} times {kind} in the schema {schema} as in the dump, but not all are the same")
    return said


def _differing_objects(kind: str, was: Mapping[str, str], now: Mapping[str, str], absent: set[str]) -> Iterator[str]:
    """Yield a sentence for each object of one kind that differs. `absent`: what is on one side only is added to it."""
    for name in sorted(was.keys() | now.keys()):
        if was.get(name) == now.get(name) or name in absent:
            continue  # the grants of what is absent are absent, too
        told = f"the {kind} of the {name}" if kind == GRANTS else f"the {kind} {name}"
        if name in was and name in now:
            yield f"{told}: not as in the dump"
            continue
        absent.add(f"{kind} {name}")
        if kind == "table" or (name in now and (kind, name) == ("schema", "public")):
            continue  # told by its rows; made by the server in each new database
        yield f"{told}: missing" if name in was else f"{told}: not in the dump"
