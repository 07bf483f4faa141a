"""Names of tables in params."""

import pytest

from spark_tasks.contracts.names import qualified, table_parts


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("flights", ("flights",)),
        ("public.Flights", ("public", "Flights")),
        ('"a.b"', ("a.b",)),
        ('"my.schema"."My ""T"""', ("my.schema", 'My "T"')),
        ('s."a.b"', ("s", "a.b")),
        ("été.ü", ("été", "ü")),
    ],
)
def test_names_are_as_in_sql(text: str, parts: tuple[str, ...]) -> None:
    assert table_parts(text) == parts
    assert table_parts(qualified(text)) == parts


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a.b.c", '"a', '""', 'a"b', '"a"b', '"a".', "x" * 64, "ü" * 32])
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is given as TABLE or SCHEMA\.TABLE|PostgreSQL keeps 63 of a name"):
        table_parts(text)
