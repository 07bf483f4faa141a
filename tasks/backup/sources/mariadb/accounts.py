"""The accounts and roles in a dump of them (pure), and its statements for those that a server lacks.

An account that the server has keeps its password and its grants: it may belong to somebody else there.
"""

import re
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

_NAME: Final = r"(?:`(?:[^`]|``)*`|'(?:[^']|'')*')"
_CREATED: Final = re.compile(rf"CREATE USER (?:IF NOT EXISTS )?(?P<user>{_NAME})@(?P<host>{_NAME})")
_ROLE: Final = re.compile(
    rf"/\*!\w* CREATE ROLE (?:IF NOT EXISTS )?(?P<user>{_NAME})|/\*M!\w* CREATE ROLE (?:IF NOT "
    rf"EXISTS )?(?P<role>{_NAME})|/\*M!\w* GRANT (?P<granted>{_NAME}) TO "
)
_GRANTED: Final = re.compile(rf"GRANT .+? TO (?P<user>{_NAME})(?:@(?P<host>{_NAME}))?")
_DEFAULT: Final = re.compile(rf"/\*M?!\w* (?:SET DEFAULT ROLE .+? FOR|ALTER USER) (?P<user>{_NAME})@(?P<host>{_NAME})")


class MariadbAccount(NamedTuple):
    """An account of a server, or a role, whose host is empty."""

    user: str
    host: str

    def __str__(self) -> str:
        return f"{self.user}@{self.host}" if self.host else self.user


def about(statement: str) -> MariadbAccount | None:
    """Return the account or role that a line of the dump creates or gives something; None for any other line.

    >>> about("GRANT SELECT ON `shop`.* TO `ann`@`%` WITH GRANT OPTION;"), about("SET ROLE NONE;")
    (MariadbAccount(user='ann', host='%'), None)
    >>> about("/*M!100005 GRANT 'reader' TO 'root'@'localhost' WITH ADMIN OPTION */;")
    MariadbAccount(user='reader', host='')
    """
    if found := _ROLE.match(statement):
        return MariadbAccount(_name(found["user"] or found["role"] or found["granted"]), "")
    for pattern in (_CREATED, _GRANTED, _DEFAULT):
        if found := pattern.match(statement):
            return MariadbAccount(_name(found["user"]), _name(found["host"] or "``"))
    return None


def accounts_in(dump: str) -> set[MariadbAccount]:
    """Return the accounts and roles that a dump has statements about."""
    return {found for line in dump.split("\n") if (found := about(line)) is not None}


def statements_for(dump: str, accounts: Collection[MariadbAccount]) -> str:
    """Return the dump without the lines about other accounts than these."""
    return "".join(f"{line}\n" for line in _kept(dump, accounts))


def _kept(dump: str, accounts: Collection[MariadbAccount]) -> Iterator[str]:
    for line in dump.split("\n"):
        found = about(line)
        if found is None or found in accounts:
            yield line


def _name(quoted: str) -> str:
    return quoted[1:-1].replace(quoted[0] * 2, quoted[0])
