"""Names and values as text in SQL."""

from spark_tasks.postgres.names import table_parts


def name(text: str) -> str:
    """A quoted name.

    >>> name('a"b')
    '"a""b"'
    """
    return '"' + text.replace('"', '""') + '"'


def qualified(text: str) -> str:
    """A quoted table name from `TABLE` or `SCHEMA.TABLE`, of which each name may be quoted.

    >>> qualified("public.flights"), qualified('"a.b"')
    ('"public"."flights"', '"a.b"')
    """
    return ".".join(map(name, table_parts(text)))


def literal(text: str) -> str:
    """A quoted value.

    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"
