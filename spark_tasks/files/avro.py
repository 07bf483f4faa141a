"""Reads Avro files on Spark's executors, as a Python data source: pyspark comes without a reader for them.

Each file is read by one task, in portions of `PORTION_ROWS`, which reach Spark as Arrow.
"""

import json
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import types as t
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame, SparkSession

NAME: Final = "rota_avro"

PORTION_ROWS: Final = 8192

_DIGITS_MAX: Final = 38
"""The most digits that a decimal column of a table can have."""

_DAMAGES: Final = (
    ValueError,
    EOFError,
    KeyError,
    IndexError,
    TypeError,
    OSError,
    OverflowError,
    struct.error,
    zlib.error,
)
"""The errors that fastavro raises for a damaged file."""


class AvroUnreadable(Exception):
    """An Avro file is damaged, or has a type that no column can have."""


_PRIMITIVES: Final[Mapping[str, t.DataType]] = {
    "boolean": t.BooleanType(),
    "int": t.IntegerType(),
    "long": t.LongType(),
    "float": t.FloatType(),
    "double": t.DoubleType(),
    "bytes": t.BinaryType(),
    "string": t.StringType(),
    "enum": t.StringType(),
    "fixed": t.BinaryType(),
}
_LOGICAL: Final[Mapping[str, t.DataType]] = {
    "date": t.DateType(),
    "timestamp-millis": t.TimestampType(),
    "timestamp-micros": t.TimestampType(),
    "local-timestamp-millis": t.TimestampType(),
    "local-timestamp-micros": t.TimestampType(),
    "uuid": t.StringType(),
}


def columns_as_written(place: Path) -> t.StructType:
    """Return the columns of an Avro file, by the schema that it was written with. Raises `AvroUnreadable`."""
    import fastavro

    try:
        with place.open("rb") as file:
            found = fastavro.reader(file).writer_schema
    except _DAMAGES as error:
        raise AvroUnreadable(f"not a whole Avro file: {str(error) or type(error).__name__}") from None
    columns = spark_type(found, {})
    if not isinstance(columns, t.StructType):
        raise AvroUnreadable("its values are not records")
    return columns


def spark_type(schema: Any, known: dict[str, Any], within: str = "") -> t.DataType:
    """Return the type of a column for an Avro schema. Raises `AvroUnreadable`, which names the field.

    `known` collects the named types, so that later references to them can be resolved.

    >>> spark_type(["null", {"type": "long", "logicalType": "timestamp-micros"}], {}).simpleString()
    'timestamp'
    """
    if isinstance(schema, list):
        return _union(schema, known, within)
    if isinstance(schema, str):
        if schema in _PRIMITIVES:
            return _PRIMITIVES[schema]
        if schema in known:
            return spark_type(known[schema], known, within)
        raise AvroUnreadable(f"the field {within!r} has a type that refers to itself, or to no type: {schema}")
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return spark_type(kind, known, within)
    if (logical := schema.get("logicalType")) is not None:
        if logical == "decimal":
            if schema["precision"] > _DIGITS_MAX:
                raise AvroUnreadable(
                    f"the field {within!r} is a decimal of {schema['precision']} digits: a table has {_DIGITS_MAX}"
                )
            return t.DecimalType(schema["precision"], schema.get("scale", 0))
        if logical in _LOGICAL:
            return _LOGICAL[logical]
        raise AvroUnreadable(f"the field {within!r} is of the type {logical}, which no column can have")
    return _complex(kind, schema, known, within)


def _complex(kind: str, schema: Mapping[str, Any], known: dict[str, Any], within: str) -> t.DataType:
    if kind == "array":
        return t.ArrayType(spark_type(schema["items"], known, within))
    if kind == "map":
        return t.MapType(t.StringType(), spark_type(schema["values"], known, within))
    if kind == "record":
        dotted = f"{within}." if within else ""
        names = [field["name"].lower() for field in schema["fields"]]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise AvroUnreadable(f"the fields {dotted}{twice[0]} differ in case only: to Spark and Delta they are one")
        fields = [
            t.StructField(field["name"], spark_type(field["type"], known, dotted + field["name"]))
            for field in schema["fields"]
        ]
        known[schema["name"]] = schema  # only now, so a record that contains itself, which has no end, is refused
        return t.StructType(fields)
    if "name" in schema:
        known[schema["name"]] = schema
    return spark_type(kind, known, within)


def _union(options: Sequence[Any], known: dict[str, Any], within: str) -> t.DataType:
    some = [spark_type(option, known, within) for option in options if option != "null"]
    if len(some) == 1:
        return some[0]
    kinds = {each.simpleString() for each in some}
    if kinds == {"int", "bigint"}:
        return t.LongType()
    if kinds == {"float", "double"}:
        return t.DoubleType()
    raise AvroUnreadable(f"the field {within!r} is a union of several types, which no column can have")


class AvroSource(DataSource):
    """Rows of Avro files. The option `places` is a list of their paths, as JSON; all of them have the given schema."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return NAME

    def reader(self, schema: t.StructType) -> "AvroReader":
        """Return the reader of the files."""
        return AvroReader(schema, json.loads(self.options["places"]))


class AvroReader(DataSourceReader):
    """Reads each file in one task."""

    def __init__(self, schema: t.StructType, places: Sequence[str]) -> None:
        self.schema = schema
        self.places = places

    def partitions(self) -> Sequence[InputPartition]:
        """One partition for each file."""
        return [InputPartition(place) for place in self.places]

    def read(self, partition: InputPartition) -> "Iterator[RecordBatch]":
        """Yield the rows of a file. Raises `AvroUnreadable`."""
        import fastavro
        from pyarrow import ArrowException, RecordBatch
        from pyspark.sql.pandas.types import to_arrow_schema

        # A UUID stays text, as in the file.
        fastavro.read.LOGICAL_READERS["string-uuid"] = lambda value, *_: value
        arrow = to_arrow_schema(self.schema, timezone="UTC")
        place = Path(partition.value)
        try:
            with place.open("rb") as file:
                rows = iter(fastavro.reader(file))
                while portion := list(islice(rows, PORTION_ROWS)):
                    yield RecordBatch.from_pylist(portion, schema=arrow)
        except (*_DAMAGES, ArrowException) as error:
            # The words before the path must be the same as in Spark's own errors, because `file_to_blame` finds the
            # path by them.
            said = str(error) or type(error).__name__
            raise AvroUnreadable(f"Encountered error while reading file {place.as_uri()} {said}") from None


def rows_as_written(spark: "SparkSession", columns: t.StructType, places: Sequence[Path]) -> "DataFrame":
    """Return the rows of the files, which all have these columns."""
    spark.dataSource.register(AvroSource)
    return spark.read.format(NAME).schema(columns).option("places", json.dumps([str(each) for each in places])).load()
