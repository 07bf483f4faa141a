"""Which columns a table may be partitioned by."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spark_tasks.files.faults import SchemaDrift
from spark_tasks.table.part import odd_partitions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def check_partitions(columns: "StructType", by: Sequence[str], shown: str, *, in_folder: bool) -> None:
    """Raise `SchemaDrift` if the table `shown` cannot have these columns and be partitioned by those that `by` names.

    In an object store the values of other types than text, integers, dates and booleans would have another text where
    executors write than where Spark itself does.
    """
    if by and not set(columns.fieldNames()) - set(by):
        raise SchemaDrift(f"{shown} needs a column that is not in `partition_by`")
    if not in_folder and (odd := odd_partitions(columns, by)):
        raise SchemaDrift(
            f"{shown} is partitioned by {odd[0]}: only a table in a folder may be partitioned by another type "
            "than text, integer, date or boolean"
        )
