"""The columns that a task names, read without Spark."""

import pytest

from spark_tasks.sql.column_types import ColumnsWrong, NamedColumn, read_columns


def test_types_are_as_spark_shows_them() -> None:
    text = "n INT, `a``b` DECIMAL(5, 2) NOT NULL COMMENT 'it''s', s: STRUCT<k: ARRAY<LONG>, `m n` MAP<STRING, real>>"
    assert read_columns(text) == (
        NamedColumn("n", "int"),
        NamedColumn("a`b", "decimal(5,2)"),
        NamedColumn("s", "struct<k:array<bigint>,m n:map<string,float>>"),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("n INTT", "column n: there is no type INTT: did you mean INT?"),
        ("n TIMESTMP", "did you mean TIMESTAMP?"),
        ("n VARCHAR(3)", "column n: there is no type VARCHAR: write STRING"),
        ("n datetime", "write TIMESTAMP"),
        ("n fnord", "the types are BOOLEAN, TINYINT"),
        ("n INT, N STRING", "n and N are one name to Spark and Delta"),
        ("n INT, n INT", "n and n are one name"),
        ("s STRUCT<a: INT, A: INT>", "column s: a and A are one name"),
        ("s STRUCT<a: INTT>", "column s.a: there is no type INTT"),
        ("n DECIMAL(39, 2)", "a precision from 1 to 38"),
        ("n DECIMAL(3, 4)", "a scale up to that"),
        ("n", "column n: the end where a type is expected"),
        ("n INT t STRING", "after column n: 't' at character 7 where ',' or the end is expected"),
        ("n INT,", "the end where the name of a column is expected"),
        ("", "the end where the name of a column is expected"),
        ("a-b INT", "'-' at character 2 cannot be read: put names that have it in `...`"),
        ("1 INT", "put it in `...`"),
        ("n ARRAY<INT", "the end where '>' is expected"),
        ("n ARRAY" + "<ARRAY" * 60, "nested more than 50 deep"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, said: str) -> None:
    with pytest.raises(ColumnsWrong) as told:
        read_columns(text)
    assert said in str(told.value)
