"""Merges a batch into a Delta table by its keys: rewrites the files that hold one of the keys, with the batch.

The merge is made for one version of the table, and is not visible until it is committed to that version. deltalake's
own `merge` is not used, because its file names do not contain the attempt, so that a sweep could not find the files of
a killed attempt, and because its files are not synced to the disk before the log names them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Final

from spark_tasks.contracts.sink import SinkUnfit
from spark_tasks.delta.batch_columns import chosen
from spark_tasks.sql.names import quoted
from spark_tasks.table.live_files import LiveFile
from spark_tasks.table.parquet_files import ParquetRows, load_parquet
from spark_tasks.table.part import Part

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from spark_tasks.table.ledger import Mark
    from spark_tasks.table.writing import Write
    from tasks.places.place import Place

_FILE: Final = "_rota_file"
_DEAD: Final = "_rota_dead"
_COUNT: Final = "_rota_count"

FILE_BYTES: Final = 64 << 20
"""About the size of the files that a merge writes."""

_BOUNDED: Final = ("byte", "short", "integer", "long", "string", "date")
"""The types of keys whose bounds can show, without reading a file, that no key is in it: their order is the same
everywhere.
"""


class RowsDiffer(Exception):
    """A merge did not write as many rows as it should have. Nothing was committed."""


@dataclass(frozen=True)
class Merged:
    """The outcome of a merge: the files written, the files they replace, and the numbers of rows put in and deleted."""

    parts: tuple[Part, ...]
    gone: tuple[LiveFile, ...]
    rows: int
    deleted: int


@dataclass(frozen=True)
class KeyedBatch:
    """A batch for a table with keys."""

    #: The rows, which can be read more than once.
    rows: "DataFrame"
    #: The size of the files with these rows.
    size_bytes: int
    #: The columns of the key.
    keys: list[str]
    #: The column that says whether a row deletes its key; None: no column does.
    tombstone: str | None
    #: The table's path or URL, for messages.
    where: str

    def dead(self) -> "Column":
        """Whether a row is a tombstone."""
        from pyspark.sql import functions as f

        if self.tombstone is None:
            return f.lit(False)
        column = f.col(quoted(self.tombstone))
        boolean = self.rows.schema[self.tombstone].dataType.typeName() == "boolean"
        return f.coalesce(column, f.lit(False)) if boolean else column.isNotNull()

    def marked(self) -> "DataFrame":
        """Return the keys of all rows, and whether each row is a tombstone."""
        from pyspark.sql import functions as f

        return self.rows.select(*[f.col(quoted(key)) for key in self.keys], self.dead().alias(_DEAD))

    def look(self) -> "KeyFacts":
        """Count the rows and find the bounds of the keys. Raises `SinkUnfit` for a null or duplicate key."""
        from pyspark.sql import functions as f

        schema = self.rows.schema
        bounded = [key for key in self.keys if schema[key].dataType.typeName() in _BOUNDED]
        columns = [f.col(quoted(key)) for key in self.keys]
        null = columns[0].isNull()
        for column in columns[1:]:
            null = null | column.isNull()
        lows = [f.min(quoted(key)) for key in bounded]
        highs = [f.max(quoted(key)) for key in bounded]
        found = self.rows.agg(f.count(f.lit(1)), f.count_if(self.dead()), f.count_if(null), *lows, *highs).collect()[0]
        rows, dead, nameless = found[:3]
        if nameless:
            raise SinkUnfit(f"{self.where}: {nameless} rows of a batch have a null in their keys")
        twice = self.rows.groupBy(*columns).agg(f.count(f.lit(1)).alias(_COUNT)).filter(f"{_COUNT} > 1").limit(1)
        for *key, count in twice.collect():
            named = ", ".join(map(str, key))
            raise SinkUnfit(
                f"{self.where}: one batch has {count} rows with the keys {named}; make them one in `transform`"
            )
        bounds = found[3:]
        half = len(bounded)
        return KeyFacts(
            rows - dead, dict(zip(bounded, bounds[:half], strict=True)), dict(zip(bounded, bounds[half:], strict=True))
        )


@dataclass(frozen=True)
class KeyFacts:
    """The number of rows of a batch that are not tombstones, and the bounds of its keys."""

    rows: int
    lowest: Mapping[str, Any]
    highest: Mapping[str, Any]

    def may_be_in(self, file: LiveFile) -> bool:
        """Whether a key of the batch may be in the file, by its statistics and its partition."""
        return all(_meet(self.lowest[key], self.highest[key], file, key) for key in self.lowest)


def _meet(low: Any, high: Any, file: LiveFile, key: str) -> bool:
    at = file.partition.get(key)
    file_low, file_high = (file.lowest.get(key), file.highest.get(key)) if at is None else (at, at)
    if low is None or not isinstance(file_low, int | str | date) or not isinstance(file_high, type(file_low)):
        return True
    return bool(file_low <= high and low <= file_high)


def merged(
    batch: KeyedBatch, columns: "StructType", place: "Place", live: Sequence[LiveFile], write: "Write", mark: "Mark"
) -> Merged:
    """Write the batch's rows, together with the other rows of those files of `live` (in `place`) that hold one of its
    keys.

    Raises `SinkUnfit` for null or duplicate keys, `RowsDiffer`, and Spark's errors.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import LongType, StructType

    spark, keys = batch.rows.sparkSession, batch.keys
    facts = batch.look()
    maybe = [file for file in live if facts.may_be_in(file)]
    marked = batch.marked()
    numbered = [
        ParquetRows(file.path, file.size_bytes, {**file.partition, _FILE: number}) for number, file in enumerate(maybe)
    ]
    theirs = load_parquet(spark, place, StructType([columns[key] for key in keys]).add(_FILE, LongType()), numbered)
    hits = theirs.join(marked, keys, "left").groupBy(_FILE)
    counted = hits.agg(f.count(f.lit(1)), f.count(_DEAD), f.count_if(_DEAD)).collect()
    found = sorted((number, rows, hit, dead) for number, rows, hit, dead in counted if hit)
    gone = tuple(maybe[number] for number, _, _, _ in found)
    stay = sum(rows - hit for _, rows, hit, _ in found)
    names = columns.fieldNames()
    rest = load_parquet(
        spark, place, columns, [ParquetRows(file.path, file.size_bytes, file.partition) for file in gone]
    )
    rest = rest.join(marked.select(*map(quoted, keys)), keys, "left_anti")
    alive = batch.rows.filter(~batch.dead())
    out = chosen(rest, names).unionByName(chosen(alive, names))
    size_bytes = batch.size_bytes + sum(file.size_bytes for file in gone)
    parts = write(out.coalesce(1 + size_bytes // FILE_BYTES), mark)
    if (there := sum(part.rows for part in parts)) != stay + facts.rows:
        raise RowsDiffer(f"{batch.where}: a merge wrote {there} rows instead of {stay + facts.rows}")
    return Merged(parts, gone, facts.rows, sum(dead for _, _, _, dead in found))
