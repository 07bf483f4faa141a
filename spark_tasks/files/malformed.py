"""The rows of a batch that do not fit the columns: which they are, where they stand, and why they do not fit.

Spark does not say at which line of a file a row is, so the file is read again to find it. The line of a record of
several lines is its first; it is None if it is not found.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, TypeVar
from urllib.parse import unquote, urlsplit

from spark_tasks.files.faults import BadFile, MalformedRows
from spark_tasks.files.form import Form
from spark_tasks.files.layouts import Layout
from spark_tasks.files.listing import Source
from spark_tasks.files.opening import opened_text
from spark_tasks.files.reading import CORRUPT, layouts_of, marked, text_columns
from spark_tasks.files.reasons import reason

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

MALFORMED_MAX: Final = 100_000
"""The most rows of a batch that are kept. More of them are no stray rows: the columns are other ones."""

_FILE = "_rota_file"

T = TypeVar("T")


@dataclass(frozen=True)
class BadRow:
    """A row that does not fit: its file, its line from 1, its text and the reason."""

    file: str
    line: int | None
    text: str
    reason: str


def keep(out: IO[bytes], rows: Iterable[BadRow]) -> int:
    """Write the rows to `out`, one JSON object in each line; their number."""
    kept = 0
    for row in rows:
        out.write(json.dumps(asdict(row)).encode() + b"\n")
        kept += 1
    return kept


def check_few(rows: "DataFrame", bad: int, places: Mapping[Path, Source]) -> None:
    """Raise `BadFile` if there are `bad` malformed rows, and these are too many: for the file with the most of them."""
    if bad <= MALFORMED_MAX:
        return
    from pyspark.sql import functions as f

    by_file = _bad(rows).groupBy(_FILE).count().orderBy(f.col("count").desc(), f.col(_FILE))
    worst = by_file.first()
    assert worst is not None
    name = _source_name(_place(worst[_FILE]), places)
    raise BadFile(
        name,
        MalformedRows(
            f"{name}: {worst['count']} rows do not fit the columns, which is too many to keep (a batch may have "
            f"{MALFORMED_MAX}): correct `columns`, `delimiter` or the file"
        ),
    )


def bad_rows(
    rows: "DataFrame",
    form: Form,
    schema: "StructType",
    places: Mapping[Path, Source],
    layouts: Sequence[Layout] | None,
    rows_max: int | None = None,
) -> Iterator[BadRow]:
    """The malformed rows of the marked frame `rows`, file by file, in the order of their lines."""
    own = {place: text_columns(layout, schema) for layout in layouts or () for place in layout.places}
    found: dict[Path, list[tuple[str, str]]] = defaultdict(list)
    bad = _bad(rows) if rows_max is None else _bad(rows).limit(rows_max)
    # Spark refuses to read only the column of malformed rows from CSV, so all others are read with it.
    for row in bad.toLocalIterator():
        place = _place(row[_FILE])
        types = {field.name: field.dataType.simpleString() for field in own.get(place, schema).fields}
        # A field without a column is text, of any kind.
        known = row.asDict()
        values = {name: known.get(name, "") for name in types}
        found[place].append((row[CORRUPT], reason(form, types, row[CORRUPT], values)))
    for place, some in sorted(found.items()):
        name = _source_name(place, places)
        with opened_text(place, form.encoding) as lines:
            for line, (text, why) in numbered(some, lines):
                yield BadRow(name, line, text, why)


def first_bad(spark: "SparkSession", form: Form, schema: "StructType", places: Mapping[Path, Source]) -> BadFile | None:
    """The first file of `places` with a malformed row, and the first of these rows in it; None if all rows fit."""
    layouts = layouts_of(spark, form, places)
    rows = marked(spark, form, schema, places, layouts)
    row = next(bad_rows(rows, form, schema, places, layouts, rows_max=1), None)
    if row is None:
        return None
    where = f"{row.file}, line {row.line}" if row.line is not None else row.file
    return BadFile(row.file, MalformedRows(f"{where}: {row.reason} in {row.text[:_TEXT_SHOWN]!r}"))


_TEXT_SHOWN: Final = 300


def _bad(rows: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as f

    return rows.filter(f.col(CORRUPT).isNotNull()).withColumn(_FILE, f.input_file_name())


def _place(url: str) -> Path:
    return Path(unquote(urlsplit(url).path))


def _source_name(place: Path, places: Mapping[Path, Source]) -> str:
    return places[place].path if place in places else str(place)


def numbered(rows: Sequence[tuple[str, T]], lines: Iterable[str]) -> Iterator[tuple[int | None, tuple[str, T]]]:
    """Each row with its line number, from 1, in the order of the lines; rows that are not found come last.

    A row is its text, and whatever goes with it.

    >>> list(numbered([("x,y", 0), ("x,y", 1), ("gone", 2)], ["a,b", "x,y", "1,2", "x,y"]))
    [(2, ('x,y', 0)), (4, ('x,y', 1)), (None, ('gone', 2))]
    """
    waiting: dict[str, list[tuple[str, T]]] = defaultdict(list)
    for row in rows:
        waiting[_first_line(row[0])].append(row)
    for number, line in enumerate(lines, 1):
        known = waiting.get(_first_line(line))
        if known:
            yield number, known.pop(0)
    for rest in waiting.values():
        for row in rest:
            yield None, row


def _first_line(text: str) -> str:
    return text.lstrip("\ufeff").partition("\n")[0].rstrip("\r")
