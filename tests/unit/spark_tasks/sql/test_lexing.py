"""What is seen of a text in SQL without Spark's parser."""

import pytest

from spark_tasks.sql.lexing import unbalanced


@pytest.mark.parametrize(
    "sql",
    [
        "n > 0",
        "(n > 0) AND t RLIKE '\\\\(' OR a[0] = 1",
        "t = 'it''s' AND u = \"say \\\"hi\\\"\"",
        "`a)(b` = ')'",
        "n > 0 -- it's (not",
        "n /* ' ( */ > 0",
        "/* a /* b */ ( */ n > 0",
        "t = r'\\'",
        "n - 1 > 2 / 3 * 4",
        "SELECT a.b, struct(1 AS x).x FROM source LATERAL VIEW explode(l) AS y",
        "transform(l, x -> x + 1)[0] IS NULL",
    ],
)
def test_what_spark_takes_passes(sql: str) -> None:
    assert unbalanced(sql) is None


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("(n > 0", "'(' at character 1 is not closed"),
        ("n > 0)", "')' at character 6 closes nothing"),
        ("a[(0]) = 1", "']' at character 5 closes nothing"),
        ("t = 'a", "the quote ' at character 5 is not closed"),
        ("`a = 1", "the quote ` at character 1 is not closed"),
        ("n > 0 /* why", "the comment at character 7 is not closed"),
    ],
)
def test_what_is_open_is_said(sql: str, said: str) -> None:
    assert unbalanced(sql) == said
