"""Rows into an SQLite file with real Spark: other programs, links, a full disk, and attempts that are killed."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from spark_tasks.contracts.sink import SinkAway
from spark_tasks.etl.kind import Etl
from spark_tasks.etl.opening import open_sink
from spark_tasks.sqlite import file as sqlite_file
from tasks.access import Access, AccessRefused
from tasks.kind import Fenced
from testkit.execution.one_attempt import kill_at_any_moment
from testkit.faults import mounts, small_disk
from testkit.spark.shelf import Shelf

pytestmark = [pytest.mark.integration, pytest.mark.spark]

ROOT = Path(__file__).parents[3]


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
        "from spark_tasks.sqlite.file import SqliteFile; "
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
    batches = 3 * kills + 2
    shelf.numbers(1000 * batches)
    params = shelf.params() | {"incremental": {"cursor": "id", "lag_s": 0, "batch_rows": 1000}}
    draw = random.Random(14)
    lost = Counter(kill_at_any_moment(shelf.started(params, token), draw) for token in range(1, kills + 1))
    print(f"{kills} attempts were killed, by what they were doing: {dict(lost)}")
    Etl().run(shelf.attempt(params, token=kills + 1))
    rows = 1000 * batches
    assert shelf.there("SELECT count(*), count(DISTINCT id), max(id) FROM dst") == [(rows, rows, rows)]
    assert shelf.there("SELECT batch, rows FROM rota_batches") == [(number, 1000) for number in range(1, batches + 1)]
    assert {path.name for path in shelf.target.parent.iterdir()} == {"target.db"}
