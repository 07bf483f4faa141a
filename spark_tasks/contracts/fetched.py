"""Fetches the rows of a batch from Spark to the driver's disk, so that the driver can write them in bounded memory.

If the executors are on this machine, Spark writes the rows as Parquet, in parallel. Executors on other machines cannot
see the driver's disk, so the driver fetches one of Spark's partitions after another, and holds one in memory.
"""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_tasks.contracts.sink import SinkUnfit

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

ROWS_A_STEP: Final = 10_000
"""The number of rows that are in memory at once, as Python's values."""

_PLAIN: Final = frozenset(
    "boolean byte tinyint short smallint integer int long bigint float double decimal string char varchar binary date "
    "timestamp timestamp_ntz array map struct".split()
)
"""The Spark types that Parquet and Arrow have, too. Values of all others (intervals, variants) are converted
to text.
"""


@dataclass(frozen=True)
class FetchedRows:
    """Rows in Parquet files in `folder`; `names` are their column names."""

    names: tuple[str, ...]
    folder: Path

    def schema(self) -> "pa.Schema":
        """Return the columns and their types."""
        import pyarrow as pa
        from pyarrow import parquet

        stored = parquet.read_schema(self._files()[0])
        return pa.schema([field.with_name(name) for field, name in zip(stored, self.names, strict=True)])

    def batches(self) -> "Iterator[pa.RecordBatch]":
        """Yield the rows, in the order of Spark's partitions."""
        for part in self.parts():
            yield from part

    def parts(self) -> "list[Iterator[pa.RecordBatch]]":
        """Return one iterator over the rows of each of Spark's partitions. Several may be read at once."""
        schema = self.schema()
        return [_batches(path, schema) for path in self._files()]

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("*.parquet"))

    def remove(self) -> None:
        """Remove the files."""
        shutil.rmtree(self.folder)


def _batches(path: Path, schema: "pa.Schema") -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(ROWS_A_STEP):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def numbered(rows: "DataFrame") -> "DataFrame":
    """Rename the columns to c0, c1, ..., because Spark takes names that differ only in case for the same name."""
    return rows.toDF(*[f"c{number}" for number in range(len(rows.columns))])


def fetch(rows: "DataFrame", folder: Path, local: bool) -> FetchedRows:
    """Write the rows to `folder`, replacing its files. `local`: the executors see the folder, too."""
    from pyspark.sql import functions as f

    names = tuple(rows.columns)
    fields = rows.schema.fields
    plain = numbered(rows).select(
        *[
            f.col(f"c{number}") if field.dataType.typeName() in _PLAIN else f.col(f"c{number}").cast("string")
            for number, field in enumerate(fields)
        ]
    )
    plain = numbered(plain)
    if local:
        plain.write.mode("overwrite").parquet(str(folder))
    else:
        folder.mkdir(parents=True, exist_ok=True)
        _ask_for(plain, folder / "rows.parquet")
    return FetchedRows(names, folder)


def _ask_for(rows: "DataFrame", path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    schema = rows.limit(0).toArrow().schema
    found = iter(rows.toLocalIterator())
    with parquet.ParquetWriter(path, schema) as writer:
        while step := list(islice(found, ROWS_A_STEP)):
            columns = [
                pa.array([_arrows(row[number], field.type) for row in step], field.type)
                for number, field in enumerate(schema)
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))


def _arrows(value: Any, kind: "pa.DataType") -> Any:
    """Convert a value of a Spark row for Arrow: a map to a list of pairs, and a timestamp to one with a time zone."""
    import pyarrow.types as t

    if value is None:
        return None
    if t.is_map(kind):
        return [(_arrows(key, kind.key_type), _arrows(item, kind.item_type)) for key, item in value.items()]
    if t.is_list(kind):
        return [_arrows(inner, kind.value_type) for inner in value]
    if t.is_struct(kind):
        return tuple(_arrows(inner, field.type) for inner, field in zip(value, kind, strict=True))
    # Spark gives timestamps as naive times in the process's own time zone.
    return value.astimezone(UTC) if t.is_timestamp(kind) and kind.tz is not None else value


def python_values(column: "pa.Array", name: str) -> list[Any]:
    """Return the values of a column. Raises `SinkUnfit` for a time outside the years 1 to 9999."""
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        raise SinkUnfit(
            f"the column {name} has the time {_first_odd(column)}, which is outside the years 1 to 9999 and so cannot "
            "be written as text: make it null, or text of your own, in `transform`"
        ) from None


def _first_odd(times: "pa.Array") -> str:
    """Return the first of the times that is outside the years 1 to 9999."""
    import pyarrow as pa

    for time in times:
        try:
            time.as_py()
        except (OverflowError, ValueError):
            plain = time.cast(pa.timestamp("us")) if pa.types.is_timestamp(time.type) else time
            return str(plain.cast(pa.string()) if not pa.types.is_nested(time.type) else time.type)
    raise AssertionError("times could not be read, and each of them can")


def check_case_distinct(names: Sequence[str]) -> None:
    """Raise `SinkUnfit` if two columns have the same name, ignoring case.

    >>> check_case_distinct(["id", "ID"])
    Traceback (most recent call last):
    spark_tasks.contracts.sink.SinkUnfit: the rows have two columns ID: name them apart in `transform`
    """
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise SinkUnfit(f"the rows have two columns {name}: name them apart in `transform`")
        seen.add(name.lower())
