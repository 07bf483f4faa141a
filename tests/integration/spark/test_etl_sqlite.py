"""Rows of an SQLite file into PostgreSQL, with real Spark."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("adbc_driver_postgresql", reason="the extra `spark` is not installed")

from examples.demo.postgres import Server, postgres_server
from spark_tasks.contracts.source import SourceUnfit
from spark_tasks.etl.kind import Etl
from spark_tasks.etl.params import EtlParams
from tasks.access import Access, AccessRefused
from testkit.fake_context import FakeContext

pytestmark = [pytest.mark.integration, pytest.mark.spark]


@pytest.fixture
def server() -> Iterator[Server]:
    with postgres_server("hush") as running:
        yield running


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "app.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute(
            "CREATE TABLE item (id INTEGER PRIMARY KEY, price DECIMAL(10,2), f DOUBLE, raw BLOB, day DATE)"
        )
        rows = [(n, n / 100, n / 7, bytes([n]), f"2026-01-{n % 28 + 1:02}") for n in range(1, 101)]
        database.executemany("INSERT INTO item VALUES (?, ?, ?, ?, ?)", [*rows, (101, None, None, None, None)])
    return path


def _attempt(server: Server, tmp_path: Path, token: int, **params: Any) -> FakeContext[EtlParams]:
    sink = {"type": "postgres", "url": server.url("postgres"), "password": {"secret": "pg"}, "table": "item"}
    given = {"sink": sink | {"mode": "upsert", "keys": ["id"]}} | params
    return FakeContext(
        EtlParams.model_validate(given),
        tmp_path / f"scratch-{token}",
        task="items",
        run_id=f"items~{token}",
        token=token,
        secrets={"pg": "hush"},
    )


@pytest.mark.more
def test_rows_arrive_with_their_types_and_later_ones_by_the_cursor(server: Server, file: Path, tmp_path: Path) -> None:
    source = {"type": "sqlite", "path": str(file), "table": "item", "shared": True}
    incremental = {"cursor": "id", "lag_s": 0, "batch_rows": 60}
    transform = {
        "sql": "SELECT id, CAST(price AS DECIMAL(10,2)) AS price, f, raw, CAST(day AS DATE) AS day FROM source"
    }
    params = {"source": source, "incremental": incremental, "transform": transform}
    first = Etl().run(_attempt(server, tmp_path, 1, **params))
    assert (first["rows"], first["batches"], first["cursor"]) == (101, 2, {"cursor": "id", "value": 101})
    with closing(sqlite3.connect(file)) as database, database:
        there = database.execute("SELECT id, printf('%.2f', price), f, hex(raw), day FROM item ORDER BY id").fetchall()
        database.execute("INSERT INTO item (id, day) VALUES (102, '2026-02-01')")
    shown = server.sql("postgres", "SELECT id, price, f, upper(encode(raw, 'hex')), day FROM item ORDER BY id")
    *rows, last = (line.split("|") for line in shown.splitlines())
    arrived = [(int(key), price, float(f), raw, day) for key, price, f, raw, day in rows]
    assert arrived == there[:-1]
    assert last == ["101", "", "", "", ""]
    later = Etl().run(_attempt(server, tmp_path, 2, **params))
    assert (later["rows"], later["batches"]) == (1, 1)


@pytest.mark.more
def test_what_cannot_be_read_is_named(server: Server, file: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("CREATE TABLE odd (id INTEGER, n INTEGER)")
        database.execute("INSERT INTO odd VALUES (1, 'seven')")
    source = {"type": "sqlite", "path": str(file), "table": "odd"}
    with pytest.raises(SourceUnfit, match=r"odd, column n: the value 'seven' is no int64"):
        Etl().run(_attempt(server, tmp_path, 1, source=source))
    with pytest.raises(SourceUnfit, match="has no table nowhere"):
        Etl().run(_attempt(server, tmp_path, 2, source=source | {"table": "nowhere"}))
    with pytest.raises(SourceUnfit, match="lag_s: 0"):
        Etl().run(_attempt(server, tmp_path, 3, source=source, incremental={"cursor": "id"}))
    context = _attempt(server, tmp_path, 4, source=source)
    context.access = Access("node-1", ("/nowhere",), source_hosts=("*",), destination_hosts=("*",))
    with pytest.raises(AccessRefused, match="allows no such source"):
        Etl().run(context)
