"""Reads the columns that a task names for a table, without Spark: their names and types. Pure.

Because no JVM is needed, every member refuses the same texts at a `PUT`. A test makes sure that Spark's own parser
reads each accepted text in the same way.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

_TOKEN: Final = re.compile(
    r"\s+|/\*.*?\*/|--[^\n]*|(?P<quoted>`(?:[^`]|``)+`)|(?P<text>'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\")"
    r"|(?P<word>\w+)|(?P<sign>[<>(),:])",
    re.DOTALL,
)

_ALIASES: Final = {
    "boolean": "boolean",
    "byte": "tinyint",
    "tinyint": "tinyint",
    "short": "smallint",
    "smallint": "smallint",
    "int": "int",
    "integer": "int",
    "long": "bigint",
    "bigint": "bigint",
    "real": "float",
    "float": "float",
    "double": "double",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ltz": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "string": "string",
    "binary": "binary",
}
"""Maps the names of simple types in Spark's SQL to the name that Spark shows for each."""

_DECIMALS: Final = ("decimal", "dec", "numeric")
_DIGITS_MAX: Final = 38

_INSTEAD: Final = {
    "char": "STRING",
    "character": "STRING",
    "varchar": "STRING",
    "text": "STRING",
    "number": "DECIMAL(p, s)",
    "datetime": "TIMESTAMP",
    "timestamptz": "TIMESTAMP",
    "bool": "BOOLEAN",
    "time": "STRING",
    "interval": "STRING",
    "variant": "STRING",
    "uuid": "STRING",
    "json": "STRING",
    "bytea": "BINARY",
    "blob": "BINARY",
}
"""The type to write instead of a type that Spark or a Delta table does not have."""

_TYPES: Final = (
    "BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p, s), STRING, BINARY, DATE, TIMESTAMP, "
    "TIMESTAMP_NTZ, ARRAY<...>, MAP<..., ...> and STRUCT<name: ...>"
)

_DEEPEST: Final = 50
"""The greatest depth to which types may be nested."""


class NamedColumn(NamedTuple):
    """A column: its name, and its type as Spark shows it."""

    name: str
    kind: str


class ColumnsWrong(ValueError):
    """The text is not a list of columns. The message says where it is wrong, and what would be right."""


class _Token(NamedTuple):
    sort: str
    text: str
    at: int


def read_columns(text: str) -> tuple[NamedColumn, ...]:
    """Parse the columns in `text`. Raises `ColumnsWrong`.

    >>> read_columns("n INT, `a b` DECIMAL(5, 2) NOT NULL COMMENT 'x', s STRUCT<k: ARRAY<LONG>>")[1:]
    (NamedColumn(name='a b', kind='decimal(5,2)'), NamedColumn(name='s', kind='struct<k:array<bigint>>'))
    >>> read_columns("n INTT")
    Traceback (most recent call last):
    spark_tasks.sql.column_types.ColumnsWrong: column n: there is no type INTT: did you mean INT?
    """
    reader = _Reader(text)
    columns = reader.columns()
    _check_distinct([column.name for column in columns], "")
    return columns


def _check_distinct(names: Sequence[str], within: str) -> None:
    known: dict[str, str] = {}
    for name in names:
        if name.lower() in known:
            raise ColumnsWrong(
                f"{within}{known[name.lower()]} and {name} are one name to Spark and Delta, which ignore case: "
                "rename one"
            )
        known[name.lower()] = name


class _Reader:
    """Reads one text from its beginning to its end."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._at = 0

    def columns(self) -> tuple[NamedColumn, ...]:
        found = [self._column()]
        while self._takes(","):
            found.append(self._column())
        if self._next is not None:
            raise ColumnsWrong(
                f"after column {found[-1].name}: {self._next.text!r} at character {self._next.at + 1} where ',' or "
                "the end is expected"
            )
        return tuple(found)

    @property
    def _next(self) -> _Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _takes(self, text: str) -> bool:
        """Whether the next token is this sign or word. If so, moves past it."""
        there = self._next
        if there is None or there.sort not in ("sign", "word") or there.text.lower() != text:
            return False
        self._at += 1
        return True

    def _needs(self, text: str, within: str) -> None:
        if not self._takes(text):
            raise ColumnsWrong(f"{within}: {self._shown()} where {text!r} is expected")

    def _shown(self) -> str:
        return "the end" if self._next is None else f"{self._next.text!r} at character {self._next.at + 1}"

    def _name(self, what: str) -> str:
        there = self._next
        if there is None or there.sort not in ("word", "quoted"):
            raise ColumnsWrong(f"{self._shown()} where the name of a {what} is expected")
        self._at += 1
        if there.sort == "quoted":
            return there.text[1:-1].replace("``", "`")
        if not there.text.isascii() or there.text[0].isdigit():
            raise ColumnsWrong(f"{there.text!r} is no name of a {what} by itself: put it in `...`")
        return there.text

    def _column(self) -> NamedColumn:
        name = self._name("column")
        self._takes(":")
        kind = self._type(f"column {name}", 0)
        self._ending(f"column {name}")
        return NamedColumn(name, kind)

    def _ending(self, within: str) -> None:
        """Read NOT NULL and COMMENT '...', if present, in either order."""
        while True:
            if self._takes("not"):
                self._needs("null", within)
            elif self._takes("comment"):
                if self._next is None or self._next.sort != "text":
                    raise ColumnsWrong(f"{within}: {self._shown()} where the comment in quotes is expected")
                self._at += 1
            else:
                return

    def _type(self, within: str, depth: int) -> str:
        there = self._next
        if there is None or there.sort != "word":
            raise ColumnsWrong(f"{within}: {self._shown()} where a type is expected, such as INT or STRING")
        if depth > _DEEPEST:
            raise ColumnsWrong(f"{within}: its type is nested more than {_DEEPEST} deep")
        self._at += 1
        word = there.text.lower()
        if word in _ALIASES:
            return _ALIASES[word]
        if word in _DECIMALS:
            return self._decimal(within)
        if word == "array":
            [inner] = self._inner(within, depth, 1)
            return f"array<{inner}>"
        if word == "map":
            key, value = self._inner(within, depth, 2)
            return f"map<{key},{value}>"
        if word == "struct":
            return self._struct(within, depth)
        raise ColumnsWrong(f"{within}: there is no type {there.text}: {_advice(word)}")

    def _decimal(self, within: str) -> str:
        if not self._takes("("):
            return "decimal(10,0)"
        digits = [self._number(within)]
        if self._takes(","):
            digits.append(self._number(within))
        self._needs(")", within)
        precision, scale = digits if len(digits) == 2 else (digits[0], 0)
        if not 1 <= precision <= _DIGITS_MAX or scale > precision:
            raise ColumnsWrong(
                f"{within}: a DECIMAL has a precision from 1 to {_DIGITS_MAX} and a scale up to that, and this one is "
                f"({precision}, {scale})"
            )
        return f"decimal({precision},{scale})"

    def _number(self, within: str) -> int:
        there = self._next
        if there is None or not re.fullmatch("[0-9]{1,9}", there.text):
            raise ColumnsWrong(f"{within}: {self._shown()} where a number is expected")
        self._at += 1
        return int(there.text)

    def _inner(self, within: str, depth: int, count: int) -> list[str]:
        self._needs("<", within)
        found = [self._type(within, depth + 1)]
        while len(found) < count:
            self._needs(",", within)
            found.append(self._type(within, depth + 1))
        self._needs(">", within)
        return found

    def _struct(self, within: str, depth: int) -> str:
        self._needs("<", within)
        fields: dict[str, str] = {}
        names: list[str] = []
        while not names or self._takes(","):
            names.append(name := self._name("field"))
            self._takes(":")
            fields[name] = self._type(f"{within}.{name}", depth + 1)
            self._ending(f"{within}.{name}")
        self._needs(">", within)
        _check_distinct(names, f"{within}: ")
        return f"struct<{','.join(f'{name}:{kind}' for name, kind in fields.items())}>"


def _tokens(text: str) -> "list[_Token]":
    found, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ColumnsWrong(f"{text[at]!r} at character {at + 1} cannot be read: put names that have it in `...`")
        if match.lastgroup is not None:
            found.append(_Token(match.lastgroup, match[0], at))
        at = match.end()
    return found


def _advice(word: str) -> str:
    if word in _INSTEAD:
        return f"write {_INSTEAD[word]}"
    near = [name for name in (*_ALIASES, *_DECIMALS, "array", "map", "struct") if _near(word, name)]
    return f"did you mean {near[0].upper()}?" if near else f"the types are {_TYPES}"


def _near(one: str, other: str) -> bool:
    """Whether one edit turns one word into the other: a letter added, removed or replaced."""
    if abs(len(one) - len(other)) > 1:
        return False
    same = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[same + 1 :] == other[same:] or one[same:] == other[same + 1 :] or one[same + 1 :] == other[same + 1 :]
