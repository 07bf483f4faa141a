"""Reads files that carry their own schema (Parquet and Avro) with their own columns, and converts them to the table's.

A column may be narrower in a file than in the table (int in bigint). Any other difference is a `SchemaDrift` that names
the file and the column.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_tasks.files import parquet_types
from spark_tasks.files.faults import BadFile, FileDamaged, SchemaDrift, read_failure
from spark_tasks.files.listing import Source
from spark_tasks.files.staging import for_spark
from spark_tasks.spark.causes import cause, is_sparks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

RESCUED: Final = "_rescued"
"""The column that keeps the fields for which the table has no column."""

_SPARKS_OWN: Final = b"org.apache.spark.sql.parquet.row.metadata"
"""The key under which Spark writes the columns, in JSON, into a Parquet file."""

KINDS: Final = ("parquet", "avro")
"""The formats of files that carry their own schema."""


@dataclass(frozen=True)
class Layout:
    """Files with the same columns."""

    columns: "StructType"
    places: tuple[Path, ...]
    read: "StructType | None" = None
    """The columns as Spark is told to read them; None: the same as `columns`."""


def layouts(spark: "SparkSession", kind: str, places: Mapping[Path, Source]) -> list[Layout]:
    """Return the files, grouped by their columns, in the order of each group's first file. Raises `BadFile`."""
    alike: dict[Any, list[Path]] = defaultdict(list)
    for place, source in places.items():
        alike[_key(kind, place, source)].append(place)
    return [_layout(spark, kind, some, places[some[0]]) for some in alike.values()]


def _key(kind: str, place: Path, source: Source) -> Any:
    """Return a key that is equal for files with the same columns. Reads the file's footer or header only."""
    if kind == "avro":
        return _avro_columns(place, source).json()
    from pyarrow import ArrowException, parquet

    try:
        schema = parquet.read_schema(place)
        wrong = unknown_type((schema.metadata or {}).get(_SPARKS_OWN))
        wrong = wrong or parquet_types.wrong_columns(schema) or parquet_types.cut_int96(place, schema)
    except (ArrowException, OSError) as error:
        raise BadFile(source.path, read_failure(source.path, "not a whole Parquet file", error)) from None
    if wrong is not None:
        raise BadFile(source.path, SchemaDrift(f"{source.path}: {wrong}"))
    return schema.remove_metadata().to_string()


def unknown_type(written: bytes | None) -> str | None:
    """Return the error if the JSON columns that Spark wrote into a Parquet file have an unknown type, else None. Pure.

    A user-defined type names a class or module, which Spark would load when it reads the columns.

    >>> unknown_type(b'{"type": "struct", "fields": [{"name": "a", "type": "long"}]}')
    >>> unknown_type(b'{"type": "struct", "fields": [{"name": "a", "type": {"type": "udt", "pyClass": "os.X"}}]}')
    "its columns have a type of kind 'udt': write the file with the types of Spark's SQL"
    """
    if written is None:
        return None
    try:
        waiting = [json.loads(written)]
    except ValueError:
        return "the columns that Spark has written into it are not JSON: write the file again"
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, str):
            continue
        if not isinstance(kind, dict) or kind.get("type") not in ("struct", "array", "map"):
            named = kind.get("type") if isinstance(kind, dict) else kind
            return f"its columns have a type of kind {named!r}: write the file with the types of Spark's SQL"
        fields = kind.get("fields", [])
        waiting += [field.get("type") for field in fields if isinstance(field, dict)]
        waiting += [kind[inner] for inner in ("elementType", "keyType", "valueType") if inner in kind]
    return None


def _layout(spark: "SparkSession", kind: str, places: Sequence[Path], first: Source) -> Layout:
    """Return the layout of files with the same columns; `first` is one of these files. Raises `BadFile`."""
    if kind == "avro":
        return Layout(_avro_columns(places[0], first), tuple(places))
    from pyarrow import parquet

    parquet_types.read_nanos_as_numbers(spark)
    try:
        read = spark.read.parquet(for_spark(places[0])).schema
    except Exception as error:
        if not is_sparks(error):
            raise
        raise BadFile(first.path, SchemaDrift(f"{first.path}: {cause(str(error)).said}")) from None
    return Layout(parquet_types.as_times(read, parquet.read_schema(places[0])), tuple(places), read)


def _avro_columns(place: Path, source: Source) -> "StructType":
    from spark_tasks.files import avro

    try:
        return avro.columns_as_written(place)
    except avro.AvroUnreadable as error:
        raise BadFile(source.path, FileDamaged(f"{source.path}: {error}")) from None


def as_columns(found: "StructType") -> "StructType":
    """Return the columns of a table for files with the columns `found`: all may be null, and times are in UTC."""
    from pyspark.sql import types as t

    def tidy(each: "DataType") -> "DataType":
        if isinstance(each, t.TimestampNTZType):
            return t.TimestampType()
        if isinstance(each, t.StructType):
            return t.StructType([t.StructField(field.name, tidy(field.dataType)) for field in each.fields])
        if isinstance(each, t.ArrayType):
            return t.ArrayType(tidy(each.elementType))
        if isinstance(each, t.MapType):
            return t.MapType(tidy(each.keyType), tidy(each.valueType))
        return each

    tidied = tidy(found)
    assert isinstance(tidied, t.StructType)
    return tidied


def check_fits(found: "StructType", schema: "StructType", source: Source) -> None:
    """Raise `BadFile` unless a file with the columns `found` fits the columns `schema` of the table."""
    theirs = {field.name: field.dataType for field in as_columns(found).fields}
    ours = {field.name: field.dataType for field in schema.fields}
    wrong = [f"lacks the column {name}" for name in ours if name not in theirs]
    wrong += [f"has the column {name}, which the table does not have" for name in theirs if name not in ours]
    wrong += [
        f"has the column {name} as {theirs[name].simpleString()}, which is {each.simpleString()} in the table"
        for name, each in ours.items()
        if name in theirs and not fits(theirs[name], each)
    ]
    if wrong:
        raise BadFile(source.path, SchemaDrift(f"{source.path} " + "; it ".join(wrong)))


_WIDER: Final[Mapping[str, tuple[str, ...]]] = {
    "tinyint": ("smallint", "int", "bigint", "double"),
    "smallint": ("int", "bigint", "double"),
    "int": ("bigint", "double"),
    "float": ("double",),
    "date": ("timestamp",),
}
_DIGITS: Final[Mapping[str, int]] = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}


def fits(found: "DataType", into: "DataType") -> bool:
    """Whether every value of the type `found` is also a value of the type `into`, unchanged."""
    from pyspark.sql.types import DecimalType

    name = found.simpleString()
    if isinstance(into, DecimalType):
        whole = into.precision - into.scale
        if isinstance(found, DecimalType):
            return found.scale <= into.scale and found.precision - found.scale <= whole
        return _DIGITS.get(name, 99) <= whole
    return name == into.simpleString() or into.simpleString() in _WIDER.get(name, ())


def load_layouts(spark: "SparkSession", kind: str, schema: "StructType", found: Sequence[Layout]) -> "DataFrame":
    """Return the rows of all files, with the columns `schema`."""
    return united([fitted(_rows(spark, kind, layout), layout.columns, schema) for layout in found])


def united(parts: "Sequence[DataFrame]") -> "DataFrame":
    """Return the rows of all these DataFrames, which have the same columns."""
    return reduce(lambda one, other: one.unionByName(other), parts)


def fitted(rows: "DataFrame", columns: "StructType", schema: "StructType", *others: str) -> "DataFrame":
    """Convert rows with `columns` to the columns `schema`. The columns `others` of the rows are kept as well.

    A column that the rows lack is null. If `schema` has a column `RESCUED`, it gets, as JSON, the values of the columns
    that `schema` lacks.
    """
    from pyspark.sql import functions as f

    theirs, ours = set(columns.fieldNames()), set(schema.fieldNames())
    rest = [f.col(f"`{name}`") for name in columns.fieldNames() if name not in ours]
    # `to_json` leaves out fields that are null.
    kept = f.nullif(f.to_json(f.struct(*rest)), f.lit("{}")) if rest else f.lit(None)
    chosen = []
    for each in schema.fields:
        value = f.col(f"`{each.name}`") if each.name in theirs else kept if each.name == RESCUED else f.lit(None)
        chosen.append(value.cast(each.dataType).alias(each.name))
    return rows.select(*chosen, *others)


def _rows(spark: "SparkSession", kind: str, layout: Layout) -> "DataFrame":
    if kind == "avro":
        from spark_tasks.files import avro

        return avro.rows_as_written(spark, layout.columns, layout.places)
    read = layout.read or layout.columns
    rows = spark.read.schema(read).parquet(*(for_spark(place) for place in layout.places))
    return parquet_types.in_micros(rows, read, layout.columns)
