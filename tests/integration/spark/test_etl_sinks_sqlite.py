"""Rows into a table of an SQLite file with real Spark: each batch once, and read back as they were."""

import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from spark_tasks.contracts.fetched import fetch
from spark_tasks.contracts.sink import SinkUnfit
from spark_tasks.etl.kind import Etl
from spark_tasks.spark.session import spark_session
from testkit.spark.shelf import Shelf

pytestmark = [pytest.mark.integration, pytest.mark.spark]


ALL_TYPES = """
SELECT id, CAST(id AS TINYINT) AS tiny, 9223372036854775807 AS big, id = 1 AS ok, CAST(0.1 AS FLOAT) AS f,
  double('Infinity') AS d, CAST('12345678901234567890.10' AS DECIMAL(38,2)) AS price,
  timestamp '2026-01-02 03:04:05.000006' AS at, timestamp_ntz '0999-01-02 03:04:05' AS wall, date '2026-03-01' AS day,
  unhex('00FF') AS raw, '007 Größe' AS text, CAST(null AS DATE) AS nothing, named_struct('n', 1.10) AS s,
  array(1, 2) AS list
FROM source
"""
BACK = """
SELECT id, CAST(tiny AS TINYINT) AS tiny, big, CAST(ok AS BOOLEAN) AS ok, CAST(f AS FLOAT) AS f, d,
  CAST(price AS DECIMAL(38,2)) AS price, CAST(at AS TIMESTAMP) AS at, CAST(wall AS TIMESTAMP_NTZ) AS wall,
  CAST(day AS DATE) AS day, raw, text, CAST(nothing AS DATE) AS nothing,
  from_json(s, 'n DECIMAL(3,2)') AS s, from_json(list, 'ARRAY<INT>') AS list
FROM source
"""


@pytest.mark.more
def test_all_types_are_kept_as_stated_and_read_back_equal(shelf: Shelf) -> None:
    shelf.numbers(3)
    result = Etl().run(shelf.attempt(shelf.params(ALL_TYPES, mode="replace")))
    assert (result["rows"], result["batches"], result["cursor"]) == (3, 1, None)
    assert shelf.there("SELECT * FROM dst WHERE id = 1") == [
        (
            1,
            1,
            9223372036854775807,
            1,
            0.10000000149011612,
            float("inf"),
            "12345678901234567890.10",
            "2026-01-02T03:04:05.000006Z",
            "0999-01-02T03:04:05.000000",
            "2026-03-01",
            b"\x00\xff",
            "007 Größe",
            None,
            '{"n":"1.10"}',
            "[1,2]",
        )
    ]
    declared = [row[2] for row in shelf.there("PRAGMA table_info(dst)")]
    assert (
        " ".join(declared) == "INTEGER INTEGER INTEGER INTEGER REAL REAL TEXT TEXT TEXT TEXT BLOB TEXT TEXT TEXT TEXT"
    )
    # Read by the source and written again, through the same types: nothing has changed.
    again = shelf.params(BACK, {"path": str(shelf.target), "table": "dst"}, table="again")
    Etl().run(shelf.attempt(again, token=2, run=2))
    assert shelf.there("SELECT * FROM dst EXCEPT SELECT * FROM again") == []
    assert shelf.there("SELECT count(*) FROM again") == [(3,)]
    # The same run again, as after a crash behind the commit: it is in already.
    assert Etl().run(shelf.attempt(again, token=3, run=2))["batches"] == 0


@pytest.mark.soak
@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_batches_follow_a_cursor_and_a_key_is_updated_or_deleted(shelf: Shelf, journal: str) -> None:
    shelf.there(f"PRAGMA journal_mode={journal}")
    shelf.numbers(10, file=shelf.target)
    # Source and target may be one file: a reader does not keep the sink of the same attempt out.
    source = {"path": str(shelf.target)}
    params = shelf.params(None, source, mode="upsert", keys=["id"], tombstone="gone")
    params["transform"] = {"sql": "SELECT id % 6 AS id, max(v) AS v, bool_or(gone = 1) AS gone FROM source GROUP BY 1"}
    params["incremental"] = {"cursor": "id", "lag_s": 0, "batch_rows": 6}
    first = Etl().run(shelf.attempt(params))
    assert (first["rows"], first["deleted"], first["batches"]) == (10, 0, 2)
    assert shelf.there("SELECT * FROM dst ORDER BY id") == [
        (0, "v6"),
        (1, "v7"),
        (2, "v8"),
        (3, "v9"),
        (4, "v10"),
        (5, "v5"),
    ]
    shelf.there("INSERT INTO src VALUES (12, 'new', 0), (13, 'gone', 1)")
    later = Etl().run(shelf.attempt(params, token=2, run=2))
    assert (later["rows"], later["deleted"]) == (1, 1)
    assert shelf.there("SELECT * FROM dst WHERE id < 2") == [(0, "new")]
    assert shelf.there("SELECT batch, token, rows, deleted FROM rota_batches ORDER BY batch") == [
        (1, 1, 6, 0),
        (2, 1, 4, 0),
        (3, 2, 1, 1),
    ]
    assert Etl().run(shelf.attempt(params, token=3, run=3))["batches"] == 0


@pytest.mark.soak
def test_nothing_is_half_done_when_a_row_is_refused(shelf: Shelf) -> None:
    shelf.numbers(5)
    shelf.there("CREATE TABLE dst (id INTEGER UNIQUE, v TEXT CHECK (v <> 'v4'))")
    shelf.there("INSERT INTO dst VALUES (3, 'old')")
    append = shelf.params("SELECT id, v FROM source")
    with pytest.raises(SinkUnfit, match=r"target\.db: a row violates a constraint \(UNIQUE constraint failed: dst\.id"):
        Etl().run(shelf.attempt(append))
    replace = shelf.params("SELECT id, v FROM source", mode="replace")
    with pytest.raises(SinkUnfit, match="CHECK constraint failed"):
        Etl().run(shelf.attempt(replace, token=2))
    assert shelf.there("SELECT * FROM dst") == [(3, "old")]
    assert shelf.there("SELECT count(*) FROM rota_batches") == [(0,)]


@pytest.mark.soak
def test_errors_name_what_is_wrong_in_a_sentence(shelf: Shelf) -> None:
    shelf.numbers(3)
    shelf.there("CREATE TABLE dst (id INTEGER, v TEXT COLLATE NOCASE, price DECIMAL(10,2), r REAL)")
    shelf.there("CREATE VIEW seen AS SELECT id FROM dst")
    token = iter(range(1, 100))

    def fails(match: str, sql: str, **sink: Any) -> None:
        with pytest.raises(SinkUnfit, match=match):
            Etl().run(shelf.attempt(shelf.params(sql, **sink), token=next(token)))

    fails("the table dst has no column w; it has id, v, price, r", "SELECT id, v AS w FROM source")
    fails("seen is a view, and not a table", "SELECT id FROM source", table="seen")
    fails("the rows lack k; they have id", "SELECT id FROM source", mode="upsert", keys=["k"])
    fails(r"no unique index on \(id\)", "SELECT id FROM source", mode="upsert", keys=["id"])
    fails("column f has NaN", "SELECT id, CAST('NaN' AS DOUBLE) AS f FROM source", table="new")
    wide = "SELECT id, CAST(id AS DECIMAL(20,2)) AS price FROM source"
    fails(r"price is declared DECIMAL\(10,2\), which would lose digits", wide)
    fails("r is declared REAL, which would lose digits of int64", "SELECT id AS r FROM source")
    shelf.there("CREATE UNIQUE INDEX by_v ON dst (v)")
    upsert = {"mode": "upsert", "keys": ["v"]}
    fails(
        "one batch has 2 rows with the keys [Aa]; make",
        "SELECT if(id = 1, 'a', 'A') AS v FROM source WHERE id < 3",
        **upsert,
    )
    fails("3 rows of a batch have a null in their keys", "SELECT CAST(null AS STRING) AS v FROM source", **upsert)
    fails("two columns ID", "SELECT id, v AS ID FROM source", table="new")
    assert shelf.there("SELECT count(*) FROM dst") == [(0,)]
    shelf.target.write_bytes(b"no database at all, but long enough to have a header of one" * 20)
    fails("it is no SQLite database", "SELECT id FROM source")


@pytest.mark.soak
def test_rows_of_executors_elsewhere_are_those_of_executors_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    with spark_session("fetch", tmp_path / "spark") as spark:
        rows = spark.range(20_000, numPartitions=3).selectExpr(
            "id",
            "if(id % 2 = 0, null, timestamp '2026-07-01 00:00:00' + make_interval(0, 0, 0, 0, 0, 0, id)) AS at",
            "timestamp_ntz '2026-01-01 00:00:00' AS wall",
            "CAST(id / 7 AS DECIMAL(20,5)) AS price",
            "CAST(CAST(id AS STRING) AS BINARY) AS raw",
            "date_add(date '2026-01-01', CAST(id % 100 AS INT)) AS day",
            "named_struct('at', timestamp '2026-01-01 00:00:00', 'list', array(id, null)) AS s",
            "map('a', named_struct('n', id)) AS m",
        )
        here, there = fetch(rows, tmp_path / "here", local=True), fetch(rows, tmp_path / "there", local=False)
        one = [row for batch in here.batches() for row in batch.to_pylist()]
        other = [row for batch in there.batches() for row in batch.to_pylist()]
    monkeypatch.undo()
    time.tzset()
    assert len(one) == 20_000
    assert sorted(one, key=lambda row: row["c0"]) == sorted(other, key=lambda row: row["c0"])
    assert here.schema().names == there.schema().names
