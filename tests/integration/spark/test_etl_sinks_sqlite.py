"""Rows into a table of an SQLite file with real Spark: each batch once, and read back as they were."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from spark_tasks.etl.kind import Etl
from spark_tasks.etl.params import EtlParams
from spark_tasks.sinks import sqlite_file
from spark_tasks.sinks.fetched import fetch
from spark_tasks.sinks.opening import open_sink
from spark_tasks.sinks.port import SinkAway, SinkUnfit
from spark_tasks.spark.session import spark_session
from tasks.access import Access, AccessRefused
from tasks.kind import Fenced
from testkit import mounts, small_disk
from testkit.fake_context import FakeContext

pytestmark = [pytest.mark.integration, pytest.mark.spark]

ROOT = Path(__file__).parents[3]


class Shelf:
    """A source file and a target file in a folder, with attempts at one task between them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "source.db"
        self.target = folder / "out" / "target.db"
        self.target.parent.mkdir()
        self.attempts = 0

    def sql(self, text: str, *values: Any, file: Path | None = None) -> list[Any]:
        with closing(sqlite3.connect(file or self.file)) as database, database:
            return database.execute(text, values).fetchall()

    def there(self, text: str, *values: Any) -> list[Any]:
        return self.sql(text, *values, file=self.target)

    def tables(self) -> set[str]:
        """The tables of the target but for Rota's own."""
        names = {name for (name,) in self.there("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        return names - {"rota_sinks", "rota_batches"}

    def numbers(self, last: int, file: Path | None = None) -> None:
        """A table `src` with the rows 1 to `last`, in the source file or another."""
        self.sql("CREATE TABLE src (id INTEGER PRIMARY KEY, v TEXT, gone INTEGER)", file=file)
        self.sql(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
            "INSERT INTO src SELECT i, 'v' || i, 0 FROM n",
            last,
            file=file,
        )

    def params(self, sql: str | None = None, source: dict[str, Any] | None = None, **sink: Any) -> dict[str, Any]:
        given = {"type": "sqlite", "path": str(self.target), "table": "dst", "mode": "append", "shared": True}
        from_file = {"type": "sqlite", "path": str(self.file), "table": "src", "shared": True}
        transform = {} if sql is None else {"transform": {"sql": sql}}
        return {"source": from_file | (source or {}), "sink": given | sink} | transform

    def attempt(self, params: dict[str, Any], token: int = 1, run: int = 1) -> FakeContext[EtlParams]:
        self.attempts += 1
        scratch = self.folder / f"scratch-{self.attempts}"
        return FakeContext(EtlParams.model_validate(params), scratch, task="t", run_id=f"t~{run}", token=token)

    def started(self, params: dict[str, Any], token: int, die_at: str = "") -> "subprocess.Popen[bytes]":
        """An attempt in a process of its own, which gets SIGKILL when it logs `die_at`."""
        self.attempts += 1
        file = self.folder / f"attempt-{self.attempts}.json"
        given: dict[str, Any] = {"kind": "spark_tasks.etl.kind:Etl", "params": params, "task": "t", "run_id": "t~1"}
        given |= {"token": token, "secrets": {}, "die_at": die_at, "scratch": str(self.folder / f"s-{self.attempts}")}
        file.write_text(json.dumps(given))
        return subprocess.Popen([sys.executable, "-m", "testkit.one_attempt", str(file)], cwd=ROOT)


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


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
def test_a_locked_file_is_waited_for_and_then_left_to_a_later_attempt(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "BUSY_S", 1)
    shelf.numbers(5)
    with closing(sqlite3.connect(shelf.target, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        began_s = time.monotonic()
        with pytest.raises(SinkAway, match="another program has kept it locked"):
            Etl().run(shelf.attempt(shelf.params()))
        assert time.monotonic() - began_s >= 1
        other.execute("COMMIT")
    assert Etl().run(shelf.attempt(shelf.params(), token=2))["rows"] == 5


@pytest.mark.soak
def test_links_and_the_node_s_own_files_are_refused(shelf: Shelf) -> None:
    shelf.numbers(5)
    own, secret = shelf.folder / "own", shelf.folder / "own" / "raft.db"
    own.mkdir()
    with closing(sqlite3.connect(secret)) as database, database:
        database.execute("CREATE TABLE dst (id INTEGER, v TEXT, gone INTEGER)")
    before = secret.read_bytes()
    access = Access("node-1", ("/",), (str(shelf.target.parent),), ("*",), ("*",), (str(own),))
    token = iter(range(1, 100))

    def refused(match: str) -> None:
        context = shelf.attempt(shelf.params(), token=next(token))
        context.access = access
        with pytest.raises(AccessRefused, match=match):
            Etl().run(context)

    shelf.target.symlink_to(secret)
    refused("is node-1's own")
    shelf.target.unlink()
    os.link(secret, shelf.target)
    refused("another path to one of node-1's own")
    shelf.target.unlink()
    shelf.target.symlink_to(shelf.folder / "elsewhere.db")
    refused("ROTA_DESTINATION_ROOTS")
    shelf.target.unlink()
    shelf.there("CREATE TABLE other (id INTEGER)")
    for suffix in ("-journal", "-wal", "-shm"):
        beside = shelf.target.with_name(shelf.target.name + suffix)
        beside.symlink_to(secret)
        refused(f"target.db{suffix} is a link")
        beside.unlink()
        os.link(secret, beside)
        refused("another path to one of node-1's own")
        beside.unlink()
    assert secret.read_bytes() == before
    assert not (shelf.folder / "elsewhere.db").exists()
    allowed = shelf.attempt(shelf.params(), token=99)
    allowed.access = access
    assert Etl().run(allowed)["rows"] == 5


@pytest.mark.soak
def test_a_file_that_is_exchanged_while_it_is_opened_is_refused_before_anything_is_written(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.there("CREATE TABLE dst (id INTEGER)")
    other = shelf.target.with_name("other.db")
    with closing(sqlite3.connect(other)) as database, database:
        database.execute("CREATE TABLE dst (id INTEGER)")
    before = other.read_bytes()
    connect = sqlite3.connect

    def exchanged(*given: Any, **more: Any) -> sqlite3.Connection:
        shelf.target.unlink()
        os.link(other, shelf.target)
        made: sqlite3.Connection = connect(*given, **more)
        return made

    context = shelf.attempt(shelf.params())
    sink = open_sink(context, context.params.sink)
    monkeypatch.setattr(sqlite3, "connect", exchanged)
    with pytest.raises(AccessRefused, match="was exchanged for another file while it was opened"):
        sink.claim(1, instead_of=None)
    assert other.read_bytes() == before


@pytest.mark.soak
@pytest.mark.skipif(mounts.why_not() is not None, reason=str(mounts.why_not()))
def test_a_file_that_may_only_be_read_and_a_folder_that_is_missing_are_named(shelf: Shelf) -> None:
    shelf.there("CREATE TABLE dst (id INTEGER)")
    code = (
        "from spark_tasks.sinks.sqlite_file import SqliteFile; "
        "from tasks.access import EVERYTHING; from tasks.file_guard import FileGuard; import sys\n"
        "with SqliteFile(sys.argv[1], FileGuard(EVERYTHING, 'destination')).writing() as database: "
        "database.execute('CREATE TABLE other (id)')"
    )
    folder = str(shelf.target.parent)
    remount = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"'
    within = ["unshare", "--mount", "--propagation", "private", "sh", "-c", remount, "sh", folder]
    command = [*within, sys.executable, "-c", code, str(shelf.target)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "SinkUnfit: " in done.stderr
    assert "this member may only read it" in done.stderr
    missing = shelf.attempt(shelf.params(path=str(shelf.folder / "nowhere" / "x.db")))
    with pytest.raises(SinkAway, match=r"nowhere/x\.db cannot be opened: No such file or directory"):
        Etl().run(missing)


@pytest.mark.soak
@pytest.mark.skipif(small_disk.why_not() is not None, reason=str(small_disk.why_not()))
def test_a_full_disk_leaves_nothing_of_a_batch(shelf: Shelf) -> None:
    shelf.numbers(3000)
    folder = shelf.folder / "small"
    disk = small_disk.SmallDisk(folder)
    try:
        target = folder / "target.db"
        params = shelf.params("SELECT id, repeat(v, 10000) AS v FROM source", path=str(target))
        with pytest.raises(SinkAway, match="the disk is full"):
            Etl().run(shelf.attempt(params))
        assert shelf.sql("SELECT count(*) FROM rota_batches", file=target) == [(0,)]
        assert shelf.sql("SELECT count(*) FROM sqlite_schema WHERE name = 'dst'", file=target) == [(0,)]
        few = shelf.params("SELECT id, v FROM source", path=str(target))
        assert Etl().run(shelf.attempt(few, token=2))["rows"] == 3000
    finally:
        disk.close()


@pytest.mark.soak
def test_of_two_attempts_at_once_the_one_that_was_overtaken_commits_nothing(shelf: Shelf) -> None:
    shelf.numbers(100)
    old, new = shelf.attempt(shelf.params(), token=1), shelf.attempt(shelf.params(), token=2)

    def overtake(value: Any) -> None:
        if value["plan"] is None:
            return
        assert open_sink(new, new.params.sink).claim(2, instead_of=1)

        def fenced(value: Any) -> None:
            raise Fenced("token 2 has the run")

        old.before_checkpoint = fenced

    old.before_checkpoint = overtake
    with pytest.raises(Fenced):
        Etl().run(old)
    assert shelf.tables() == set()
    assert Etl().run(new)["rows"] == 100
    assert shelf.there("SELECT count(*), count(DISTINCT id) FROM dst") == [(100, 100)]
    assert not open_sink(old, old.params.sink).claim(1, instead_of=1)


@pytest.mark.soak
@pytest.mark.parametrize("die_at", ["is planned", "rows are staged", "is committed"])
def test_an_attempt_that_is_killed_leaves_all_of_a_batch_or_nothing(shelf: Shelf, die_at: str) -> None:
    shelf.numbers(1000)
    assert shelf.started(shelf.params(), 1, die_at).wait(timeout=240) == -signal.SIGKILL
    committed = die_at == "is committed"
    assert shelf.tables() == ({"dst"} if committed else set())
    assert Etl().run(shelf.attempt(shelf.params(), token=2))["rows"] == (0 if committed else 1000)
    assert shelf.there("SELECT count(*), count(DISTINCT id) FROM dst") == [(1000, 1000)]


@pytest.mark.parametrize("kills", [pytest.param(3, marks=pytest.mark.soak), pytest.param(20, marks=pytest.mark.soak)])
def test_attempts_that_are_killed_at_any_moment_neither_lose_nor_double_a_row(shelf: Shelf, kills: int) -> None:
    shelf.numbers(100_000)
    params = shelf.params() | {"incremental": {"cursor": "id", "lag_s": 0, "batch_rows": 1000}}
    draw = random.Random(14)

    def committed() -> int:
        return (
            int(shelf.there("SELECT count(*) FROM rota_batches")[0][0])
            if shelf.target.exists() and shelf.tables()
            else 0
        )

    for token in range(1, kills + 1):
        attempt = shelf.started(params, token)
        enough, deadline_s = committed() + draw.randint(0, 4), time.monotonic() + 240
        while attempt.poll() is None and committed() < enough:
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        time.sleep(draw.uniform(0, 0.5))  # any moment of the next batch
        attempt.kill()
        attempt.wait()
    before = committed()
    Etl().run(shelf.attempt(params, token=kills + 1))
    assert shelf.there("SELECT count(*), count(DISTINCT id), max(id) FROM dst") == [(100_000, 100_000, 100_000)]
    print(f"{before} of 100 batches were committed by {kills} attempts that were killed")


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
