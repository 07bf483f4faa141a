"""What is particular to a table in an object store. Real Delta, without Spark."""

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

pytest.importorskip("moto.server", reason="moto[server] is not installed")
pytest.importorskip("s3fs", reason="the extra `s3` is not installed")
pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("deltalake", reason="the extra `spark` is not installed")

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from spark_tasks.storage.errors import NoPermission, StoreAway
from spark_tasks.table import ledger, parquet_writer
from spark_tasks.table.delta import PROBE, Table, TableUnfit
from spark_tasks.table.ledger import LedgerDamaged, Mark
from spark_tasks.table.object_writer import ObjectWriter
from tasks.places.place import NoBucket, Place
from testkit.servers.object_store import SECRET, ObjectStore, object_store
from testkit.spark.tables import SCHEMA, InStore, commit, object_table, write_batch

pytestmark = pytest.mark.integration


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    with object_store() as running:
        yield running


def test_files_that_spark_wrote_twice_are_removed_by_the_run_that_wrote_them(store: ObjectStore) -> None:
    table = object_table(store)
    [part] = write_batch(table, Mark(1, 2), [2]).parts
    commit(table, Mark(1, 2))
    stray = f"{table.parquet_folder(Mark(1, 2))}/part-00000-9-done-twice.snappy.parquet"
    table.place.write_whole(stray, b"PAR1")
    assert table.clean("another run") == []
    assert table.clean("run") == [stray]
    assert {name for name in store.names("table") if not name.startswith("_delta_log/")} == {
        PROBE,
        table.ledger.path(Mark(1, 2)),
        part,
    }
    assert InStore(store).numbers() == [2]


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
    monkeypatch.setattr(parquet_writer, "UPLOAD_BYTES", 5 << 20)  # the least that S3 takes
    monkeypatch.setattr(parquet_writer, "GROUP_BYTES", 1 << 20)
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
