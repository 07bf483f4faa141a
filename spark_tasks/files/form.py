"""The format of a task's files, as its params give it, and Spark's options for it."""

import csv
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from spark_tasks.sql.column_types import NamedColumn, read_columns
from tasks.definition.field_errors import raise_all

if TYPE_CHECKING:
    from typing import Self


_QUOTED: Final = re.compile(r"'[^']*'")
_LETTERS: Final = frozenset("GyMLdDQqEFahHKkmsSVzOXxZ")
"""The letters of Spark's patterns for times."""


def _timestamp_format(text: str) -> str:
    pattern = _QUOTED.sub("", text)
    if "%" in pattern:
        raise ValueError("must be a Spark pattern, such as yyyy-MM-dd HH:mm:ss, not a strftime one")
    # Letters of other alphabets stand for themselves, as in yyyy年MM月dd日.
    if wrong := [char for char in pattern if char.isascii() and char.isalpha() and char not in _LETTERS]:
        raise ValueError(f"{wrong[0]!r} is no letter of Spark's patterns, such as yyyy-MM-dd HH:mm:ss")
    if lacking := _defaulted(pattern):
        raise ValueError(f"{lacking}, and Spark would make one up: write as yyyy-MM-dd HH:mm:ss")
    if "S" * 7 in pattern:
        raise ValueError("a timestamp has 6 digits of a second: write SSSSSS at most")
    return text


def _defaulted(pattern: str) -> str | None:
    """Return the part of a time, in words, that the pattern lacks and Spark would make up; None if the pattern is
    complete.
    """
    always = set(_OPTIONAL.sub("", pattern))
    if not always & set("HhKkmsS"):  # all these parts may be optional, but one is required
        always = set(pattern)
    said = set(pattern)
    wanted = [
        (bool(always & set("yuD")), "it has no year"),
        ("D" in always or (bool(always & set("MLQq")) and "d" in always), "it has no month and day"),
        (not said & set("hK") or "a" in said, "it has hours up to 12 and no a, for AM and PM"),
        (not said & set("ms") or bool(said & set("HhKk")), "it has no hour"),
        ("s" not in said or "m" in said, "it has no minute"),
    ]
    return next((what for there, what in wanted if not there), None)


_OPTIONAL: Final = re.compile(r"\[[^\[\]]*\]")


def columns_text(text: str) -> str:
    """Return `text` unchanged if it is a list of columns. Raises `ValueError` if it is not."""
    read_columns(text)
    return text


ColumnsText = Annotated[str, AfterValidator(columns_text)]


class Form(BaseModel):
    """The format of the files."""

    model_config = ConfigDict(extra="forbid")

    format: Literal["csv", "json", "tbl", "parquet", "avro"] = Field(
        description="The files' format; json: one object in each line, unless `multiline`; tbl: no header, no quotes, "
        "and each field ends with the delimiter, the last one too. CSV, JSON and TBL may be compressed, by gzip "
        "(`.gz`) or zstd (`.zst`)"
    )
    header: bool = Field(default=True, description="CSV: the first line of each file names the columns")
    delimiter: str | None = Field(
        default=None,
        min_length=1,
        max_length=8,
        description="CSV, TBL: the text between two fields; null: `,` in CSV, `|` in TBL",
    )
    null_value: str = Field(
        default="", max_length=100, description="CSV, TBL: the text that stands for a missing value"
    )
    encoding: Literal["utf-8", "iso-8859-1", "windows-1252"] = Field(
        default="utf-8", description="CSV: the encoding of the files. A file that is not text in UTF-8 fails"
    )
    quotes: bool = Field(
        default=True,
        description="CSV: a field may be in quotes, as RFC 4180 says, and a quote elsewhere makes its row malformed. "
        "false: a quote is a character like any other",
    )
    escape: str | None = Field(
        default=None,
        pattern=r"^[!#-/:-@\[-`{-~]$",
        description="CSV: the character before a quote, or before itself, that is part of a quoted field; null: a "
        "quote in one is doubled",
        examples=["\\"],
    )
    multiline: bool = Field(default=False, description="CSV: fields may contain line breaks; JSON: a file is one array")
    timestamp_format: Annotated[str, AfterValidator(_timestamp_format)] | None = Field(
        default=None,
        max_length=100,
        description="The format of timestamps, in Spark's notation; null: ISO 8601",
        examples=["dd/MM/yyyy HH:mm:ss"],
    )
    columns: ColumnsText | None = Field(
        default=None,
        max_length=20_000,
        description="The columns and their types as in SQL; null: those of the table, or of the first batch, where "
        "they are inferred from CSV and JSON. Required for TBL",
        examples=["flight INT, tailnum STRING, time_hour TIMESTAMP"],
    )
    malformed: Literal["fail", "quarantine"] = Field(
        default="fail",
        description="Whether a row that does not fit the columns fails its file, or goes to the table "
        "`TABLE_quarantine` with its file, line, text and the reason",
    )

    schema_evolution: Literal["fail", "add", "widen"] = Field(
        default="fail",
        description="What a file with other columns does. fail: it fails. add: its new columns are added to the table. "
        "widen: and types are widened (int to bigint to decimal, int and float to double, date to timestamp), for "
        "which the whole table is written again; a partitioned one is not widened. Any other change fails the file. "
        "With add and widen, columns are matched by name, a file may lack some, and `columns` is for a new table only",
    )
    rescue: bool = Field(
        default=False,
        description="Whether fields that the table has no column for are kept as JSON in its column `_rescued`. Then "
        "columns are matched by name, and a file may lack some",
    )

    @model_validator(mode="after")
    def _check_together(self) -> "Self":
        raise_all(type(self).__name__, self.wrong_together())
        return self

    def wrong_together(self) -> Iterator[str]:
        """Yield the errors of fields that are valid alone, but not together."""
        if self.format == "tbl" and self.columns is None:
            yield "`columns` is required for format tbl, whose files do not name their columns"
        if self.format != "csv" and self.encoding != "utf-8":
            yield "`encoding` is for format csv: files of other formats are UTF-8, or are not text"
        if self.escape is not None and (self.format != "csv" or not self.quotes):
            yield "`escape` is for format csv with `quotes`: only quoted fields have it"
        if self.escape is not None and self.escape in self.between:
            yield "`escape` cannot be part of `delimiter`"
        if not self.quotes and (self.format != "csv" or self.multiline):
            yield "`quotes: false` is for format csv without `multiline`: a line break needs quotes around it"
        if self.quotes and '"' in self.between:
            yield "`delimiter` cannot have a quote in it, unless `quotes` is false"
        if self.by_name and (self.format == "tbl" or (self.format == "csv" and not self.header)):
            yield "`schema_evolution` and `rescue` are for files that name their columns"

    @property
    def by_name(self) -> bool:
        """Whether the columns of each file are matched with the table's by their names."""
        return self.rescue or self.schema_evolution != "fail"

    @property
    def between(self) -> str:
        """The text between two fields.

        >>> Form(format="csv").between, Form(format="tbl", columns="n INT").between
        (',', '|')
        """
        return self.delimiter or ("|" if self.format == "tbl" else ",")

    @property
    def named(self) -> tuple[NamedColumn, ...]:
        """The columns that the task names; empty if it names no columns."""
        return () if self.columns is None else read_columns(self.columns)

    @property
    def quoting(self) -> dict[str, Any]:
        """The arguments for quotes and escapes of Python's csv readers."""
        if not self.quotes:
            return {"quoting": csv.QUOTE_NONE}
        return {} if self.escape is None else {"doublequote": False, "escapechar": self.escape}

    @property
    def is_text(self) -> bool:
        """Whether the files are text. A row of text may be malformed; in other files all rows have the file's types."""
        return self.format in ("csv", "json", "tbl")


_NO_QUOTE: Final = "\0"
"""NUL as quote tells Spark that there are no quotes."""


def options(form: Form) -> dict[str, Any]:
    """Spark's options for reading files of that format."""
    chosen: dict[str, Any] = {"multiLine": form.multiline}
    if form.timestamp_format is not None:
        chosen["timestampFormat"] = form.timestamp_format
    if form.format == "csv":
        chosen |= {"header": form.header, "sep": form.between, "nullValue": form.null_value}
        chosen |= {"encoding": form.encoding, "escape": form.escape or '"'}
        if not form.quotes:
            chosen |= {"quote": _NO_QUOTE, "escape": _NO_QUOTE}
    if form.format == "tbl":
        chosen = {name: value for name, value in chosen.items() if name != "multiLine"}
        chosen |= {"sep": form.between, "nullValue": form.null_value, "quote": _NO_QUOTE}
    return chosen
