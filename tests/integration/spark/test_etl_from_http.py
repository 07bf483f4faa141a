"""ETL from an HTTP API to PostgreSQL with real Spark."""

import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("adbc_driver_postgresql", reason="the extra `spark` is not installed")

from node.cli.local import wait_for
from spark_tasks.contracts.source import SourceReplaced, SourceUnfit
from spark_tasks.etl.kind import Etl
from spark_tasks.spark.session import spark_session
from tasks.access import Access, AccessRefused
from testkit.changing.api import ChangingApi
from testkit.changing.rows import wrong_versions
from testkit.servers.api_server import Request, Response, api_server, as_json
from testkit.spark.databases import EtlDatabase

pytestmark = [pytest.mark.integration, pytest.mark.spark]

COLUMNS = {
    "id": "bigint",
    "name": "string",
    "ok": "boolean",
    "price": "decimal(10,2)",
    "f": "double",
    "day": "date",
    "at": "timestamp",
    "tags": "json",
}


def _record(number: int, **more: Any) -> dict[str, Any]:
    at = f"2026-01-01T{number // 60:02}:{number % 60:02}:00.000001+01:00"
    record = {"id": number, "name": f"Größe {number}", "ok": number % 2 == 0, "price": f"{number}.50", "f": number / 7}
    return record | {"day": "2026-01-02", "at": at, "tags": ["a", {"n": number}], "not named": 1} | more


@pytest.mark.more
def test_records_arrive_with_their_types_and_later_ones_by_the_cursor(database: EtlDatabase, tmp_path: Path) -> None:
    records = [_record(number) for number in range(45)] + [{"id": 45, "at": "2026-01-01T00:50:00Z"}]
    asked: list[str] = []

    def answer(request: Request) -> Response:
        asked.append(request.target)
        assert request.headers["Authorization"] == "Bearer hush"
        page = int(request.target.rpartition("=")[2])
        # A record that moves to the next page comes twice.
        return as_json({"data": {"items": records[max(0, 20 * page - 21) : 20 * page]}})

    database.secrets["token"] = "hush"
    with api_server(answer) as url, spark_session("http", tmp_path / "spark") as spark:
        source = {
            "type": "http",
            "url": f"{url}/v1/orders",
            "bearer": {"secret": "token"},
            "records": "data.items",
            "columns": COLUMNS,
            "pages": {"parameter": "page"},
            "keys": ["id"],
        }
        params = {
            "source": source,
            "incremental": {"cursor": "at", "parameter": "since", "lag_s": 60},
            "sink": database.end(table="dst", mode="append"),
        }
        assert database.run(spark, params).rows == 46
        assert len(asked) == 4, "a plan that is made again after the sink was claimed does not ask again"
        database.sql(
            "CREATE TABLE expected AS SELECT n::bigint AS id, 'Größe ' || n AS name, n % 2 = 0 AS ok, "
            "(n + 0.5)::numeric(10,2) AS price, n / 7.0::double precision AS f, date '2026-01-02' AS day, "
            "timestamptz '2026-01-01 00:00:00.000001+01' + n * interval '1 min' AS at, "
            """format('["a",{"n":%s}]', n) AS tags FROM generate_series(0, 44) n;"""
            "INSERT INTO expected (id, at) VALUES (45, '2026-01-01T00:50:00Z')"
        )
        assert database.differ("SELECT * FROM expected", "SELECT * FROM dst") == ""
        assert database.run(spark, params, token=2, run=2).batches == 0
        assert "since=2026-01-01T00%3A50%3A00Z" in asked[4]
        late = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        records[:] = [_record(7, at="2026-01-01T02:00:00Z", name="new"), _record(60, at=late)]
        assert database.run(spark, params, token=3, run=3).rows == 1
        assert database.sql("SELECT name FROM dst WHERE id = 7 ORDER BY at DESC LIMIT 1") == "new"
        other = params | {"incremental": {"cursor": "id", "lag_s": 0}}
        with pytest.raises(SourceReplaced, match="and the task now says id"):
            database.run(spark, other, token=4, run=4)


@pytest.mark.soak
def test_a_value_of_another_type_is_named_with_its_page_and_record(database: EtlDatabase) -> None:
    records = [[_record(1), _record(2)], [_record(3), _record(4, price="4.505")], []]

    def answer(request: Request) -> Response:
        return as_json(records[int(request.target.rpartition("=")[2]) - 1])

    with api_server(answer) as url:
        source = {"type": "http", "url": f"{url}/rows", "columns": COLUMNS, "pages": {"parameter": "page"}}
        params = {"source": source, "sink": database.end(table="dst", mode="replace")}
        with pytest.raises(SourceUnfit, match=r'page 2, record 2: price is no decimal\(10,2\): "4.505"'):
            Etl().run(database.attempt(params))
        records[1] = [7]  # type: ignore[list-item]
        with pytest.raises(SourceUnfit, match="page 2, record 1: it is no object: 7"):
            Etl().run(database.attempt(params, token=2))
        locked = database.attempt(params, token=3)
        locked.access = Access("node-1", source_hosts=("other",), destination_hosts=("*",))
        with pytest.raises(AccessRefused, match="allows no such source"):
            Etl().run(locked)


LAG_S = 1.5


@pytest.mark.parametrize("batches", [pytest.param(4, marks=pytest.mark.soak), pytest.param(50, marks=pytest.mark.soak)])
def test_nothing_is_missing_and_nothing_twice_of_records_that_change_while_they_are_read(
    database: EtlDatabase, tmp_path: Path, batches: int
) -> None:
    api, done, token, deadline_s = ChangingApi(seed=9), 0, 0, time.monotonic() + 30 * batches
    with api_server(api.answer) as url, spark_session("changing", tmp_path / "spark") as spark:
        source = {
            "type": "http",
            "url": url + "/rows",
            "records": "items",
            "columns": {"id": "bigint", "version": "bigint", "at": "timestamp"},
            "pages": {"parameter": "token", "by": "token", "token": "next"},
        }
        params = {
            "source": source,
            "incremental": {"cursor": "at", "parameter": "since", "lag_s": LAG_S},
            "sink": database.end(table="dst", mode="append"),
        }
        api.start()
        try:
            while done < batches:
                assert time.monotonic() < deadline_s, f"only {done} batches"
                token += 1
                done += database.run(spark, params, token, token).batches
        finally:
            api.stop()
        wait_for("each record is as old as the lag", lambda: time.time() >= api.newest_s() + LAG_S, 60)
        database.run(spark, params, 1_000_000, 1_000_000)
    assert wrong_versions(api.versions(), database.versions("dst")) == []
    print(f"{api.changes} changes and {api.requests} requests while {done} batches ran")
