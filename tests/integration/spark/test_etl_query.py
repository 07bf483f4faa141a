"""What the SQL of a transform gives: the rows of any query of its views. With real Spark."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from spark_tasks.etl.transform import Transform, TransformUnfit, transformed
from spark_tasks.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.more]


@pytest.fixture
def source(tmp_path: Path) -> "Iterator[DataFrame]":
    with spark_session("query", tmp_path / "scratch") as spark:
        yield spark.sql("SELECT 1 AS id")


def test_two_columns_of_one_name_are_refused(source: "DataFrame") -> None:
    with pytest.raises(TransformUnfit, match="two columns the name 'id'"):
        transformed(Transform(sql="SELECT id, id + 1 AS id FROM source"), source, {})


def test_each_way_of_writing_a_query_is_taken(source: "DataFrame") -> None:
    read = {
        "/* old: /* nested */ */ WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3) "
        "SELECT /*+ BROADCAST(source) */ max(n) AS n FROM r, source": [(3,)],
        "-- two\nVALUES (1), (2)": [(1,), (2,)],
        "FROM source |> WHERE id IN (SELECT max(id) FROM source) |> SELECT row_number() OVER (ORDER BY id) AS k": [
            (1,)
        ],
        "(SELECT 'reflect' AS reflect, transform(array(id), x -> x + 1)[0] AS two FROM source);": [("reflect", 2)],
        "SELECT * FROM source, LATERAL (SELECT id + 1 AS next)": [(1, 2)],
        "TABLE source": [(1,)],
    }
    for sql, rows in read.items():
        assert [tuple(row) for row in transformed(Transform(sql=sql), source, {}).collect()] == rows
