"""Which columns of a Parquet file Spark reads correctly, and how the other columns are converted or refused.

Spark 4 has no nanoseconds. Timestamps in nanoseconds are read as numbers, and become times if they are whole
microseconds. Spark would truncate timestamps in the older form INT96 to microseconds, so they are checked here first.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_tasks.files.faults import CUT
from spark_tasks.sql.names import quoted

if TYPE_CHECKING:
    from pyarrow import DataType as ArrowType
    from pyarrow import Schema
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

_DIGITS_MAX: Final = 38

_SPARK: Final = b"org.apache.spark.version"
"""The key under which Spark leaves its version in a Parquet file."""


def wrong_columns(schema: "Schema") -> str | None:
    """Return the reason why a table cannot have the columns of a file; None if it can. Pure.

    The reason names the column: Spark names neither the file nor, in most of these cases, the column.
    """
    return next(_wrong(list(schema.names), [field.type for field in schema], ""), None)


def _wrong(names: list[str], kinds: "list[ArrowType]", within: str) -> Iterator[str]:
    known: dict[str, str] = {}
    for name in names:
        if name.lower() in known:
            yield (
                f"it has the columns {within}{known[name.lower()]} and {within}{name}, which are one name to Spark and "
                "Delta: rename one"
            )
        known[name.lower()] = name
    for name, kind in zip(names, kinds, strict=True):
        yield from _wrong_type(within + name, kind)


def _wrong_type(name: str, kind: "ArrowType") -> Iterator[str]:
    from pyarrow import types

    said = f"its column {name} is of the type {kind}"
    if types.is_struct(kind):
        fields = [kind.field(number) for number in range(kind.num_fields)]
        yield from _wrong([field.name for field in fields], [field.type for field in fields], f"{name}.")
    elif types.is_map(kind):
        yield from _wrong_type(f"{name}.key", kind.key_type)
        yield from _wrong_type(f"{name}.value", kind.item_type)
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        yield from _wrong_type(f"{name}.element", kind.value_type)
    elif types.is_decimal(kind) and kind.precision > _DIGITS_MAX:
        yield f"{said}: a table has decimals of at most {_DIGITS_MAX} digits, write it as such a one or as text"
    elif types.is_time(kind):
        yield f"{said}: a table has no times of day, write it as text or as a number"
    elif types.is_float16(kind):
        yield f"{said}, which Spark does not read: write it as a float"
    elif types.is_duration(kind):
        yield f"{said}: a table has no durations, write it as a number whose name says the unit"
    elif getattr(kind, "extension_name", None) == "arrow.uuid":
        yield f"{said}, which Spark does not read: write it as text"


def cut_int96(place: Path, schema: "Schema") -> str | None:
    """Return the error for an INT96 timestamp that Spark would truncate to microseconds; None if there is no such
    timestamp.

    Files that Spark wrote have no such timestamps, and are not read.
    """
    from pyarrow import parquet

    metadata = parquet.read_metadata(place)
    columns = [metadata.schema.column(number) for number in range(metadata.num_columns)]
    names = [column.path for column in columns if column.physical_type == "INT96"]
    if not names or _SPARK in (schema.metadata or {}):
        return None
    for name in names:
        if (value := _first_cut(place, name)) is not None:
            return f"its column {name} has {value}, and a table has 6 digits of a second: write it so"
    return None


def _first_cut(place: Path, name: str) -> str | None:
    from pyarrow import compute, int64, parquet

    # Nanoseconds since 1970 fit into 64 bits from 1677 to 2262 only. Outside of that, both numbers wrap around modulo
    # 2**64, and their difference is still right.
    fine = parquet.ParquetFile(place, coerce_int96_timestamp_unit="ns")
    whole = parquet.ParquetFile(place, coerce_int96_timestamp_unit="us")
    for one, other in zip(fine.iter_batches(columns=[name]), whole.iter_batches(columns=[name]), strict=True):
        nanos = _leaf(one.column(0)).cast(int64())
        micros = _leaf(other.column(0)).cast(int64())
        rest = compute.subtract(nanos, compute.multiply(micros, 1000))
        cut = compute.not_equal(rest, 0)
        if compute.any(cut).as_py():
            return f"a timestamp that ends in {compute.filter(rest, cut)[0].as_py()} ns"
    return None


def _leaf(values: Any) -> Any:
    """Return the innermost values of a column, of which only one field was read."""
    from pyarrow import types

    while types.is_nested(values.type):
        values = values.field(0) if types.is_struct(values.type) else values.flatten()
    return values


def as_times(columns: "StructType", schema: "Schema") -> "StructType":
    """Return the columns that Spark reads, with timestamps in place of the numbers that are nanoseconds."""
    from pyspark.sql.types import StructField, StructType

    return StructType(
        [StructField(field.name, _as_time(field.dataType, schema.field(field.name).type)) for field in columns.fields]
    )


def _as_time(read: "DataType", written: "ArrowType") -> "DataType":
    from pyarrow import types
    from pyspark.sql import types as t

    match read:
        case t.LongType() if types.is_timestamp(written):
            return t.TimestampType()
        case t.ArrayType():
            return t.ArrayType(_as_time(read.elementType, written.value_type))
        case t.MapType():
            return t.MapType(_as_time(read.keyType, written.key_type), _as_time(read.valueType, written.item_type))
        case t.StructType():
            fields = [(field, written.field(field.name).type) for field in read.fields]
            return t.StructType([t.StructField(field.name, _as_time(field.dataType, kind)) for field, kind in fields])
    return read


def in_micros(rows: "DataFrame", read: "StructType", columns: "StructType") -> "DataFrame":
    """Convert rows that were read with the columns `read` to `columns`. The Spark job fails at a timestamp that would
    be truncated.
    """
    from pyspark.sql import functions as f

    if read == columns:
        return rows
    chosen = []
    for before, after in zip(read.fields, columns.fields, strict=True):
        value = f.col(quoted(before.name))
        if before.dataType != after.dataType:
            value = _in_micros(value, before.dataType, after.dataType, before.name)
        chosen.append(value.alias(after.name))
    return rows.select(*chosen)


def _in_micros(value: "Column", read: "DataType", kind: "DataType", name: str) -> "Column":
    from pyspark.sql import functions as f
    from pyspark.sql import types as t

    match read, kind:
        case t.LongType(), t.TimestampType():
            said = [f.lit(f"{CUT} reading file "), f.input_file_name(), f.lit(f" column {name} value "), value]
            cut = f.raise_error(f.concat(*(one.cast("string") for one in said))).cast("timestamp")
            micros = f.call_function("div", value, f.lit(1000))  # an integer division: `/` would divide floats
            return f.when(value % 1000 == 0, f.timestamp_micros(micros)).when(value.isNotNull(), cut)
        case t.ArrayType(), t.ArrayType():
            return f.transform(value, lambda one: _in_micros(one, read.elementType, kind.elementType, name))
        case t.MapType(), t.MapType():
            return f.transform_values(value, lambda _, one: _in_micros(one, read.valueType, kind.valueType, name))
        case t.StructType(), t.StructType():
            fields = [
                _in_micros(value.getField(one.name), one.dataType, other.dataType, f"{name}.{one.name}").alias(one.name)
                for one, other in zip(read.fields, kind.fields, strict=True)
            ]
            return f.when(value.isNotNull(), f.struct(*fields))
    return value


def read_nanos_as_numbers(spark: "SparkSession") -> None:
    """Set the session to read nanoseconds as numbers, because it refuses them otherwise."""
    spark.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
