"""SQL that people write goes on: the queries of TPC-H, and each construct of Spark's queries. With real Spark."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from spark_tasks.spark.session import spark_session
from spark_tasks.sql import checked
from testkit.spark import tpch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark]

QUERIES = """
WITH a AS (SELECT id FROM source), b AS (SELECT * FROM a) SELECT * FROM b JOIN a USING (id);
WITH a AS (WITH c AS (SELECT 1 AS n) SELECT * FROM c) SELECT * FROM a;
WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT * FROM r;
SELECT id, s, grouping(id), grouping_id(), count(*) FROM source GROUP BY ROLLUP (id, s);
SELECT id, count(*) FROM source GROUP BY CUBE (id, s);
SELECT id, sum(id) FROM source GROUP BY GROUPING SETS ((id), ());
SELECT id, s, count(*) FROM source GROUP BY ALL ORDER BY ALL;
SELECT id FROM source GROUP BY 1 HAVING count(*) > 0 ORDER BY 1 NULLS LAST LIMIT 5 OFFSET 0;
SELECT * FROM source PIVOT (sum(id) AS total FOR s IN ('a' AS one, 'b'));
SELECT * FROM (SELECT 1 AS a, 2 AS b) UNPIVOT INCLUDE NULLS (v FOR n IN (a, b AS bee));
SELECT id, x FROM source LATERAL VIEW OUTER explode(numbers) t AS x;
SELECT id, p, x FROM source LATERAL VIEW posexplode(numbers) t AS p, x;
SELECT * FROM source, LATERAL (SELECT id + 1 AS next);
SELECT transform(numbers, x -> x + 1), filter(numbers, (x, i) -> i > 0), aggregate(numbers, 0, (a, x) -> a + x)
  FROM source;
SELECT *, row_number() OVER (PARTITION BY s ORDER BY id DESC) AS rn FROM source QUALIFY rn = 1;
SELECT sum(id) OVER w, min(id) OVER w FROM source WINDOW w AS (ORDER BY id RANGE BETWEEN 1 PRECEDING AND CURRENT
  ROW);
VALUES (1, 'a', current_date, interval 3 days, x'1F', 1.5BD, null, array(1), named_struct('a', 1));
SELECT * FROM VALUES (1, 2), (3, 4) AS t(a, b);
SELECT * FROM source TABLESAMPLE (10 ROWS);
SELECT * FROM source TABLESAMPLE (50 PERCENT) REPEATABLE (7);
SELECT /*+ BROADCAST(b), REPARTITION(3, id) */ * FROM source JOIN source b USING (id);
SELECT /*+ SHUFFLE_MERGE(source) COALESCE(1) */ id FROM source;
SELECT * FROM source DISTRIBUTE BY id SORT BY s;
SELECT * FROM source CLUSTER BY id;
FROM source |> WHERE id > 0 |> EXTEND id + 1 AS x |> AGGREGATE sum(x) AS y GROUP BY s |> ORDER BY y |> LIMIT 1;
FROM source |> SET id = 2 |> DROP s |> AS q |> SELECT q.id |> UNION ALL SELECT 3;
FROM source SELECT id WHERE id > 0;
SELECT * FROM source a LEFT JOIN source b ON a.id = b.id FULL JOIN source c USING (id) CROSS JOIN source d;
SELECT * FROM source a LEFT SEMI JOIN source b ON a.id = b.id;
SELECT * FROM source NATURAL JOIN source;
SELECT id FROM source a ANTI JOIN (SELECT 5 AS id) b ON a.id = b.id;
(SELECT id FROM source) UNION (SELECT 2) EXCEPT (SELECT 3) INTERSECT ALL SELECT 1;
SELECT * FROM source WHERE id IN (SELECT id FROM source) AND EXISTS (SELECT 1 FROM source) AND id = (SELECT
  max(id) FROM source);
SELECT id, (SELECT max(b.id) FROM source b WHERE b.id = a.id) AS m FROM source a;
SELECT CASE WHEN id = 1 THEN 'x' ELSE 'y' END, CASE id WHEN 1 THEN 2 END, id BETWEEN 1 AND 2, s IN ('a', 'b') FROM
  source;
SELECT s LIKE 'a%' ESCAPE '!', s RLIKE 'a', s ILIKE 'A', s LIKE ANY ('a', 'b'), s NOT LIKE ALL ('x', 'y') FROM
  source;
SELECT NOT id IS NULL, id IS DISTINCT FROM 2, id <=> 1, -id, ~id, +id, id DIV 2, id % 2, s || 'x', id & 1 | 2 ^ 3
  FROM source;
SELECT id << 1, id >> 1, id >>> 1, id = 1 AND id > 0 OR id <> 3 FROM source;
SELECT cast(s AS VARCHAR(3)), try_cast(s AS INT), cast(numbers AS ARRAY<STRING>), '1'::INT FROM source;
SELECT cast(null AS STRUCT<a: INT, b: MAP<STRING, DECIMAL(9,2)>>), cast(1 AS DOUBLE), cast('1' AS TIMESTAMP_NTZ);
SELECT date '2020-01-01' + interval '1' month, timestamp '2020-01-01 00:00:00', interval 2 hours, DATE
  '2020-01-01' - DATE '2019-01-01';
SELECT extract(year FROM now()), date_trunc('month', now()), timestampadd(DAY, 1, now()), timestampdiff(DAY,
  now(), now());
SELECT dateadd(DAY, 1, current_date()), to_date('2020', 'yyyy'), current_timestamp, date_format(now(), 'yyyy');
SELECT trim(BOTH 'x' FROM s), position('a' IN s), substring(s FROM 1 FOR 1), overlay(s PLACING 'x' FROM 1),
  ltrim(s) FROM source;
SELECT s COLLATE UTF8_LCASE, replace('a', 'b', 'c'), left('abc', 1), concat_ws(',', s, 'x'), format_string('%s',
  s) FROM source;
SELECT mode() WITHIN GROUP (ORDER BY id), percentile_cont(0.5) WITHIN GROUP (ORDER BY id) FROM source;
SELECT first(s) IGNORE NULLS, any_value(s), last(s), count(DISTINCT s), count(*) FILTER (WHERE id > 0),
  max(struct(id, s)) FROM source;
SELECT listagg(s, ',') WITHIN GROUP (ORDER BY s), collect_list(id), max_by(s, id), approx_count_distinct(id) FROM
  source;
SELECT * EXCEPT (s), source.*, struct(*), array(id, 2)[0], map('a', 1)['a'], named_struct('a', 1).a FROM source;
SELECT from_json('{"a":1}', 'a INT'), from_json('{}', schema_of_json('{"a":1}')), from_csv('1', 'a INT'),
  to_json(struct(1 AS a));
SELECT parse_json('{"a":{"b":1}}'):a.b::INT, variant_get(parse_json('1'), '$', 'int'), get_json_object('{"a":1}',
  '$.a');
SELECT * FROM range(3), explode(array(1, 2)), LATERAL posexplode(array(3));
SELECT * FROM UNNEST(array(1, 2)) AS t(x);
SELECT * FROM JSON_TABLE('{"a":1}', '$' COLUMNS (a INT PATH '$.a')) AS j;
SELECT stack(2, 1, 2), user, `reflect` FROM (SELECT 'u' AS user, 'r' AS reflect);
SELECT rand(1) < 2, length(uuid()), raise_error('no') IS NULL FROM source WHERE id < 0;
SELECT coalesce(null, nullif(id, 2), nvl(id, 1)), if(id = 1, 'x', 'y'), greatest(1, 2), round(2.5, 0), md5('x')
  FROM source;
SELECT '${env:HOME}', '${system:user.home}' FROM source;
TABLE source
""".strip().split(";\n")


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    with spark_session("accepted", tmp_path_factory.mktemp("spark")) as session:
        session.sql("SELECT 1 AS id, 'a' AS s, array(1, 2) AS numbers").createOrReplaceTempView("source")
        for name, columns in tpch.TABLES.items():
            session.createDataFrame([], columns).createOrReplaceTempView(name)
        yield session


@pytest.mark.parametrize("number", range(1, 23))
def test_each_query_of_tpch_is_taken(spark: "SparkSession", number: int) -> None:
    checked.query(spark, tpch.QUERIES[number - 1], list(tpch.TABLES))


def test_each_construct_of_a_query_is_taken(spark: "SparkSession") -> None:
    for sql in QUERIES:
        checked.query(spark, sql, ["source"])


def test_what_was_checked_is_what_is_run(spark: "SparkSession") -> None:
    told = checked.query(spark, "SELECT '${env:HOME}' AS a, '${system:user.home}' AS b, id FROM source", ["source"])
    assert [tuple(row) for row in told.collect()] == [("${env:HOME}", "${system:user.home}", 1)]


@pytest.mark.parametrize(
    ("sql", "met"),
    [
        ("id > 0 AND s LIKE 'a%'", True),
        ("size(filter(numbers, x -> x > 1)) = 1", True),
        ("CASE WHEN s = 'reflect' THEN true ELSE id = 2 END", False),
        ("cast(s AS INT) IS NOT NULL", None),
        ("s RLIKE '^[a-z]$' AND id BETWEEN 1 AND 2 AND s IN ('a', 'b') AND element_at(numbers, 1) = 1", True),
        ("date_diff(DAY, DATE '2020-01-01', current_date()) > 0", True),
        ("`id` = 1 AS one", True),
    ],
)
def test_a_condition_is_about_the_columns_of_a_row(spark: "SparkSession", sql: str, met: bool | None) -> None:
    rows = spark.table("source").select(checked.condition(spark, sql).alias("met"))
    checked.check_rows(rows)
    if met is not None:
        assert [row.met for row in rows.collect()] == [met]
