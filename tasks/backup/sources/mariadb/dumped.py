"""The objects of a MariaDB backup (pure): their names, their first line, and reading one to its end."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import unquote

from tasks.backup.archive import CHUNK_BYTES, Content, Damaged

ALL: Final = "databases.sql.zst"
"""The object of all databases as of one moment."""

USERS: Final = "users.sql.zst"
"""The object of the accounts, roles and grants."""

_PREFIX: Final = "database."
_SUFFIX: Final = ".sql.zst"
_HEADER: Final = b"-- Rota dumped: "
_END: Final = re.compile(rb"\n-- Dump completed(?: on [0-9: -]+)?\n$")
_MAY_NAME_IT: Final = re.compile(
    rb"\n(?:ALTER DATABASE `|(?:/\*!50003 CREATE\*/|CREATE )[^\n]*?\btrigger\b)", re.IGNORECASE
)
"""How statements begin that may name the database which was dumped: one changes its defaults, if they changed after a
routine was made; others make triggers, whose text is as it was written."""
_IDENTIFIER: Final = rb"(?:`(?:[^`]|``)+`|[^\s`./*#-]+)"
_UNNAMED: Final = re.compile(
    rb"\n[^\n]*?\btrigger\s+(?:if\s+not\s+exists\s+)?"
    + _IDENTIFIER
    + rb"\s+(?:before|after)\s+(?:insert|update|delete)\s+on\s+"
    + _IDENTIFIER
    + rb"\s+for\s",
    re.IGNORECASE,
)
"""How a statement begins that makes a trigger without naming a database."""
_HEAD_BYTES: Final = 4096
"""How much of a statement is looked at."""
_LINE_BYTES_MAX: Final = 1 << 20


def object_name(database: str) -> str:
    """Return the name of a database's object. Letters and digits of any script stay, so that it is short enough.

    >>> object_name("größe"), object_name("a/b c")
    ('database.größe.sql.zst', 'database.a%2Fb%20c.sql.zst')
    """
    safe = "".join(
        each if each.isalnum() or each in "_-" else "".join(f"%{byte:02X}" for byte in each.encode())
        for each in database
    )
    return f"{_PREFIX}{safe}{_SUFFIX}"


def database_in(name: str) -> str | None:
    """The inverse of `object_name`; None if the object is not that of one database.

    >>> database_in("database.a%2Fb%20c.sql.zst"), database_in("users.sql.zst")
    ('a/b c', None)
    """
    if not (name.startswith(_PREFIX) and name.endswith(_SUFFIX)):
        return None
    return unquote(name.removeprefix(_PREFIX).removesuffix(_SUFFIX))


def header(names: Sequence[str]) -> bytes:
    r"""Return the first line of a dump, a comment of SQL that names its databases.

    >>> header(["orders"])
    b'-- Rota dumped: ["orders"]\n'
    """
    return _HEADER + json.dumps(list(names)).encode() + b"\n"


class DumpReader:
    """Reads the content of a dump, and checks that it ends with mariadb-dump's last line."""

    def __init__(self, content: Content, name: str) -> None:
        self._content = content
        self._name = name
        self._first = b""
        while b"\n" not in self._first and len(self._first) < _LINE_BYTES_MAX and (more := content.read(CHUNK_BYTES)):
            self._first += more

    def databases(self) -> list[str]:
        """Return the names of the dumped databases. Raises `Damaged`."""
        line = self._first.partition(b"\n")[0]
        try:
            names = json.loads(line.removeprefix(_HEADER)) if line.startswith(_HEADER) else None
        except ValueError:
            names = None
        if not isinstance(names, list):
            raise Damaged(f"{self._name} does not begin with the names of its databases")
        return [str(name) for name in names]

    def chunks(self, *, own_name: bool = True) -> Iterator[bytes]:
        """Yield the content. Raises `Damaged`, at the end if the last line is missing.

        `own_name` False: the content gets into a database of another name. Raises `Damaged` before a statement that
        names the database which was dumped, since it would change that one.
        """
        end = b""
        for chunk in self._read() if own_name else self._read_unnamed():
            yield chunk
            end = (end + chunk)[-200:]
        if not self.is_end(end):
            raise Damaged(f"{self._name} does not end with the last line of mariadb-dump: it was cut short")

    def _read(self) -> Iterator[bytes]:
        chunk = self._first
        while chunk:
            yield chunk
            chunk = self._content.read(CHUNK_BYTES)

    def _read_unnamed(self) -> Iterator[bytes]:
        """Yield the content, but each statement only after its beginning was looked at."""
        held = b""
        for chunk in self._read():
            held += chunk
            sure = max(0, len(held) - _HEAD_BYTES)
            self._refuse_named(held, sure)
            yield held[:sure]
            held = held[sure:]
        self._refuse_named(held, len(held))
        yield held

    def _refuse_named(self, text: bytes, before: int) -> None:
        for found in _MAY_NAME_IT.finditer(text):
            if found.start() < before and not _UNNAMED.match(text, found.start()):
                statement = text[found.start() + 1 : found.start() + 200].decode(errors="replace")
                raise Damaged(
                    f"{self._name} can only be restored under the name of its database, because a statement in it may "
                    f"name that: {statement}"
                )

    @staticmethod
    def is_end(end: bytes) -> bool:
        """Whether these last bytes end with mariadb-dump's last line."""
        return _END.search(end) is not None
