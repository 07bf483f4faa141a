"""Checks, before anything is written, that a role can read all of a PostgreSQL database."""

import json
from typing import Final

from tasks.backup.sources.postgres_database import Database
from tasks.backup.sources.postgres_tools import Tools
from tasks.kind import Unretryable

_SHOWN_MAX: Final = 20

_RELATIONS: Final = """SELECT format('%I.%I', n.nspname, c.relname) FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' AND c.relkind IN ({kinds}) AND {which}
AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d
WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.objid = c.oid AND d.deptype = 'e') ORDER BY 1"""

_NOT_GRANTED: Final = _RELATIONS.format(
    kinds="'r', 'p', 'S'",
    which="NOT (pg_catalog.has_schema_privilege(n.oid, 'USAGE') AND CASE c.relkind WHEN 'S' THEN "
    "pg_catalog.has_sequence_privilege(c.oid, 'SELECT') ELSE pg_catalog.has_table_privilege(c.oid, 'SELECT') END)",
)
_HIDDEN_ROWS: Final = _RELATIONS.format(kinds="'r', 'p'", which="pg_catalog.row_security_active(c.oid)")
_LARGE_OBJECTS: Final = """SELECT m.oid::text FROM pg_catalog.pg_largeobject_metadata m
WHERE NOT pg_catalog.current_setting('is_superuser')::boolean
AND NOT pg_catalog.current_setting('lo_compat_privileges')::boolean AND NOT pg_catalog.pg_has_role(m.lomowner, 'USAGE')
AND NOT EXISTS (SELECT FROM pg_catalog.aclexplode(m.lomacl) a WHERE a.privilege_type = 'SELECT'
AND (a.grantee = 0 OR pg_catalog.pg_has_role(a.grantee, 'USAGE'))) ORDER BY m.oid"""

_QUERY: Final = f"""SELECT pg_catalog.json_build_object('role', current_user, 'database', current_database(),
'tables', array({_NOT_GRANTED}), 'rows', array({_HIDDEN_ROWS}), 'large_objects', array({_LARGE_OBJECTS}))"""


class NotReadable(Unretryable):
    """The role of a PostgreSQL source cannot read all of the database. Nothing was written."""


def check_all_readable(database: Database, tools: Tools) -> None:
    """Raise `NotReadable` unless the role can read the whole database. Raises `PostgresFailed`, too."""
    found = json.loads(database.ask(tools, _QUERY))
    why = [
        f"{said}: {_listed(names)}"
        for said, names in (
            ("it lacks SELECT on tables or sequences, or USAGE on their schema", found["tables"]),
            ("row security hides rows of tables (give the role BYPASSRLS)", found["rows"]),
            ("it lacks SELECT on large objects", found["large_objects"]),
        )
        if names
    ]
    if why:
        raise NotReadable(
            f"the role {found['role']} cannot read all of the database {found['database']}; {'; '.join(why)}. "
            "Grant it the role pg_read_all_data, or what is missing, and run the task again"
        )


def _listed(names: list[str]) -> str:
    more = len(names) - _SHOWN_MAX
    return ", ".join(names[:_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
