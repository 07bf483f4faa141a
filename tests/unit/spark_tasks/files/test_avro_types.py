"""Which types of Avro a table can have. Without Spark's JVM."""

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from spark_tasks.files.avro import AvroUnreadable, spark_type


def _record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "r", "fields": [{"name": name, "type": kind} for name, kind in fields]}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ([("a", "long"), ("A", "long")], "the fields a differ in case only"),
        ([("s", _record(("x", "int"), ("X", "int")))], r"the fields s\.x differ in case only"),
        (
            [("d", {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 2})],
            "'d' is a decimal of 50 digits",
        ),
        ([("t", {"type": "long", "logicalType": "time-micros"})], "'t' is of the type time-micros"),
        ([("t", {"type": "long", "logicalType": "timestamp-nanos"})], "'t' is of the type timestamp-nanos"),
        ([("u", ["string", "long"])], "'u' is a union of several types"),
    ],
)
def test_a_type_that_no_table_has_is_refused_by_its_field(fields: list[tuple[str, Any]], said: str) -> None:
    with pytest.raises(AvroUnreadable, match=said):
        spark_type(_record(*fields), {})
