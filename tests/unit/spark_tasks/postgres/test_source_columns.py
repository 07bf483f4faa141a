"""What PostgreSQL's columns become, and what is said of values that Spark's types do not hold. Without a server."""

from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

import pyarrow as pa

from spark_tasks.contracts.source import SourceUnfit
from spark_tasks.postgres import carried
from spark_tasks.postgres.params import PostgresRows
from spark_tasks.postgres.source_columns import SourceColumns, columns_of


def described(**kinds: str) -> Any:
    """A schema as the driver describes it; a type may have a modifier behind it."""
    fields = []
    for named, kind in kinds.items():
        type_, _, typmod = kind.partition("/")
        metadata = {"POSTGRESQL:type": type_} | ({"POSTGRESQL:typmod": typmod} if typmod else {})
        fields.append(pa.field(named, pa.string(), metadata=metadata))
    return pa.schema(fields)


def rows(**more: Any) -> PostgresRows:
    given = {"type": "postgres", "url": "postgresql://a@b/c", "table": "public.t"} | more
    return PostgresRows.model_validate(given)


def spark_types(columns: SourceColumns) -> dict[str, str]:
    return {one.name: one.spark for one in columns.columns}


def test_a_numeric_is_a_decimal_if_all_values_fit_or_the_author_says_so() -> None:
    schema = described(bare="numeric/-1", money="numeric/655366", wide="numeric/3276814", said="numeric/-1")
    found = columns_of(rows(decimal={"said": {"precision": 38, "scale": 2}}), schema, {})
    assert spark_types(found) == {
        "bare": "decimal(38,18)",
        "money": "decimal(10,2)",
        "wide": "string",
        "said": "decimal(38,2)",
    }


def test_untouched_columns_bring_their_types_along() -> None:
    types = {"n": "numeric", "at": "timestamp with time zone", "cash": "money", "c": "character(5)"}
    schema = described(n="numeric/-1", at="timestamptz", cash="money", c="bpchar")
    found = columns_of(rows(), schema, types, "de_DE")
    fields = found.schema()
    assert [carried.type_of(field) for field in fields] == [*types.values(), None]
    assert fields.names[-1] == carried.ODD
    assert carried.lc_monetary_of(fields["cash"]) == "de_DE"
    assert spark_types(found) == {"n": "string", "at": "timestamp", "cash": "string", "c": "string"}
    mapped = columns_of(rows(infinity="ends"), schema, types)
    assert carried.ODD not in mapped.schema().names, "no time is left that Spark does not hold, but those it refuses"


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"decimal": {"x": {"precision": 5}}}, "`decimal` names x, and public.t has no such column"),
        ({"decimal": {"at": {"precision": 5}}}, "`decimal` names the column at, which is of type date"),
    ],
)
def test_what_the_params_say_has_to_suit_the_columns(params: dict[str, Any], said: str) -> None:
    with pytest.raises(SourceUnfit, match=said):
        columns_of(rows(**params), described(n="numeric/-1", at="date"), {})


def test_a_table_without_columns_is_refused() -> None:
    with pytest.raises(SourceUnfit, match=r"public\.t has no columns"):
        columns_of(rows(), described(), {})


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        (
            'invalid input syntax for type numeric: "rota:0:NaN" (22P02)',
            r"public.t, column n: the value NaN is no decimal\(38,18\): leave the row out by a `query`",
        ),
        (
            'ungültige Eingabesyntax für Typ date: "rota:1:-infinity" (22007)',
            "public.t, column at: the value -infinity is no date: say `infinity: null` or `infinity: ends`",
        ),
        (
            f'invalid: "rota:0:{"9" * 500}"',
            r"the value 9{50}\.\.\. \(500 characters\) is no .*: say `decimal: {n: {precision: P, scale: S}}`",
        ),
    ],
)
def test_a_refused_value_is_named_whatever_the_language_of_the_server(said: str, refused: str) -> None:
    found = columns_of(rows(), described(n="numeric/-1", at="date"), {}).refused(said)
    assert found is not None
    with pytest.raises(SourceUnfit, match=refused):
        raise found


def test_other_errors_of_a_query_are_left_as_they_are() -> None:
    found = columns_of(rows(), described(n="int4"), {})
    assert found.refused('invalid input syntax for type integer: "x" (22P02)') is None
