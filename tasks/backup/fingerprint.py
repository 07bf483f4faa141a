"""Tells what a PostgreSQL database's tables hold: their rows and, if asked, a hash of each table's content.

A dump stores these facts, as its own snapshot sees them, in the manifest. Whoever restores the dump computes them again
and compares. A hash does not depend on the order of the rows, on the order of the columns or on a session's settings.
It does depend on the database's encoding, because values are hashed as text.
"""

import json
from collections.abc import Callable, Iterable
from typing import Final, Literal

from tasks.backup.manifest import TableFacts

Fingerprint = Literal["rows", "content", "none"]
"""What is recorded of each table: its number of rows, a hash of its content too, or nothing."""

LARGE_OBJECTS: Final = ("pg_catalog", "pg_largeobject_metadata")
"""The schema and name under which the facts of a database's large objects stand, counted as rows."""

_SETTINGS: Final = """SET search_path = pg_catalog; SET row_security = off; SET timezone = 'UTC';
SET datestyle = 'ISO, MDY'; SET intervalstyle = 'postgres'; SET extra_float_digits = 3; SET bytea_output = 'hex';
SET lc_monetary = 'C'; SET xmlbinary = 'base64'; SET jit = off; SET max_parallel_workers_per_gather = 0;
"""
"""Settings that change how values look as text, and those by which counting would take more than one processor."""

_COLUMNS: Final = """coalesce((SELECT string_agg(format('t.%I', a.attname), ', ' ORDER BY a.attname COLLATE "C")
FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped), '')"""

_CONTENT: Final = 'sum(hashtextextended(ROW(%s)::text COLLATE "C", 0))::text'

_TABLES: Final = """SELECT format('SELECT json_build_object(''schema_name'', %L, ''name'', %L, ''rows'', count(*),
''content'', {content}) FROM ONLY %I.%I t', n.nspname, c.relname, {columns}n.nspname, c.relname)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
AND (c.relpersistence = 'p' OR NOT pg_is_in_recovery())
AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
ORDER BY n.nspname COLLATE "C", c.relname COLLATE "C"
\\gexec
"""
"""The tables whose rows pg_dump dumps: partitions, but no table that an extension makes, and on a standby no unlogged
one. Materialized views are left out: a restore fills them anew, and they may have been out of date."""

_LARGE_OBJECTS_ROWS: Final = "SELECT count(*), NULL AS content FROM pg_largeobject_metadata"
_LARGE_OBJECTS_CONTENT: Final = """WITH RECURSIVE piece (loid, at, size, hash) AS (
SELECT m.oid, 0::bigint, length(got), md5(got) FROM pg_largeobject_metadata m, LATERAL lo_get(m.oid, 0, 1048576) got
UNION ALL SELECT p.loid, p.at + 1048576, length(got), md5(got)
FROM piece p, LATERAL lo_get(p.loid, p.at + 1048576, 1048576) got WHERE p.size = 1048576)
SELECT count(*) FILTER (WHERE at = 0), sum(hashtextextended(concat_ws(' ', loid, at, hash) COLLATE "C", 0))::text
AS content FROM piece"""


def table_facts(ask: Callable[[str], str], fingerprint: Fingerprint) -> tuple[TableFacts, ...]:
    """Return the facts of the tables of one database, in the order of their names, and those of its large objects.

    `ask` runs a script in one session of psql and returns its output (`sources.postgres_database.PsqlSession.ask`).
    The session sees one snapshot if its transaction is `REPEATABLE READ`. Raises what `ask` raises.
    """
    if fingerprint == "none":
        return ()
    if fingerprint == "content":
        tables = _TABLES.format(content=_CONTENT, columns=f"{_COLUMNS}, ")
        large_objects = _LARGE_OBJECTS_CONTENT
    else:
        tables = _TABLES.format(content="NULL", columns="")
        large_objects = _LARGE_OBJECTS_ROWS
    schema, name = LARGE_OBJECTS
    counted = (
        f"SELECT json_build_object('schema_name', '{schema}', 'name', '{name}', 'rows', count, 'content', content) "
        f"FROM ({large_objects}) AS of_all WHERE count > 0;\n"
    )
    return tuple(TableFacts(**json.loads(line)) for line in ask(f"{_SETTINGS}{tables}{counted}").splitlines())


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
        elif None not in (was.content, is_now.content) and was.content != is_now.content:
            said.append(f"{name} has the {was.rows} rows of the dump, but their content differs")
    return said + [f"{schema}.{name} was not in the dump" for schema, name in now]
