"""Reads a batch of files with Spark: with one schema, and without losing a row silently.

A column that a file has and the table does not, or a header in another order, raises `SchemaDrift`. A row that does not
fit the columns raises `MalformedRows`, or is marked with its text. Both name the file.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_tasks.files import layouts
from spark_tasks.files.faults import BadFile, SchemaDrift, first_line
from spark_tasks.files.form import Form, options
from spark_tasks.files.listing import Source
from spark_tasks.files.staging import for_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType

CORRUPT = "_rota_malformed"
"""The column into which Spark puts the text of a row that it cannot read."""

_BAD_NAME = re.compile(r"[ ,;{}()\n\t=]")


def infer(spark: "SparkSession", form: Form, places: Sequence[Path]) -> "StructType":
    """The columns that Spark infers from CSV or JSON files, in one pass over them."""
    reader = _reader(spark, form).options(mode="DROPMALFORMED", inferSchema=True)
    return reader.load([for_spark(place) for place in places]).schema


def settle(
    spark: "SparkSession",
    form: Form,
    table_json: str | None,
    places: Mapping[Path, Source],
    partition_by: Sequence[str] = (),
) -> "StructType":
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
    if missing := [name for name in partition_by if name not in schema.fieldNames()]:
        raise SchemaDrift(f"`partition_by` names {', '.join(missing)}, and the columns are ({_shape(schema)})")
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
    """The rows of the files. If `marks(form)`, they are `marked`; else reading a row that does not fit is an error."""
    if form.format in layouts.KINDS:
        found = layouts.layouts(spark, form.format, places)
        return layouts.frame(spark, form.format, schema, found, places)
    if marks(form):
        return marked(spark, form, schema, places)
    return _reader(spark, form).schema(schema).option("mode", "FAILFAST").load(_paths(places))


def marks(form: Form) -> bool:
    """Whether rows that do not fit are marked.

    Spark reads TBL as lines, of which it says nothing. It is faster at CSV and JSON if it need not mark rows.
    """
    return form.format == "tbl" or (form.is_text and form.malformed == "quarantine")


def marked(spark: "SparkSession", form: Form, schema: "StructType", places: Mapping[Path, Source]) -> "DataFrame":
    """The rows of text files, with the additional column `CORRUPT`: the text of a row that does not fit, else null."""
    from pyspark.sql.types import StringType, StructType

    wider = StructType([*schema.fields]).add(CORRUPT, StringType())
    if form.format == "tbl":
        return _tbl(spark, form, wider, places)
    reader = _reader(spark, form).schema(wider).option("mode", "PERMISSIVE")
    return reader.option("columnNameOfCorruptRecord", CORRUPT).load(_paths(places))


def _reader(spark: "SparkSession", form: Form) -> "DataFrameReader":
    if form.encoding == "windows-1252":
        # Spark 4 reads six encodings unless it is told that any of Java's will do.
        spark.conf.set("spark.sql.legacy.javaCharsets", "true")
    reader = spark.read.format(form.format).options(**options(form))
    return reader.option("enforceSchema", False) if form.format == "csv" else reader


def _paths(places: Iterable[Path]) -> list[str]:
    return [for_spark(place) for place in places]


def _tbl(spark: "SparkSession", form: Form, wider: "StructType", places: Mapping[Path, Source]) -> "DataFrame":
    """The rows of files in which the delimiter also ends each line: Spark's CSV reader has no word for that."""
    from pyspark.sql import functions as f

    # This rule would parse each line once for each column.
    spark.conf.set("spark.sql.optimizer.enableCsvExpressionOptimization", "false")
    line, end = f.col("value"), f.lit(form.between)
    fields = line.substr(f.lit(1), f.length(line) - len(form.between))
    ddl = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in wider.fields)
    chosen = {name: str(value) for name, value in options(form).items()}
    chosen |= {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    rows = spark.read.text(_paths(places)).filter(f.length(f.trim(line)) > 0)
    rows = rows.select(line, f.endswith(line, end).alias("ended"), f.from_csv(fields, ddl, chosen).alias("row"))
    fits = f.col("ended") & f.col(f"row.{CORRUPT}").isNull()
    return rows.select(
        *(f.col(f"row.`{field.name}`").alias(field.name) for field in wider.fields[:-1]),
        f.when(~fits, line).alias(CORRUPT),
    )


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
