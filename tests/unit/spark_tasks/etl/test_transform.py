"""A transform that is a function is found by its entry point. Without a JVM."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from spark_tasks.etl.transform import Transform, TransformUnfit, check_distinct, transformed


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with a function `joined` in the entry-point group."""
    (tmp_path / "transform_of_a_test.py").write_text(
        "def joined(source, lookups, args):\n    return source, sorted(lookups), args['by']\n"
    )
    about = tmp_path / "transform_of_a_test-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: transform-of-a-test\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[rota.transforms]\njoined = transform_of_a_test:joined\n")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("installed")
def test_a_function_is_given_the_rows_the_lookups_and_its_args() -> None:
    rows: Any = "rows"
    how = Transform(function="joined", args={"by": 2})
    made: Any = transformed(how, rows, {"weather": rows, "planes": rows})
    assert made == ("rows", ["planes", "weather"], 2)


@pytest.mark.usefixtures("installed")
def test_a_function_that_is_not_installed_is_named_with_those_that_are() -> None:
    rows: Any = "rows"
    with pytest.raises(TransformUnfit, match=r"no function 'absent' .* rota\.transforms; it has .*joined"):
        transformed(Transform(function="absent"), rows, {})


def test_without_a_transform_the_rows_stay_as_they_are() -> None:
    rows: Any = "rows"
    assert transformed(None, rows, {}) is rows


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELEC * FROM source", "it must be a query"),
        ("CREATE TABLE t (n INT)", "it must be a query"),
        ("/* SELECT */ DROP VIEW source", "it must be a query"),
        ("-- SELECT\nSHOW TABLES", "it must be a query"),
        ("/**/" * 10_000 + "DROP VIEW source", "it must be a query"),
    ],
)
def test_what_is_no_query_is_refused_when_the_task_is_registered(sql: str, why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        Transform(sql=sql)


@pytest.mark.parametrize(
    "sql",
    [
        "select 'reflect' AS reflect",
        "-- by day\n\n/* of\nall */ ((SELECT 1) UNION (SELECT 2))",
        "/* was: SELECT /* one */ 1 */ SELECT 2",
        "WITH a AS (SELECT 1) SELECT * FROM a",
        "FROM source |> WHERE n > 1",
        "VALUES (1, 'a')",
        "(TABLE source)",
        "SELECT/*+ BROADCAST(s) */ * FROM source s",
    ],
)
def test_a_query_may_begin_in_many_ways(sql: str) -> None:
    assert Transform(sql=sql).sql == sql


def test_two_columns_of_one_name_are_refused() -> None:
    check_distinct(["id", "n", "ID"])
    with pytest.raises(TransformUnfit, match="two columns the name 'id': rename one by AS"):
        check_distinct(["id", "n", "id"])
