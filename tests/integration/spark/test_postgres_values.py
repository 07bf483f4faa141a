"""What a task says of values of PostgreSQL, and what tables that are there already would make of them."""

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from spark_tasks.contracts.sink import SinkUnfit
from spark_tasks.contracts.source import SourceUnfit

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("adbc_driver_postgresql", reason="the extra `spark` is not installed")

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from spark_tasks.etl.previewing import preview_transformed
from spark_tasks.postgres.session import QueryUnfit
from testkit.spark.databases import EtlDatabase
from testkit.spark.etl_sinks import sink_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.more]

__all__ = ["sink_session"]

SQL = {"transform": {"sql": "SELECT * FROM source"}}


def query(database: EtlDatabase, sql: str, **more: Any) -> dict[str, Any]:
    """Params that read a query, and append to the table `dst`."""
    return {"source": database.end(query=sql, **more), "sink": database.end(table="dst", mode="append")}


@pytest.mark.parametrize("more", [{}, SQL], ids=["untouched", "by a transform"])
def test_a_target_that_would_change_a_value_is_refused(
    sink_session: "SparkSession", database: EtlDatabase, more: dict[str, Any]
) -> None:
    database.sql("CREATE TABLE dst (n numeric(10,2), v varchar(3), at timestamptz(0), d date)")
    wrong = {
        "1.239::numeric AS n": r"column n, which is numeric\(10,2\): the value 1.239\d* would become 1.24",
        "1.005::float8 AS n": r"column n, .*: the value 1.005 would become 1.0[01]",
        "'abc  '::text AS v": r"column v, which is character varying\(3\): the value abc   would become abc",
        "timestamptz '2026-01-01 00:00:00.5Z' AS at": "column at, .*: the value 2026-01-01 00:00:00.5.* would become",
        "timestamptz '2026-01-01 10:00Z' AS d": "column d, which is date: the value 2026-01-01 10:00:00.* would become",
    }
    for number, (select, said) in enumerate(wrong.items()):
        with pytest.raises(SinkUnfit, match=said):
            database.run(sink_session, query(database, f"SELECT {select}") | more, number + 1, number)
    with pytest.raises(QueryUnfit, match=r"column n, which is numeric\(10,2\), value 1000000000(\.0*)?: numeric field"):
        database.run(sink_session, query(database, "SELECT 1e9::numeric AS n") | more, 20, 20)
    fits = "SELECT 1.50::numeric AS n, 'abc' AS v, timestamptz '2026-01-01 00:00:05Z' AS at, date '2026-01-01' AS d"
    database.run(sink_session, query(database, fits) | more, 21, 21)
    assert database.sql("SELECT n, v, d FROM dst") == "1.50|abc|2026-01-01"


def test_infinity_becomes_what_the_task_says(sink_session: "SparkSession", database: EtlDatabase) -> None:
    ends = "SELECT 1 AS id, date 'infinity' AS d, timestamp '-infinity' AS w, timestamptz 'infinity' AS at"
    told = {None: "1|||", "ends": "1|9999-12-31|0001-01-01 00:00:00|9999-12-31 23:59:59.999999+00"}
    database.sql("ALTER ROLE rota SET timezone = 'UTC'")
    for number, (infinity, wanted) in enumerate(told.items()):
        for more in ({}, SQL):
            database.run(sink_session, query(database, ends, infinity=infinity) | more, number * 2 + len(more) + 1)
            assert database.sql("SELECT * FROM dst") == wanted
            database.sql("DROP TABLE dst, rota_sinks, rota_batches")
    keyed = {"sink": database.end(table="dst", mode="upsert", keys=["d"])}
    with pytest.raises(SinkUnfit, match="1 rows of a batch have a null in their keys"):
        database.run(sink_session, query(database, ends, infinity=None) | keyed, 9)


@pytest.mark.parametrize(
    ("type_", "value", "said"),
    [
        ("timestamptz", "infinity", "infinity"),
        ("timestamp", "-infinity", "-infinity"),
        ("date", "infinity", "infinity"),
        ("numeric", "NaN", "NaN"),
        ("float8", "Infinity", "Infinity"),
    ],
)
@pytest.mark.parametrize("more", [{}, {"batch_rows": 10}], ids=["whole", "in steps"])
def test_a_cursor_that_no_row_can_follow_is_refused(
    sink_session: "SparkSession", database: EtlDatabase, type_: str, value: str, said: str, more: dict[str, Any]
) -> None:
    plain = "'2026-01-01'" if type_ not in ("numeric", "float8") else "7"
    database.sql(f"CREATE TABLE src (at {type_}); INSERT INTO src VALUES ({plain}), ('{value}')")
    params = {"source": database.end(table="src", infinity="ends"), "sink": database.end(table="dst", mode="append")}
    for lag in ({"lag_s": 0}, {"lag_s": 1} if type_ not in ("numeric", "float8") else {"lag_s": 0}):
        with pytest.raises(SourceUnfit, match=f"src, column at: a row has the cursor {said}, and no later row"):
            database.run(sink_session, params | {"incremental": {"cursor": "at"} | lag | more})


def test_equal_numbers_are_one_key_however_they_are_written(
    sink_session: "SparkSession", database: EtlDatabase
) -> None:
    twice = query(database, "SELECT 1.0::numeric AS k, 'a' AS v UNION ALL SELECT 1.00, 'b'")
    keyed = {"sink": database.end(table="dst", mode="upsert", keys=["k"])}
    with pytest.raises(SinkUnfit, match=r"one batch has 2 rows with the keys 1.0"):
        database.run(sink_session, twice | keyed)


def test_a_delta_table_with_decimals_goes_on(sink_session: "SparkSession", database: EtlDatabase) -> None:
    """Its type is that of a numeric without precision, as it was."""
    folder = str(database.folder / "table")
    write_deltalake(folder, pa.table({"n": pa.array([None], pa.decimal128(38, 18))}))
    sink = {"sink": {"type": "delta", "table": folder, "mode": "append", "shared": True}}
    database.run(sink_session, query(database, "SELECT 0.5::numeric AS n") | sink)
    assert sorted(map(str, DeltaTable(folder).to_pyarrow_table()["n"].to_pylist())) == ["0.500000000000000000", "None"]
    with pytest.raises(SourceUnfit, match="the value 340282366920938463464 is no decimal"):
        database.run(sink_session, query(database, "SELECT 340282366920938463464 AS n") | sink, 2, 2)


def test_a_partition_has_no_empty_text(sink_session: "SparkSession", database: EtlDatabase) -> None:
    """Delta's log has null for it."""
    folder = str(database.folder / "table")
    sink = {"type": "delta", "table": folder, "mode": "append", "partition_by": ["p"], "shared": True}
    database.run(sink_session, query(database, "SELECT 1 AS n, NULL::text AS p") | {"sink": sink})
    with pytest.raises(Exception, match="column p: an empty text would be null as a partition") as raised:
        database.run(sink_session, query(database, "SELECT 1 AS n, '' AS p") | {"sink": sink}, 2, 2)
    assert type(raised.value).__name__ == "BatchUnfit"


def test_a_preview_shows_what_the_run_would_write(sink_session: "SparkSession", database: EtlDatabase) -> None:
    database.sql(
        'CREATE TABLE src ("A" numeric, a date, at timestamptz); '
        "INSERT INTO src VALUES ('NaN', 'infinity', '0044-03-15 BC'), (340282366920938463464, '2026-01-02', NULL)"
    )
    params = {"source": database.end(table="src"), "sink": database.end(table="dst", mode="append")}
    found = preview_transformed(database.attempt(params), 5, lambda: nullcontext(sink_session))
    assert [each["type"] for each in found["columns"]] == ["numeric", "date", "timestamp with time zone"]
    shown = [["NaN", "infinity", "-0043-03-15 00:00:00"], ["340282366920938463464", "2026-01-02", None]]
    assert all(row in found["rows"] for row in shown)
    with pytest.raises(Exception, match="column A: the value NaN is no decimal"):
        preview_transformed(database.attempt(params | SQL), 5, lambda: nullcontext(sink_session))
