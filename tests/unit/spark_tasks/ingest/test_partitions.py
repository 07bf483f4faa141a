"""Which columns a table may be partitioned by, in a folder and in an object store."""

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pyspark.sql.types import DateType, DoubleType, IntegerType, StringType, StructType, TimestampType

from spark_tasks.files.faults import SchemaDrift
from spark_tasks.ingest.converting import check_partitions

COLUMNS = (
    StructType()
    .add("n", IntegerType())
    .add("text", StringType())
    .add("day", DateType())
    .add("at", TimestampType())
    .add("amount", DoubleType())
)


def test_an_object_store_takes_types_whose_values_have_one_text() -> None:
    check_partitions(COLUMNS, ["n", "text", "day"], "s3://lake/flights", in_folder=False)
    check_partitions(COLUMNS, [], "s3://lake/flights", in_folder=False)
    check_partitions(COLUMNS, ["at"], "/data/flights", in_folder=True)
    for name, kind in (("at", "timestamp"), ("amount", "double")):
        with pytest.raises(SchemaDrift, match=f"flights is partitioned by {name}, which is {kind}: only a table in a"):
            check_partitions(COLUMNS, ["day", name], "s3://lake/flights", in_folder=False)
    with pytest.raises(SchemaDrift, match="needs a column that is not in `partition_by`"):
        check_partitions(COLUMNS, COLUMNS.fieldNames(), "/data/flights", in_folder=True)
