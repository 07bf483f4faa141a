"""What the SQL of a transform may be: any query of its views, and nothing that reads or does more. With real Spark."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from spark_tasks.spark.session import spark_session
from spark_tasks.transform.apply import TransformUnfit, transformed
from spark_tasks.transform.params import Transform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.more]


@pytest.fixture
def source(tmp_path: Path) -> "Iterator[DataFrame]":
    with spark_session("query", tmp_path / "scratch") as spark:
        yield spark.sql("SELECT 1 AS id")


def test_a_transform_reads_its_views_and_does_nothing_else(source: "DataFrame", tmp_path: Path) -> None:
    told = tmp_path / "told.csv"
    told.write_text("secret\n")
    refused = {
        "WITH a AS (SELECT 1 AS n) INSERT INTO source SELECT * FROM a": "does more than read: InsertIntoStatement",
        f"FROM source INSERT OVERWRITE DIRECTORY '{tmp_path}/out' USING csv SELECT id": "does more than read: INSERT",
        "/* /* */ */ DROP VIEW source": "does more than read: DropView",
        "/* /* */ */ EXECUTE IMMEDIATE 'DROP VIEW source'": "does more than read: EXECUTE",
        "SELECT TRANSFORM (id) USING 'cat' AS (x STRING) FROM source": "runs a program",
        "SELECT * FROM source WHERE id IN (SELECT TRANSFORM (id) USING 'cat' AS (x STRING) FROM source)": "runs a pro",
        "WITH a AS (SELECT TRANSFORM (id) USING 'cat' AS (x STRING) FROM source) SELECT * FROM a": "runs a program",
        f"SELECT * FROM csv.`{told}`": r"`csv`.`.*` cannot be found\. There are source\.$",
        "SELECT * FROM customers": r"`customers` cannot be found\. There are source\.$",
        "SELECT id, id + 1 AS id FROM source": "two columns the name 'id'",
        "SELECT reflect('java.lang.System', 'lineSeparator') AS x": "Cannot resolve routine `reflect`",
        "SELECT IDENTIFIER('ref' || 'lect')('java.lang.System', 'lineSeparator') AS x": "resolve routine `reflect`",
    }
    for sql, why in refused.items():
        with pytest.raises(TransformUnfit, match=why):
            transformed(Transform(sql=sql), source, {})
    assert not (tmp_path / "out").exists()


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
