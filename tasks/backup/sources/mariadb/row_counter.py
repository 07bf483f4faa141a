"""Counts the rows of each table in a dump of mariadb-dump, while the dump passes (pure)."""

import re
from typing import Final

from tasks.backup.manifest import TableFacts

_NAME: Final = rb"`((?:[^`]|``)+)`"
_NEXT: Final = re.compile(
    rb"\nUSE " + _NAME + rb";(?=\n)|\nLOCK TABLES " + _NAME + rb" WRITE;(?=\n)|\nDELIMITER (?!;\n)[^\n]+(?=\n)"
)
"""Statements outside of rows and of the bodies of routines: the database that follows, a table's rows, or a body."""

_ROWS_END: Final = b"\nUNLOCK TABLES;\n"
_BODY_END: Final = b"\nDELIMITER ;\n"
_ROW: Final = b"\n("
_WITH_ROW: Final = re.compile(rb"\nINSERT INTO [^\n]*? VALUES \(")
"""Each row begins a line, but the first one after a list of columns. Values have no line breaks: they are escaped."""

_DUMPER: Final = re.compile(rb"\n-- MariaDB dump [^\n]*Distrib (\d+)\.(\d+)")
_OLDEST: Final = 10, 11
"""The oldest mariadb-dump that is known to write each row in a line of its own."""

_LINE_BYTES: Final = 1 << 20
"""A longer line is a row, or of a body: of it, the beginning is enough."""


class RowCounter:
    """Counts the rows of the dump that it is fed. `database` is the dumped one; "": the dump names its databases."""

    def __init__(self, database: str) -> None:
        self._database = database
        self._held = b"\n"
        self._end = b""
        self._is_known: bool | None = None
        self._table: tuple[str, str] | None = None
        self._rows: dict[tuple[str, str], int] = {}

    def feed(self, chunk: bytes) -> None:
        """Count the rows in the next piece of the dump."""
        text = self._held + chunk
        # A line is looked at when it is complete. The line break before it belongs to it.
        whole = text.rfind(b"\n")
        self._held = text[whole:]
        if len(self._held) > _LINE_BYTES:
            found = _WITH_ROW.match(self._held)
            self._held = self._held[: found.end() if found else len(_ROW)]
        if self._is_known is None and (dumper := _DUMPER.search(text, 0, whole)) is not None:
            self._is_known = (int(dumper[1]), int(dumper[2])) >= _OLDEST
        at = 0
        while at < whole:
            at = self._skip(text, at, whole) if self._end else self._find(text, at, whole)

    @property
    def tables(self) -> tuple[TableFacts, ...] | None:
        """The tables in the dump so far, and how many rows each has; None: this version's dumps cannot be counted."""
        if not self._is_known:
            return None
        return tuple(
            TableFacts(schema_name=schema, name=name, rows=rows) for (schema, name), rows in sorted(self._rows.items())
        )

    def _skip(self, text: bytes, at: int, whole: int) -> int:
        """Go on to the end of the rows or of the body. Returns how far the text is done."""
        end = text.find(self._end, at, whole + 1)
        upto = whole if end < 0 else end
        if self._table is not None:
            self._rows[self._table] += text.count(_ROW, at, upto + 1)
            self._rows[self._table] += sum(1 for _ in _WITH_ROW.finditer(text, at, upto + 1))
        if end < 0:
            return whole
        upto += len(self._end) - 1
        self._table, self._end = None, b""
        return upto

    def _find(self, text: bytes, at: int, whole: int) -> int:
        """Go on to the next statement that matters. Returns how far the text is done."""
        found = _NEXT.search(text, at, whole + 1)
        if found is None:
            return whole
        database, table = found.groups()
        if database is not None:
            self._database = _unquoted(database)
        elif table is not None:
            self._table, self._end = (self._database, _unquoted(table)), _ROWS_END
            self._rows[self._table] = 0
        else:
            self._end = _BODY_END
        return found.end()


def _unquoted(name: bytes) -> str:
    return name.decode(errors="surrogateescape").replace("``", "`")
