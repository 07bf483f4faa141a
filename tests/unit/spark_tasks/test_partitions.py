"""Which columns a table may be partitioned by, in a folder and in an object store."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("deltalake", reason="the extra `spark` is not installed")

from pyspark.sql.types import DateType, DoubleType, IntegerType, StringType, StructType, TimestampType

from spark_tasks.files.faults import SchemaDrift
from spark_tasks.ingest.partitions import check_partitions
from spark_tasks.table.delta import Table
from tasks.place import Place

COLUMNS = (
    StructType()
    .add("n", IntegerType())
    .add("text", StringType())
    .add("day", DateType())
    .add("at", TimestampType())
    .add("amount", DoubleType())
)


def test_an_object_store_takes_types_whose_values_have_one_text(tmp_path: Path) -> None:
    pytest.importorskip("s3fs", reason="the extra `s3` is not installed")
    stored, local = Table(Place("s3://lake/flights"), "flights"), Table(Place(str(tmp_path)), "flights")
    check_partitions(COLUMNS, ["n", "text", "day"], stored)
    check_partitions(COLUMNS, [], stored)
    check_partitions(COLUMNS, ["at"], local)
    for name, kind in (("at", "timestamp"), ("amount", "double")):
        with pytest.raises(SchemaDrift, match=f"flights is partitioned by {name}, which is {kind}: only a table in a"):
            check_partitions(COLUMNS, ["day", name], stored)
    with pytest.raises(SchemaDrift, match="needs a column that is not in `partition_by`"):
        check_partitions(COLUMNS, COLUMNS.fieldNames(), local)
