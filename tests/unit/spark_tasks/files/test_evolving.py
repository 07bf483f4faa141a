"""What a table's columns become for files with other columns. Without a JVM."""

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pyspark.sql import types as t

from spark_tasks.files.evolving import evolved, widened
from spark_tasks.files.faults import BadFile
from spark_tasks.files.form import Form
from spark_tasks.files.layouts import fits
from spark_tasks.files.listing import Source

SOURCE = Source("/in/a", 1)
TYPES: dict[str, t.DataType] = {
    "int": t.IntegerType(),
    "bigint": t.LongType(),
    "float": t.FloatType(),
    "double": t.DoubleType(),
    "string": t.StringType(),
    "date": t.DateType(),
    "timestamp": t.TimestampType(),
    "money": t.DecimalType(10, 2),
    "wide": t.DecimalType(30, 2),
}


def _columns(**columns: str) -> t.StructType:
    return t.StructType([t.StructField(name, TYPES[kind]) for name, kind in columns.items()])


def _evolved(standing: dict[str, str], found: dict[str, str], **form: Any) -> dict[str, str]:
    columns = evolved(_columns(**standing), _columns(**found), Form(**{"format": "parquet"} | form), SOURCE)
    kinds = {kind.simpleString(): name for name, kind in TYPES.items()}
    return {field.name: kinds[field.dataType.simpleString()] for field in columns.fields}


WIDENINGS = {
    ("int", "bigint"),
    ("int", "double"),
    ("int", "wide"),
    ("bigint", "wide"),
    ("float", "double"),
    ("date", "timestamp"),
    ("money", "wide"),
}


@pytest.mark.parametrize("found", TYPES)
@pytest.mark.parametrize("into", TYPES)
def test_a_type_fits_itself_and_what_it_may_be_widened_to(found: str, into: str) -> None:
    assert fits(TYPES[found], TYPES[into]) == (found == into or (found, into) in WIDENINGS)


def test_new_columns_are_added_at_the_end_and_missing_ones_stay() -> None:
    assert _evolved({"a": "int", "b": "string"}, {"c": "double", "a": "int"}, schema_evolution="add") == {
        "a": "int",
        "b": "string",
        "c": "double",
    }


def test_types_change_only_where_they_may_be_widened() -> None:
    assert _evolved({"a": "int"}, {"a": "bigint"}, schema_evolution="widen") == {"a": "bigint"}
    assert _evolved({"a": "bigint"}, {"a": "int"}, schema_evolution="widen") == {"a": "bigint"}
    assert _evolved({"a": "int"}, {"a": "bigint"}, format="csv", schema_evolution="add") == {"a": "int"}
    assert widened(_columns(a="int", b="string"), _columns(a="bigint", b="string", c="int")) == ["a"]


@pytest.mark.parametrize(
    ("found", "form", "said"),
    [
        ({"a": "bigint"}, {"schema_evolution": "add"}, "column a as bigint, which is int in the table"),
        ({"a": "string"}, {"schema_evolution": "widen"}, "column a as string, which is int in the table"),
        ({"a": "string"}, {"rescue": True}, "column a as string, which is int in the table"),
        ({"A": "int"}, {"schema_evolution": "add"}, "column A, which the table has as a"),
        ({"b c": "int"}, {"schema_evolution": "add"}, "column 'b c', a name that Delta does not take"),
    ],
)
def test_any_other_change_is_refused_by_the_name_of_the_column(
    found: dict[str, str], form: dict[str, Any], said: str
) -> None:
    with pytest.raises(BadFile, match=said) as told:
        _evolved({"a": "int"}, found, **form)
    assert told.value.path == "/in/a"


def test_a_field_that_is_rescued_makes_no_column() -> None:
    assert _evolved({"a": "int"}, {"a": "int", "b": "string"}, rescue=True) == {"a": "int"}
