"""Reads the SQL of a server's roles, tablespaces and databases, as pg_dumpall and pg_dump write it. Pure.

A backup of several databases keeps this SQL as one object. A restore runs only those statements that are about roles
and databases which the server does not have.
"""

import re
from collections.abc import Collection, Iterator
from typing import Final

_STATEMENT: Final = re.compile(
    r"""(?:\s|--[^\n]*(?:\n|$)|\\[^\n]*(?:\n|$))*((?:'(?:[^']|'')*'|"(?:[^"]|"")*"|[^;'"])+;)"""
)
"""A statement, without the white space, the comments and psql's own commands before it."""

_NAME: Final = r"""("(?:[^"]|"")+"|[^\s";,]+)"""
_OF_DATABASE: Final = re.compile(
    rf"(?:(?:CREATE|ALTER) DATABASE|COMMENT ON DATABASE|SECURITY LABEL FOR {_NAME} ON DATABASE|ALTER ROLE {_NAME} IN "
    rf"DATABASE|(?:GRANT|REVOKE) [A-Z, ]+ ON DATABASE) {_NAME}"
)
_OF_ROLE: Final = re.compile(rf"(?:(?:CREATE|ALTER) ROLE|COMMENT ON ROLE|SECURITY LABEL FOR {_NAME} ON ROLE) {_NAME}")
_MEMBER: Final = re.compile(rf"GRANT {_NAME} TO {_NAME}")
_PARAMETER: Final = re.compile(rf"GRANT .+ ON PARAMETER .+ TO {_NAME}", re.DOTALL)
_ROLE: Final = re.compile(rf"CREATE ROLE {_NAME}")
_TABLESPACE: Final = re.compile(rf"CREATE TABLESPACE {_NAME}")
_IN_TABLESPACE: Final = re.compile(rf" TABLESPACE = {_NAME}")


def statements(text: str) -> Iterator[str]:
    r"""Yield the statements of a script of pg_dump, without comments and psql's own commands.

    >>> list(statements("-- Roles;\n\\restrict x\nCREATE ROLE a;\nCOMMENT ON ROLE a IS 'it''s; so';\n-- end\n"))
    ['CREATE ROLE a;', "COMMENT ON ROLE a IS 'it''s; so';"]
    """
    return (found[1] for found in _STATEMENT.finditer(text))


def database_statements(text: str, name: str) -> list[str]:
    """Return the statements that make the database `name` and set its properties.

    >>> database_statements("SET x = 1; CREATE DATABASE a; GRANT ALL ON DATABASE b TO c;", "b")
    ['GRANT ALL ON DATABASE b TO c;']
    """
    return [
        said
        for said in statements(text)
        if (match := _OF_DATABASE.match(said)) is not None and _unquoted(match.groups()[-1]) == name
    ]


def role_statements(text: str, existing: Collection[str]) -> list[str]:
    """Return the statements that make the roles which are not in `existing`, with their memberships.

    >>> text = "CREATE ROLE a; CREATE ROLE b; ALTER ROLE b WITH LOGIN; GRANT a TO b WITH INHERIT TRUE GRANTED BY c;"
    >>> role_statements(text, {"a", "c"})
    ['CREATE ROLE b;', 'ALTER ROLE b WITH LOGIN;', 'GRANT a TO b WITH INHERIT TRUE GRANTED BY c;']
    """
    return [said for said in statements(text) if any(name not in existing for name in _roles_in(said))]


def _roles_in(statement: str) -> list[str]:
    """Return the roles that a statement makes, changes or puts together; none if it is about something else."""
    if _OF_DATABASE.match(statement):
        return []
    if match := _OF_ROLE.match(statement) or _PARAMETER.match(statement):
        return [_unquoted(match.groups()[-1])]
    match = _MEMBER.match(statement)
    return [] if match is None else [_unquoted(name) for name in match.groups()]


def roles_of(text: str) -> list[str]:
    """Return the names of the roles that a script makes.

    >>> roles_of('CREATE ROLE a; CREATE ROLE "the ""b"" c";')
    ['a', 'the "b" c']
    """
    return _named(_ROLE, text)


def tablespaces_of(text: str) -> list[str]:
    """Return the names of the tablespaces that a script makes.

    >>> tablespaces_of("CREATE TABLESPACE fast OWNER a LOCATION '/fast';")
    ['fast']
    """
    return _named(_TABLESPACE, text)


def without_tablespace(statement: str) -> str:
    """Return a statement that makes a database in the server's default tablespace.

    >>> without_tablespace("CREATE DATABASE a WITH TABLESPACE = fast ENCODING = 'UTF8';")
    "CREATE DATABASE a WITH ENCODING = 'UTF8';"
    """
    return _IN_TABLESPACE.sub("", statement, count=1)


def _named(pattern: "re.Pattern[str]", text: str) -> list[str]:
    return [_unquoted(found[1]) for said in statements(text) if (found := pattern.match(said)) is not None]


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name
