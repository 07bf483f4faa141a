"""A batch is committed once to a table in an object store, whichever attempt tries. Real Delta, without Spark."""

import json
import os
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

pytest.importorskip("moto.server", reason="moto[server] is not installed")
pytest.importorskip("s3fs", reason="the extra `s3` is not installed")
pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("deltalake", reason="the extra `spark` is not installed")

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from pyarrow import parquet

from spark_tasks.storage.delta_options import delta_options
from spark_tasks.storage.errors import NoPermission, StoreAway
from spark_tasks.table import ledger, object_writer
from spark_tasks.table.delta import PROBE, Overtaken, Table, TableUnfit
from spark_tasks.table.ledger import LedgerDamaged, Mark
from spark_tasks.table.object_writer import ObjectWriter
from tasks.place import NoBucket, Place
from testkit.object_store import BUCKET, SECRET, ObjectStore, object_store
from tests.integration.tables import SCHEMA, commit, object_table, write_batch

pytestmark = pytest.mark.integration


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    with object_store() as running:
        yield running


def _delta(store: ObjectStore, name: str = "table") -> DeltaTable:
    return DeltaTable(store.url(name), storage_options=delta_options(store.options, "us-east-1"))


def _numbers(store: ObjectStore) -> list[int]:
    return sorted(_delta(store).to_pyarrow_table().column("n").to_pylist())


def test_batches_follow_one_another_and_the_ledger_says_what_they_brought(store: ObjectStore) -> None:
    table = object_table(store)
    assert (table.last(), table.version(), table.schema_json()) == (None, None, None)
    first = write_batch(table, Mark(1, 5), [1, 2])
    assert not table.ledger.has(2)
    assert [commit(table, Mark(1, 5)) for _ in range(2)] == [1, 1], "the same attempt may repeat it"
    second = write_batch(table, Mark(2, 9), [3], previous=Mark(1, 5))
    assert table.ledger.has(2)
    assert commit(table, Mark(2, 9)) == 2
    assert table.last() == Mark(2, 9)
    assert list(table.ledger.pages(table.last())) == [second, first]
    assert _numbers(store) == [1, 2, 3]
    assert {*first.parts, *second.parts} < set(store.names("table"))


@pytest.mark.parametrize("batch", [1, 2])
def test_of_two_writers_that_race_one_commits_a_batch(
    store: ObjectStore, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have read the table before either commits: only the store's refusal of a second write is left."""
    if batch == 2:
        write_batch(object_table(store), Mark(1, 1), [0])
        commit(object_table(store), Mark(1, 1))
    both_have_read = threading.Barrier(2)
    check_follows = Table._check_follows

    def meet(self: Table, mark: Mark, last: Mark | None) -> None:
        check_follows(self, mark, last)
        both_have_read.wait(timeout=30)

    monkeypatch.setattr(Table, "_check_follows", meet)
    outcomes: dict[int, str] = {}

    def attempt(token: int) -> None:
        try:
            commit(object_table(store), Mark(batch, token))
            outcomes[token] = "committed"
        except Overtaken:
            outcomes[token] = "refused"

    for token in (7, 8):
        write_batch(object_table(store), Mark(batch, token), [token])
    writers = [threading.Thread(target=attempt, args=(token,)) for token in (7, 8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(outcomes.values()) == ["committed", "refused"]
    winner = next(token for token, outcome in outcomes.items() if outcome == "committed")
    assert object_table(store).last() == Mark(batch, winner)
    assert _numbers(store) == ([0, winner] if batch == 2 else [winner])


def test_of_many_that_make_the_table_one_does_and_all_use_it(store: ObjectStore) -> None:
    """deltalake alone lets several succeed: the later ones replace the schema of the first in another version."""
    together = threading.Barrier(4)
    versions: list[int] = []

    def make(token: int) -> None:
        table = object_table(store, task=f"task-{token}")
        write_batch(table, Mark(1, token), [token])
        together.wait(timeout=30)
        versions.append(commit(table, Mark(1, token)))

    makers = [threading.Thread(target=make, args=(token,)) for token in range(1, 5)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    assert max(versions) == 4
    assert _numbers(store) == [1, 2, 3, 4]
    created = [
        line
        for name in store.names("table/_delta_log")
        for line in store.files.cat_file(f"{BUCKET}/table/_delta_log/{name}").splitlines()
        if "metaData" in json.loads(line)
    ]
    assert len(created) == 1


def test_an_old_token_commits_nothing_once_a_later_one_has_the_table(store: ObjectStore) -> None:
    table = object_table(store)
    assert (table.holder(), table.claim(6, instead_of=None)) == (None, False), "there is no table"
    write_batch(table, Mark(1, 5), [1])
    commit(table, Mark(1, 5))
    assert not table.claim(6, instead_of=4)
    assert table.claim(6, instead_of=5)
    write_batch(table, Mark(2, 5), [2], previous=Mark(1, 5))
    with pytest.raises(Overtaken, match=r"token 6, not .*holds"):
        commit(table, Mark(2, 5))
    assert (table.holder(), _numbers(store)) == (6, [1])


def test_an_old_token_that_has_read_the_table_already_commits_nothing_either(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = object_table(store)
    write_batch(table, Mark(1, 5), [1])
    commit(table, Mark(1, 5))
    write_batch(table, Mark(2, 5), [2], previous=Mark(1, 5))
    monkeypatch.setattr(Table, "_check_follows", lambda self, mark, last: self.claim(6, instead_of=5))
    with pytest.raises(Overtaken, match=r"token 6, not .*holds"):
        commit(table, Mark(2, 5))
    assert _numbers(store) == [1]


def test_a_commit_by_another_handle_than_the_one_that_was_checked_is_what_these_tests_catch(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handle that is opened after the other's commit takes the same batch again: rows would be there twice."""
    append = Table._append

    def by_a_later_handle(self: Table, table: DeltaTable, *rest: object, **more: object) -> None:
        append(self, self._load(), *rest, **more)  # type: ignore[arg-type]

    def overtaken(self: Table, mark: Mark, last: Mark | None) -> None:
        monkeypatch.setattr(Table, "_check_follows", lambda *_: None)
        commit(object_table(store), Mark(2, 8))

    for mark in (Mark(1, 7), Mark(2, 7), Mark(2, 8)):
        write_batch(object_table(store), mark, [mark.batch])
    commit(object_table(store), Mark(1, 7))
    monkeypatch.setattr(Table, "_append", by_a_later_handle)
    monkeypatch.setattr(Table, "_check_follows", overtaken)
    commit(object_table(store), Mark(2, 7))
    assert _numbers(store) == [1, 2, 2]


def test_what_never_counted_is_removed_and_nothing_else(store: ObjectStore) -> None:
    table = object_table(store)
    pages = {}
    for mark in (Mark(1, 1), Mark(1, 2), Mark(2, 1), Mark(3, 3)):
        pages[mark] = write_batch(table, mark, [mark.token], None if mark.batch == 1 else Mark(1, 2))
    assert table.clean("run") == []
    commit(table, Mark(1, 2))
    stray = f"{table.parquet_folder(Mark(1, 2))}/part-00000-9-done-twice.snappy.parquet"
    table.place.write_whole(stray, b"PAR1")
    assert table.clean("another run") == ["_rota/task/00000001-1.json", "task/00000001-1"]
    assert table.clean("run") == [stray]
    kept = {PROBE} | {f"_rota/task/{mark.name}.json" for mark in pages if mark != Mark(1, 1)}
    kept |= {part for mark, page in pages.items() if mark != Mark(1, 1) for part in page.parts}
    assert {name for name in store.names("table") if not name.startswith("_delta_log/")} == kept
    assert _numbers(store) == [2]


def test_a_long_ledger_is_read_some_pages_at_a_time(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "AHEAD", 3)
    table = object_table(store)
    page = write_batch(table, Mark(1, 1), [1])
    for batch in range(2, 11):
        for token in (1, 10):  # one of them did not count
            table.ledger.write(replace(page, mark=Mark(batch, token), previous=Mark(batch - 1, 1)))
    assert [page.mark.batch for page in table.ledger.pages(Mark(10, 1))] == list(range(10, 0, -1))
    table.place.remove("_rota/task/00000004-1.json")
    with pytest.raises(
        LedgerDamaged, match=f"contains batch 4 of task, but {store.url('table')}/_rota/task/00000004-1"
    ):
        list(table.ledger.pages(Mark(10, 1)))


def _batches(size_bytes: int) -> "Iterator[pa.RecordBatch]":
    """Record batches of numbers that do not compress."""
    for _ in range(size_bytes // 80_000):
        yield pa.record_batch({"n": pa.array(np.frombuffer(os.urandom(80_000), np.int64))})


def test_a_large_file_goes_up_in_parts_and_half_a_file_is_none(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_writer, "UPLOAD_BYTES", 5 << 20)  # the least that S3 takes
    monkeypatch.setattr(object_writer, "GROUP_BYTES", 1 << 20)
    table = object_table(store)
    writer = ObjectWriter(table.place.url, table.place.options, "task/00000001-1", "")
    sent = pa.Table.from_batches(_batches(12 << 20))
    [part] = writer.write(iter(sent.to_batches())).parts
    assert part.size_bytes == table.place.size_bytes(part.path)
    assert part.size_bytes > 10 << 20
    with table.place.reading(part.path) as file:
        footer = parquet.read_metadata(file)
        assert (footer.num_row_groups, footer.num_rows, part.rows) == (12, sent.num_rows, sent.num_rows)
        assert parquet.read_table(file).equals(sent)

    def broken() -> "Iterator[pa.RecordBatch]":
        yield from _batches(12 << 20)
        raise RuntimeError("the task was lost")

    with pytest.raises(RuntimeError, match="was lost"):
        writer.write(broken())
    assert store.names("table") == [part.path]
    assert writer.write(iter([])).parts == ()


def test_a_store_that_ignores_conditions_is_not_written_to(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def ignoring(self: Place, name: str, content: bytes) -> bool:
        self.write_whole(name, content)
        return True

    monkeypatch.setattr(Place, "write_new", ignoring)
    table = object_table(store)
    write_batch(table, Mark(1, 1), [1])
    with pytest.raises(TableUnfit, match="ignores conditional writes"):
        commit(table, Mark(1, 1))
    with pytest.raises(TableUnfit, match="ignores conditional writes"):
        commit(table, Mark(1, 1))
    assert table.last() is None


@pytest.mark.more
def test_a_store_that_fails_is_named_with_what_to_do(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(NoBucket, match="the bucket 'absent' does not exist"):
        Table(Place("s3://absent/table", store.options), "task")
    with pytest.raises(NoPermission, match="give `options` a key and a secret"):
        Table(Place(store.url("table"), {"endpoint_url": store.endpoint}), "task")
    table = object_table(store)
    page = write_batch(table, Mark(1, 1), [1])
    store.stop()
    with pytest.raises(StoreAway, match="does not answer") as told:
        table.commit(Mark(1, 1), SCHEMA, ())
    assert SECRET not in str(told.value)
    with pytest.raises(StoreAway, match="does not answer"):
        table.ledger.write(page)
    with pytest.raises(StoreAway, match=store.endpoint):
        object_table(store)
