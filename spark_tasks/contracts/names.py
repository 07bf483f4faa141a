"""Names of tables and columns: in params, and quoted in SQL."""

import re
from typing import Annotated, Final

from pydantic import AfterValidator, Field

_PART: Final = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')


def table_parts(text: str) -> tuple[str, ...]:
    """Split TABLE or SCHEMA.TABLE into its names, each of which may be quoted as in SQL. Raises `ValueError`.

    >>> table_parts("public.flights"), table_parts('"my.schema"."My ""Own"" Table"')
    (('public', 'flights'), ('my.schema', 'My "Own" Table'))
    """
    names: list[str] = []
    at = 0
    while (match := _PART.match(text, at)) is not None:
        names.append(match[2] or match[1].replace('""', '"'))
        at = match.end()
        if text[at : at + 1] != ".":
            break
        at += 1
    if at != len(text) or not 1 <= len(names) <= 2 or text.endswith("."):
        raise ValueError(
            "a table is given as TABLE or SCHEMA.TABLE; a name with a dot or a quote in it is put in quotes, as in "
            'SQL: "my.schema"."My Table"'
        )
    if long := [name for name in names if len(name.encode()) > NAME_BYTES]:
        raise ValueError(f"{long[0]!r} has {len(long[0].encode())} bytes: PostgreSQL keeps {NAME_BYTES} of a name")
    return tuple(names)


NAME_BYTES: Final = 63
"""The most bytes of a name. PostgreSQL truncates a longer name, and only gives a notice."""


def table_name(text: str) -> str:
    """Return `text` unchanged if it is a table's name. Raises `ValueError` if it is not."""
    table_parts(text)
    return text


TableName = Annotated[str, Field(min_length=1, max_length=300), AfterValidator(table_name)]
ColumnName = Annotated[str, Field(min_length=1, max_length=63)]


def name(text: str) -> str:
    """Quote a name for SQL.

    >>> name('a"b')
    '"a""b"'
    """
    return '"' + text.replace('"', '""') + '"'


def qualified(text: str) -> str:
    """Return the quoted table name for `TABLE` or `SCHEMA.TABLE`, in which each name may be quoted already.

    >>> qualified("public.flights"), qualified('"a.b"')
    ('"public"."flights"', '"a.b"')
    """
    return ".".join(map(name, table_parts(text)))


def literal(text: str) -> str:
    """Return the text as an SQL literal.

    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"
