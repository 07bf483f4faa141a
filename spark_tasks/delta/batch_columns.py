"""Checks that a batch has the columns of its sink."""

import json
from typing import TYPE_CHECKING, Any

from spark_tasks.contracts.sink import SinkUnfit
from spark_tasks.files.columns import loads_columns
from spark_tasks.files.evolving import check_name
from spark_tasks.sql.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


def _without_metadata(schema: "StructType") -> "StructType":
    """Return the columns without Spark's metadata, all of them nullable."""
    return loads_columns(json.dumps(_plain(json.loads(schema.json()))))


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        name: {} if name == "metadata" else True if name in _NULLABLE else _plain(one) for name, one in value.items()
    }


_NULLABLE = {"nullable", "containsNull", "valueContainsNull"}


def check_columns(standing: "StructType | None", batch: "StructType", where: str) -> "StructType":
    """Return the columns that the sink `where` has after the batch.

    `standing` are its present columns; None if this is the first batch, which sets the columns. Raises `SinkUnfit`,
    which names the columns that differ.
    """
    theirs = _without_metadata(batch)
    if standing is None:
        return theirs
    ours = _without_metadata(standing)
    known, given = ({field.name: field.dataType for field in one.fields} for one in (ours, theirs))
    if more := [name for name in given if name not in known]:
        raise SinkUnfit(f"{where} has no column {', '.join(more)}, which the batch has; it has {', '.join(known)}")
    if missing := [name for name in known if name not in given]:
        raise SinkUnfit(f"the batch lacks the column {', '.join(missing)} of {where}")
    for name, kind in known.items():
        if given[name] != kind:
            raise SinkUnfit(
                f"the column {name} is {kind.simpleString()} in {where}, and {given[name].simpleString()} in the "
                "batch: cast it in `transform`"
            )
    return ours


def check_names(batch: "StructType", where: str) -> None:
    """Raise `SinkUnfit` if the batch has a column name that a Delta table cannot have."""
    if wrong := [name for name in batch.fieldNames() if check_name(name)]:
        raise SinkUnfit(f"{where} cannot have a column named {wrong[0]!r}: rename it in `transform`")


def check_named(wanted: list[str], batch: "StructType") -> None:
    """Raise `SinkUnfit` if the batch lacks a column that the params name."""
    if missing := [name for name in wanted if name not in batch.fieldNames()]:
        raise SinkUnfit(f"the rows lack {', '.join(missing)}; they have {', '.join(batch.fieldNames())}")


def chosen(rows: "DataFrame", names: list[str]) -> "DataFrame":
    """Return the rows with only the columns `names`, in that order."""
    return rows.select(*[quoted(name) for name in names])


def with_full_partitions(rows: "DataFrame", by: list[str], where: str) -> "DataFrame":
    """Return the rows. The Spark job fails at an empty text in a column of `by`, because it would become null as a
    partition value of `where`.
    """
    from pyspark.sql import functions as f

    for name in (each.name for each in rows.schema.fields if each.name in by and each.dataType.typeName() == "string"):
        said = f"{where}, column {name}: an empty text would be null as a partition: give it a name in `transform`"
        value = f.col(quoted(name))
        rows = rows.withColumn(name, f.when(value == "", f.raise_error(f.lit(said))).otherwise(value))
    return rows
