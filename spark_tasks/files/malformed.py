"""Finds the rows of a batch that do not fit the columns: their texts, their files and lines, and the reasons.

Spark does not say at which line of a file a row is, so the file is read again to find it. If a record has several
lines, its first line counts; the line is None if the row is not found. If a value is not of its column's type, Spark
does not give the text of the row either, so the row is found by its values in the checked columns.
"""

import csv
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

from spark_tasks.files import exact
from spark_tasks.files.faults import BadFile, MalformedRows, file_to_blame
from spark_tasks.files.form import Form
from spark_tasks.files.layouts import Layout
from spark_tasks.files.listing import Source
from spark_tasks.files.opening import LINE_MAX_BYTES, opened_text
from spark_tasks.files.reading import CORRUPT, layouts_of, load_marked, text_columns
from spark_tasks.files.reasons import misfit, reason
from spark_tasks.spark import causes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

MALFORMED_MAX: Final = 100_000
"""The most malformed rows of a batch that are kept. If there are more, the files have other columns than the table."""

_FILE = "_rota_file"

T = TypeVar("T")


@dataclass(frozen=True)
class BadRow:
    """A row that does not fit: its file, its line from 1, its text and the reason."""

    file: str
    line: int | None
    text: str
    reason: str


def write_bad_rows(out: IO[bytes], rows: Iterable[BadRow]) -> int:
    """Write the rows to `out`, one JSON object in each line. Returns how many there were."""
    kept = 0
    for row in rows:
        out.write(json.dumps(asdict(row)).encode() + b"\n")
        kept += 1
    return kept


def check_few(rows: "DataFrame", bad: int, places: Mapping[Path, Source]) -> None:
    """If `bad`, the number of all malformed rows, is too great, raise `BadFile` for the file with the most of them."""
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
    """Yield the malformed rows of `rows`, which `load_marked` has read: file by file, in the order of their lines."""
    own = {place: text_columns(layout, schema) for layout in layouts or () for place in layout.places}
    found: dict[Path, list[tuple[str, Mapping[str, Any]]]] = defaultdict(list)
    bad = _bad(rows) if rows_max is None else _bad(rows).limit(rows_max)
    # Spark refuses to read only the column of malformed rows from CSV, so all others are read with it.
    for row in bad.toLocalIterator():
        known = row.asDict()
        found[_place(row[_FILE])].append((known.pop(CORRUPT), known))
    for place, some in sorted(found.items()):
        yield from _FileRows(form, own.get(place, schema), place, _source_name(place, places)).bad(some)


class _FileRows:
    """Finds the lines of malformed rows in one file with the given columns."""

    def __init__(self, form: Form, columns: "StructType", place: Path, shown: str) -> None:
        self.form = form
        self.types = {field.name: field.dataType.simpleString() for field in columns.fields}
        self.checked = exact.checked_names(columns, form)
        self.place = place
        self.shown = shown

    def bad(self, found: Sequence[tuple[str, Mapping[str, Any]]]) -> Iterator[BadRow]:
        """Yield the malformed rows with their line numbers. `found` has, for each row, its text or key and the values
        that Spark read.
        """
        texts = [(text, values) for text, values in found if not text.startswith(exact.KEY)]
        keyed = [(text.removeprefix(exact.KEY), values) for text, values in found if text.startswith(exact.KEY)]
        rows: list[tuple[int | None, BadRow]] = []
        if texts:
            with opened_text(self.place, self.form.encoding) as lines:
                rows += [(line, self._row(line, text, values)) for line, (text, values) in _numbered(texts, lines)]
        if keyed:
            rows += self._by_key(keyed)
        rows.sort(key=lambda one: (one[0] is None, one[0]))
        yield from (row for _, row in rows)

    def _row(self, line: int | None, text: str, values: Mapping[str, Any]) -> BadRow:
        # A column that was not read has "" as value, so that `reason` does not blame it.
        return BadRow(
            self.shown, line, text, reason(self.form, self.types, text, {n: values.get(n, "") for n in self.types})
        )

    def _by_key(self, keyed: Sequence[tuple[str, Mapping[str, Any]]]) -> "Iterator[tuple[int | None, BadRow]]":
        waiting: dict[str, list[tuple[str, Mapping[str, Any]]]] = defaultdict(list)
        for text, values in keyed:
            waiting[self._key(json.loads(text))].append((text, values))
        with opened_text(self.place, self.form.encoding) as lines:
            for line, text, record in _text_records(self.form, list(self.types), lines):
                some = waiting.get(self._key(record))
                if some:
                    _, values = some.pop()
                    yield line, self._row(line, text, values)
        for some in waiting.values():
            for text, values in some:
                yield None, BadRow(self.shown, None, text, misfit(self.types, json.loads(text), values))

    def _key(self, record: Mapping[str, Any]) -> str:
        return json.dumps([_plain(record.get(name)) for name in self.checked], sort_keys=True)


def _plain(value: Any) -> Any:
    """Return a JSON value without nulls, for comparisons. An object in a text column is parsed, since Spark has it as
    text.
    """
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return _plain(json.loads(value, parse_float=str, parse_int=str))
        except (ValueError, RecursionError):
            return value
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _text_records(
    form: Form, names: Sequence[str], lines: Iterable[str]
) -> Iterator[tuple[int, str, Mapping[str, Any]]]:
    r"""Yield the records of a text file whose columns are `names`: the line from 1, the text, and the values by name.

    A value is the text of a field; None if that text stands for a missing value. Records that cannot be read are left
    out.

    >>> list(_text_records(Form(format="csv"), ["n", "at"], ["n,at\n", "1,10:00\n", "2\n"]))
    [(2, '1,10:00', {'n': '1', 'at': '10:00'})]
    """
    if form.format == "json":
        yield from _json_records(lines)
        return
    for line, text, fields in csv_records(form, lines):
        if len(fields) == len(names) and not (form.header and line == 1):
            known = (None if field in ("", form.null_value) else field for field in fields)
            yield line, text, dict(zip(names, known, strict=True))


def _json_records(lines: Iterable[str]) -> Iterator[tuple[int, str, Mapping[str, Any]]]:
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line, parse_float=str, parse_int=str, parse_constant=str)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            yield number, line.rstrip("\n"), record


def csv_records(form: Form, lines: Iterable[str]) -> Iterator[tuple[int, str, Sequence[str]]]:
    """Yield the records of a CSV file: the line from 1, the text and the fields of each."""
    taken: list[str] = []
    if len(form.between) > 1:  # quotes and delimiters of several characters are left to Spark
        for number, line in enumerate(lines, 1):
            yield number, line.rstrip("\n"), line.rstrip("\n").split(form.between)
        return

    def told() -> Iterator[str]:
        for line in lines:
            taken.append(line.lstrip("\ufeff"))
            yield taken[-1]

    csv.field_size_limit(LINE_MAX_BYTES)
    reader, begins = csv.reader(told(), delimiter=form.between, **form.quoting), 1
    for fields in reader:
        yield begins, "".join(taken).rstrip("\n"), fields
        begins = reader.line_num + 1
        taken.clear()


def first_bad(spark: "SparkSession", form: Form, schema: "StructType", places: Mapping[Path, Source]) -> BadFile | None:
    """Return the error for the first malformed row of the first file in `places` that has one; None if all rows fit."""
    layouts = layouts_of(spark, form, places)
    rows = load_marked(spark, form, schema, places, layouts)
    row = next(bad_rows(rows, form, schema, places, layouts, rows_max=1), None)
    if row is None:
        return None
    where = f"{row.file}, line {row.line}" if row.line is not None else row.file
    return BadFile(row.file, MalformedRows(f"{where}: {row.reason} in {row.text[:_TEXT_SHOWN]!r}"))


_TEXT_SHOWN: Final = 300


def explained_row(
    spark: "SparkSession", form: Form, schema: "StructType | None", error: Exception, places: Mapping[Path, Source]
) -> BadFile | None:
    """Return the file that caused an error of Spark, and the reason; if a row does not fit, also the row's line.

    `schema` are the table's columns, if known. Returns None if no file caused the error.
    """
    found, its = file_to_blame(error, places), dict(places)
    if not any(exact.UNFIT in message for message in causes.messages(error)):
        if found is None or not isinstance(found.why, MalformedRows):
            return found
        its = {place: source for place, source in places.items() if source.path == found.path}
    return (first_bad(spark, form, schema, its) if its and schema is not None else None) or found


def _bad(rows: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as f

    return rows.filter(f.col(CORRUPT).isNotNull()).withColumn(_FILE, f.input_file_name())


def _place(url: str) -> Path:
    return Path(unquote(urlsplit(url).path))


def _source_name(place: Path, places: Mapping[Path, Source]) -> str:
    return places[place].path if place in places else str(place)


def _numbered(rows: Sequence[tuple[str, T]], lines: Iterable[str]) -> Iterator[tuple[int | None, tuple[str, T]]]:
    """Yield each row with its line number, from 1, in the order of the lines; rows that are not found come last.

    A row is a pair: its text, and any value.

    >>> list(_numbered([("x,y", 0), ("x,y", 1), ("gone", 2)], ["a,b", "x,y", "1,2", "x,y"]))
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
