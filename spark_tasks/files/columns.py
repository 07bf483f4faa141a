"""Determines a table's columns (its own, the task's or those of the first files), and how new files change them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from spark_tasks.files.evolving import check_name, evolved
from spark_tasks.files.faults import SchemaDrift, first_line
from spark_tasks.files.form import Form
from spark_tasks.files.layouts import RESCUED, Layout, as_columns, check_fits
from spark_tasks.files.listing import Source
from spark_tasks.files.opening import header_of
from spark_tasks.files.reading import infer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


def table_columns(
    spark: "SparkSession",
    form: Form,
    table_json: str | None,
    places: Mapping[Path, Source],
    partition_by: Sequence[str],
    found: Sequence[Layout] | None,
) -> "StructType":
    """Return the table's own columns if it exists, else those that the task names, else those of the first batch.

    `found` are the layouts of the batch's files, to which `evolve` adapts the columns afterwards.

    Raises `SchemaDrift` if table and task disagree, or if the columns cannot be inferred or are not valid in Delta;
    `BadFile` for a Parquet or Avro file whose columns cannot be read.
    """
    named = _named(form.columns)
    if table_json is not None:
        standing = loads_columns(table_json)
        if named is not None and not form.by_name and _shape(named) != _shape(standing):
            raise SchemaDrift(
                f"the table's columns are ({_shape(standing)}), the task's ({_shape(named)}): "
                "change the task's `columns`, or ingest into a new table"
            )
        return standing
    schema = named if named is not None else _first(spark, form, places, found)
    if not schema.fields:
        raise SchemaDrift("the first files have no rows from which to infer the columns: name them in `columns`")
    if missing := [name for name in partition_by if name not in schema.fieldNames()]:
        raise SchemaDrift(f"`partition_by` names {', '.join(missing)}, and the columns are ({_shape(schema)})")
    for name in schema.fieldNames():
        if wrong := check_name(name):
            raise SchemaDrift(wrong)
    return schema


def _first(
    spark: "SparkSession", form: Form, places: Mapping[Path, Source], found: Sequence[Layout] | None
) -> "StructType":
    """Return the columns of a new table, from the files of the first batch."""
    if form.format == "csv" and form.header:
        for place, source in places.items():
            header_of(form, place, source)  # raises for a duplicate name, because Spark would rename the column
    if found is None:
        return infer(spark, form, places)
    if form.format == "csv":
        named = next((layout for layout in found if layout.columns.fields), found[0])
        return infer(spark, form, {place: places[place] for place in named.places})
    return as_columns(found[0].columns)


def evolve(
    schema: "StructType", form: Form, places: Mapping[Path, Source], found: Sequence[Layout] | None
) -> "StructType":
    """Return the columns that the table has after files with the layouts `found` are added. Raises `BadFile`."""
    if found is None:
        return schema
    for layout in found:
        source = places[layout.places[0]]
        if not form.by_name:
            check_fits(layout.columns, schema, source)
        elif layout.columns.fields:
            schema = evolved(schema, layout.columns, form, source)
    if form.rescue and RESCUED not in schema.fieldNames():
        from pyspark.sql.types import StringType, StructType

        schema = StructType([*schema.fields]).add(RESCUED, StringType())
    return schema


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
    names = [name.lower() for name in named.fieldNames()]
    if twice := [name for name in named.fieldNames() if names.count(name.lower()) > 1]:
        raise SchemaDrift(f"`columns` has {' and '.join(twice)}, which are one name to Spark: it ignores case")
    return named


def _shape(schema: "StructType") -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)


def loads_columns(text: str) -> "StructType":
    """Parse columns in the JSON form that Spark and Delta share."""
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(text))
