"""Reads a batch of files with Spark: with one schema, and without losing a row silently.

A column that a file has and the table does not, or a header in another order, raises `SchemaDrift`. A row that does not
fit the columns raises `MalformedRows`, unless the task says to skip such rows. Both name the file.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from spark_tasks.files import layouts
from spark_tasks.files.faults import BadFile, SchemaDrift, first_line
from spark_tasks.files.listing import Source
from spark_tasks.files.staging import for_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

CORRUPT = "_rota_malformed"
"""The column into which Spark puts the text of a row that it cannot read."""

_BAD_NAME = re.compile(r"[ ,;{}()\n\t=]")


class Form(BaseModel):
    """The format of the files."""

    model_config = ConfigDict(extra="forbid")

    format: Literal["csv", "json", "parquet", "avro"] = Field(
        description="The files' format; json: one object in each line, unless `multiline`. CSV and JSON may be "
        "compressed, by gzip (`.gz`) or zstd (`.zst`)"
    )
    header: bool = Field(default=True, description="CSV: the first line of each file names the columns")
    delimiter: str = Field(default=",", min_length=1, max_length=8, description="CSV: the text between two fields")
    null_value: str = Field(default="", max_length=100, description="CSV: the text that stands for a missing value")
    multiline: bool = Field(default=False, description="CSV: fields may contain line breaks; JSON: a file is one array")
    timestamp_format: str | None = Field(
        default=None, max_length=100, description="The format of timestamps, in Spark's notation; null: ISO 8601"
    )
    columns: str | None = Field(
        default=None,
        max_length=20_000,
        description="The columns and their types as in SQL; null: those of the table, or inferred from the first batch",
        examples=["flight INT, tailnum STRING, time_hour TIMESTAMP"],
    )
    malformed: Literal["fail", "skip"] = Field(
        default="fail",
        description="Whether a row that does not fit the columns fails the run, or is skipped, counted and kept in a "
        "separate file",
    )


def options(form: Form) -> dict[str, Any]:
    """Spark's options for reading files of that format. Quotes in CSV fields are doubled (RFC 4180)."""
    chosen: dict[str, Any] = {"multiLine": form.multiline}
    if form.timestamp_format is not None:
        chosen["timestampFormat"] = form.timestamp_format
    if form.format == "csv":
        chosen |= {"header": form.header, "sep": form.delimiter, "nullValue": form.null_value, "escape": '"'}
    return chosen


def infer(spark: "SparkSession", form: Form, places: Sequence[Path]) -> "StructType":
    """The columns that Spark infers from CSV or JSON files, in one pass over them."""
    reader = spark.read.options(**options(form), mode="DROPMALFORMED", inferSchema=True)
    return reader.format(form.format).load([for_spark(place) for place in places]).schema


def settle(spark: "SparkSession", form: Form, table_json: str | None, places: Mapping[Path, Source]) -> "StructType":
    """The columns to read and write: the table's, else those the task names, else those of the first batch.

    Raises `SchemaDrift` if table and task disagree, or if the columns cannot be inferred or are not valid in Delta;
    `BadFile` for a Parquet or Avro file whose columns cannot be read.
    """
    from pyspark.sql.types import StructType

    named = _named(form.columns)
    if table_json is not None:
        standing = StructType.fromJson(_loads(table_json))
        if named is not None and _shape(named) != _shape(standing):
            raise SchemaDrift(
                f"the table's columns are ({_shape(standing)}), the task's ({_shape(named)}): "
                "change the task's `columns`, or ingest into a new table"
            )
        return standing
    schema = named if named is not None else _found(spark, form, places)
    if not schema.fields:
        raise SchemaDrift("the first files have no rows from which to infer the columns: name them in `columns`")
    for name in schema.fieldNames():
        if _BAD_NAME.search(name):
            raise SchemaDrift(f"a Delta table cannot have a column named {name!r}: rename it in the files")
    return schema


def _found(spark: "SparkSession", form: Form, places: Mapping[Path, Source]) -> "StructType":
    if form.format in layouts.KINDS:
        return layouts.as_columns(layouts.layouts(spark, form.format, places)[0].columns)
    return infer(spark, form, list(places))


def _named(columns: str | None) -> "StructType | None":
    if columns is None:
        return None
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        named = StructType.fromDDL(columns)
    except PySparkException as error:
        raise SchemaDrift(f"`columns` is not a list of columns as in SQL: {first_line(str(error))}") from None
    if not isinstance(named, StructType):
        raise SchemaDrift("`columns` is one type, not a list of columns as in SQL")
    return named


def _shape(schema: "StructType") -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)


def _loads(text: str) -> dict[str, Any]:
    import json

    value: dict[str, Any] = json.loads(text)
    return value


def frame(spark: "SparkSession", form: Form, schema: "StructType", places: Mapping[Path, Source]) -> "DataFrame":
    """The rows of the files. If `finds_malformed(form)`, they have the additional column `CORRUPT`."""
    if form.format in layouts.KINDS:
        found = layouts.layouts(spark, form.format, places)
        return layouts.frame(spark, form.format, schema, found, places)
    from pyspark.sql.types import StringType, StructType

    reader = spark.read.options(**options(form))
    if form.format == "csv":
        reader = reader.option("enforceSchema", False)
    if finds_malformed(form):
        wider = StructType([*schema.fields]).add(CORRUPT, StringType())
        reader = reader.schema(wider).option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", CORRUPT)
    else:
        reader = reader.schema(schema).option("mode", "FAILFAST")
    return reader.format(form.format).load([for_spark(place) for place in places])


def finds_malformed(form: Form) -> bool:
    """Whether rows that do not fit are marked. Parquet and Avro have none: their types are those of whole files."""
    return form.malformed == "skip" and form.format in ("csv", "json")


def check_fields(spark: "SparkSession", form: Form, schema: "StructType", places: Mapping[Path, Source]) -> None:
    """Raise `BadFile` if a JSON file has a field that the table does not have: Spark would silently drop it."""
    if form.format != "json":
        return
    known = set(field_paths(schema.jsonValue()))
    if set(field_paths(infer(spark, form, list(places)).jsonValue())) <= known:
        return
    for place, source in places.items():
        extra = sorted(set(field_paths(infer(spark, form, [place]).jsonValue())) - known)
        if extra:
            why = SchemaDrift(f"{source.path} has fields that the table does not have: {', '.join(extra)}")
            raise BadFile(source.path, why)


def field_paths(schema: Any, within: str = "") -> Iterator[str]:
    """The dotted names of all fields of a schema (in Spark's and Delta's JSON form), including nested ones.

    >>> list(field_paths({"type": "struct", "fields": [{"name": "a", "type": "long"}]}))
    ['a']
    """
    if not isinstance(schema, dict):
        return
    for field in schema.get("fields", ()):
        yield within + field["name"]
        yield from field_paths(field["type"], f"{within}{field['name']}.")
    for inner in ("elementType", "valueType"):
        yield from field_paths(schema.get(inner), within)
