"""Reads a table's Parquet files on Spark's executors, as a Python data source, from a folder or an object store.

Spark's own reader takes partition columns from the names of folders, and pip brings it no class for S3. This reader
gets the values of columns that a file does not contain from its caller. With a guard, it opens a local file itself and
checks the opened file, so that replacing the file by a symlink meanwhile has no effect.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import cycle, groupby
from typing import IO, TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from spark_tasks.storage.errors import store_errors
from tasks.errors import Failed, Unretryable
from tasks.file_guard import FileGuard
from tasks.places.place import Place

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

PORTION_ROWS: Final = 16_384
TASK_BYTES: Final = 64 << 20
"""About how many bytes of the files one Spark task reads."""

BLOCK_BYTES: Final = 8 << 20
"""The number of bytes that are requested from an object store at once."""

_numbers = cycle(range(64))
"""Numbers for the names of formats, used in turn, because Spark keeps each name for as long as it runs."""


class TableFileUnfit(Unretryable):
    """A table's file is no Parquet file, or has values of other types than the table's."""


class TableFileGone(Failed):
    """A file that the table's log names does not exist any more. Another attempt reads the log again."""


def _gone(shown: str) -> Exception:
    return TableFileGone(f"{shown} is gone: a vacuum removed it before this task read it")


@dataclass(frozen=True)
class ParquetRows:
    """Some row groups of a file of the table: those whose number, divided by `of`, has the remainder `part`."""

    #: The path of the file in the table.
    path: str
    #: The size of these row groups.
    size_bytes: int
    #: The values of columns that the file does not hold, by column.
    constants: Mapping[str, Any] = field(default_factory=dict)
    #: The number of this part of the file, from 0.
    part: int = 0
    #: The number of parts into which the file is cut.
    of: int = 1


def read_tasks(files: Sequence[ParquetRows], task_bytes: int = TASK_BYTES) -> list[list[ParquetRows]]:
    """Cut the files and pack them into tasks of about `task_bytes` (pure).

    >>> [[(one.path, one.part) for one in task] for task in read_tasks(
    ...     [ParquetRows("a", 3), ParquetRows("b", 4), ParquetRows("c", 19)], 10)]
    [[('a', 0), ('b', 0)], [('c', 0)], [('c', 1)]]
    """
    cut = [
        ParquetRows(one.path, one.size_bytes // parts, one.constants, part, parts)
        for one in files
        for parts in [max(1, -(-one.size_bytes // task_bytes))]
        for part in range(parts)
    ]
    numbers, filled, number = [], 0, 0
    for one in cut:
        if filled and filled + one.size_bytes > task_bytes:
            number, filled = number + 1, 0
        filled += max(one.size_bytes, 1)
        numbers.append(number)
    pairs = zip(numbers, cut, strict=True)
    return [[one for _, one in some] for _, some in groupby(pairs, key=lambda pair: pair[0])]


class ParquetReader(DataSourceReader):
    """Reads the files in the table at `url`. `options` are fsspec's, with secrets resolved; `guard` checks local files.

    `gone` makes the error for a missing file from its path or URL.
    """

    def __init__(
        self,
        url: str,
        options: dict[str, Any],
        columns: "StructType",
        tasks: Sequence[Sequence[ParquetRows]],
        guard: FileGuard | None = None,
        gone: Callable[[str], Exception] = _gone,
    ) -> None:
        self.url = url
        self.options = options
        self.columns = columns
        self.tasks = tasks
        self.guard = guard
        self.gone = gone

    def partitions(self) -> list[InputPartition]:
        """Return one partition for each task of `read_tasks`."""
        return [InputPartition(task) for task in self.tasks]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Yield the rows of a task.

        Raises `TableFileUnfit`, the error of `gone`, `AccessRefused`, and for an object store `NoBucket`,
        `NoPermission` and `StoreAway`.
        """
        from pyspark.sql.pandas.types import to_arrow_schema

        arrow, place = to_arrow_schema(self.columns, timezone="UTC"), Place(self.url, self.options)
        for one in partition.value or ():
            shown = place.shown(one.path)
            try:
                with store_errors(place), self._opened(place, one.path) as file:
                    yield from rows_of_file(file, one, arrow, shown)
            except FileNotFoundError:
                raise self.gone(shown) from None

    @contextmanager
    def _opened(self, place: Place, path: str) -> Iterator[IO[bytes]]:
        if self.guard is None:
            with place.files.open(f"{place.path}/{path}", "rb", block_size=BLOCK_BYTES) as file:
                yield file
            return
        named = place.shown(path)
        # Without blocking: opening a named pipe would wait for a writer.
        descriptor = os.open(named, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:  # noqa: PTH123  it is open already
            self.guard.check_opened(descriptor, named)
            yield file


def rows_of_file(file: IO[bytes], one: ParquetRows, schema: "pa.Schema", shown: str) -> "Iterator[pa.RecordBatch]":
    """Yield the rows of a Parquet file, or of a part of it, with the columns `schema`. Raises `TableFileUnfit`."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        found = parquet.ParquetFile(file, coerce_int96_timestamp_unit="us")
        groups = [number for number in range(found.num_row_groups) if number % one.of == one.part]
        held = {name.lower(): name for name in found.schema_arrow.names}
        names = {each.name: held.get(each.name.lower()) for each in schema if each.name not in one.constants}
        # With no column at all, a batch would not say how many rows it has.
        wanted: list[str] | None = [name for name in names.values() if name is not None] or [*held.values()][:1]
        if any("." in name for name in wanted or ()):
            wanted = None  # a dot would name a field of a struct
        for batch in found.iter_batches(PORTION_ROWS, row_groups=groups, columns=wanted):
            yield _fitted(batch, names, one.constants, schema, shown)
    except pa.ArrowException as error:
        raise TableFileUnfit(f"{shown} is not a whole Parquet file: {str(error).partition(chr(10))[0]}") from None


def _fitted(
    batch: "pa.RecordBatch",
    names: Mapping[str, str | None],
    constants: Mapping[str, Any],
    schema: "pa.Schema",
    shown: str,
) -> "pa.RecordBatch":
    """Convert the rows to the columns of `schema`; `names` are their names in the file. Raises `TableFileUnfit`."""
    import pyarrow as pa

    arrays = []
    for each in schema:
        held = names.get(each.name)
        try:
            if each.name in constants:
                arrays.append(pa.repeat(constant(constants[each.name], each.type), batch.num_rows))
            elif held is None:
                arrays.append(pa.nulls(batch.num_rows, each.type))
            else:
                column = batch.column(held)
                arrays.append(column if column.type == each.type else column.cast(each.type))
        except (pa.ArrowException, ValueError) as error:
            why = str(error).partition("\n")[0]
            raise TableFileUnfit(f"{shown}: the column {each.name} has a value that is no {each.type}: {why}") from None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def constant(value: Any, kind: "pa.DataType") -> "pa.Scalar":
    """Return a value as a scalar of the type `kind`. Text is parsed as in Delta's log, where empty text is a null."""
    import pyarrow as pa

    if value is None or value == "":
        return pa.scalar(None, kind)
    if not isinstance(value, str) or pa.types.is_string(kind):
        return pa.scalar(value, kind)
    if pa.types.is_timestamp(kind):
        moment = datetime.fromisoformat(value)
        return pa.scalar(moment.replace(tzinfo=UTC) if kind.tz and moment.tzinfo is None else moment, kind)
    return pa.scalar(value).cast(kind)


def load_parquet(
    spark: "SparkSession",
    place: Place,
    columns: "StructType",
    files: Sequence[ParquetRows],
    guard: FileGuard | None = None,
    gone: Callable[[str], Exception] = _gone,
) -> "DataFrame":
    """Return the rows of the files of the table in `place`, with the given columns. A column that a file lacks is null.

    `guard` checks each local file after it is opened; `gone` makes the error for a missing file, from its path or URL.
    """
    if not files:
        return spark.createDataFrame([], columns)
    url, options, tasks = place.path if place.is_local else place.url, place.options, read_tasks(files)
    format_name = f"rota_parquet_{next(_numbers)}"  # the DataFrames of a join need formats with different names

    # Defined here, so that Spark's processes get the options with the class. Options of a read would be visible in its
    # plan.
    class TableRows(DataSource):
        @classmethod
        def name(cls) -> str:
            return format_name

        def schema(self) -> "StructType":
            return columns

        def reader(self, schema: "StructType") -> ParquetReader:
            return ParquetReader(url, options, columns, tasks, guard, gone)

    spark.dataSource.register(TableRows)
    return spark.read.format(format_name).load()
