"""Which columns a table may be partitioned by."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spark_tasks.files.faults import SchemaDrift
from spark_tasks.table.part import odd_partitions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from spark_tasks.table.delta import Table


def check_partitions(columns: "StructType", by: Sequence[str], table: "Table") -> None:
    """Raise `SchemaDrift` if `table` cannot have these columns and be partitioned by those of them that `by` names.

    In an object store the values of other types than text, integers, dates and booleans would have another text where
    executors write than where Spark itself does.
    """
    if by and not set(columns.fieldNames()) - set(by):
        raise SchemaDrift(f"{table.shown} needs a column that is not in `partition_by`")
    if not table.place.is_local and (odd := odd_partitions(columns, by)):
        raise SchemaDrift(
            f"{table.shown} is partitioned by {odd[0]}: only a table in a folder may be partitioned by another type "
            "than text, integer, date or boolean"
        )
