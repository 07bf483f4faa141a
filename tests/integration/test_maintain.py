"""A table is kept in shape while others write it: no row is lost or doubled, and no file is ingested twice."""

import json

import pytest

pytest.importorskip("moto.server", reason="moto[server] is not installed")
pytest.importorskip("s3fs", reason="the extra `s3` is not installed")
pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("deltalake", reason="the extra `spark` is not installed")

import pyarrow as pa
from deltalake import write_deltalake

from spark_tasks.delta import log as delta_log
from spark_tasks.ingest.attempt import IngestAttempt
from spark_tasks.ingest.kind import Ingest
from spark_tasks.ingest.params import IngestParams
from spark_tasks.maintain import cleaning
from spark_tasks.maintain.errors import KeepTooShort, NoTable
from spark_tasks.maintain.kind import Maintain
from spark_tasks.storage.errors import NoPermission
from spark_tasks.table.delta import TableUnfit
from spark_tasks.table.ledger import Mark
from tasks.access import Access, AccessRefused
from tasks.places.place import NoBucket
from testkit.fake_context import FakeContext
from testkit.spark.maintained import Lakehouse
from testkit.spark.tables import commit, write_batch

pytestmark = pytest.mark.integration


def test_small_files_become_one_and_the_next_run_has_nothing_to_do(lake: Lakehouse) -> None:
    lake.put(10)
    pages, last = lake.pages(), lake.table().last()
    done = lake.maintain()
    assert (done["compacted_files"], done["files_before"], done["files_after"]) == (10, 10, 1)
    assert (done["rows"], done["removed_files"], done["dry_run"]) == (30, 0, False)
    assert (done["compared_rows"], len(done["checksum"])) == (30, 16)
    assert done["bytes_after"] < done["bytes_before"]
    assert (lake.pages(), lake.table().last()) == (pages, last)
    assert lake.is_whole()
    version = lake.delta().version()
    assert version == done["version"]
    again = lake.maintain()
    assert (again["compacted_files"], again["files_after"], again["version"], again["checksum"]) == (
        0,
        1,
        version,
        None,
    )
    lake.put(3)
    assert lake.maintain()["files_after"] <= 2
    assert lake.is_whole()


def test_a_dry_run_says_what_would_be_done_and_changes_nothing(lake: Lakehouse) -> None:
    lake.put(5)
    before = lake.contents()
    context = lake.attempt(dry_run=True, keep_h=0, full=True)
    done = Maintain().run(context)
    assert (done["compacted_files"], done["files_after"], done["dry_run"]) == (5, 5, True)
    assert (lake.contents(), context.saved) == (before, [])
    lake.maintain()
    would = lake.maintain(dry_run=True, keep_h=0)
    assert (would["removed_files"], would["removed_bytes"] > 0) == (5, True)
    assert len(lake.data_names()) == 6


def test_files_go_once_they_are_not_part_of_the_table_for_long_enough(lake: Lakehouse) -> None:
    lake.put(5)
    ledger, old = lake.names("_rota"), lake.data_names()
    sizes = sum(len(content) for name, content in lake.contents().items() if name in old)
    assert lake.maintain()["removed_files"] == 0, "they are a moment old"
    done = lake.maintain(keep_h=0)
    assert (done["removed_files"], done["removed_bytes"]) == (5, sizes)
    assert len(lake.data_names()) == 1
    assert [name for name in lake.names("_rota") if "conditional" not in name] == [
        name for name in ledger if "conditional" not in name
    ]
    if lake.store is None:
        assert list((lake.root / "flights").iterdir()) == [], "nor are their folders left"
    assert lake.is_whole()
    lake.put(2)
    assert lake.is_whole()


def test_what_attempts_left_that_did_not_commit_goes_only_with_full(lake: Lakehouse) -> None:
    lake.put(2)
    lost = lake.table()
    write_batch(lost, Mark(3, 50), [1, 2, 3], lost.last())
    [orphan] = lake.names("flights/00000003-50/")
    assert lake.maintain(keep_h=0, min_files=100)["removed_files"] == 0
    assert lake.maintain(keep_h=1, min_files=100, full=True)["removed_files"] == 0, "it may be an attempt's at work"
    assert orphan in lake.names()
    assert lake.maintain(keep_h=0, min_files=100, full=True)["removed_files"] == 1
    assert orphan not in lake.names()
    assert lake.is_whole()


def test_files_of_an_attempt_at_work_stay_and_it_commits_them(local: Lakehouse) -> None:
    """Also if old leftovers of an attempt that was killed are beside them."""
    local.put(3)
    table = local.table()
    write_batch(table, Mark(4, 60), [100], table.last())
    write_batch(table, Mark(4, 61), [100], table.last())
    [left] = local.names("flights/00000004-60/")
    local.age([left], days=8)
    done = local.maintain(full=True)
    assert (done["removed_files"], left in local.names()) == (1, False)
    commit(table, Mark(4, 61))
    local.numbers_put.append(100)
    assert local.is_whole()


def _ingest(lake: Lakehouse, token: int) -> IngestAttempt:
    params = IngestParams(source=f"{lake.folder}/in/*.csv", table=lake.url, options=lake.options, format="csv")
    scratch = lake.folder / "scratch-ingest"
    context = FakeContext(params, scratch, task="flights", run_id=f"flights~{token}", token=token)
    return IngestAttempt(context, lake.table(), lambda: pytest.fail("nothing is malformed"))


def _put_sources(lake: Lakehouse, batches: int) -> None:
    """Have files in place that the pages of these batches say were ingested."""
    (lake.folder / "in").mkdir(exist_ok=True)
    for page in lake.pages()[:batches]:
        path = lake.folder / "in" / f"{page.mark.batch}.csv"
        path.write_text("n" * page.files[0][1])
        lake.table().ledger.write(
            type(page)(
                page.mark, page.previous, page.run_id, page.rows, 0, ((str(path), page.files[0][1]),), page.disks
            )
        )


def test_no_file_is_ingested_twice_after_the_log_and_the_ledger_were_cleaned(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaning, "NEWEST", 2)
    monkeypatch.setattr(cleaning, "WORTHWHILE", 3)
    lake.put(8)
    _put_sources(lake, 8)
    pages = lake.pages()
    lake.delta().alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
    for _ in range(3):
        done = lake.maintain(keep_h=0, full=True)
        assert lake.pages() == pages
    assert done["files_after"] == 1
    assert f"_delta_log/{1:020d}.json" not in lake.names(), "the entries that say what was committed are gone"
    assert len(lake.names("_rota/flights")) == 3, "two pages, and one with all others"
    assert _ingest(lake, 100).plan() == []
    (lake.folder / "in" / "new.csv").write_text("n\n1\n")
    [batch] = _ingest(lake, 101).plan()
    assert [source.path for source in batch] == [f"{lake.folder}/in/new.csv"]
    table = lake.table()
    assert table.last() == Mark(8, 8)
    assert table.claim(101, instead_of=table.holder())
    lake.put(2, token=101)
    assert lake.is_whole()
    assert [page.mark.batch for page in lake.pages()] == list(range(10, 0, -1))
    if lake.store is None:
        assert Ingest().run(_ingest_context_without_new(lake))["rows"] == 0


def _ingest_context_without_new(lake: Lakehouse) -> FakeContext[IngestParams]:
    (lake.folder / "in" / "new.csv").unlink()
    params = IngestParams(source=f"{lake.folder}/in/*.csv", table=lake.url, format="csv")
    return FakeContext(params, lake.folder / "scratch-ingest", task="flights", run_id="flights~102", token=102)


def test_a_ledger_is_merged_and_cleaned_again_and_again(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning, "NEWEST", 1)
    monkeypatch.setattr(cleaning, "WORTHWHILE", 2)
    removed = 0
    for round_ in range(1, 6):
        lake.put(3)
        removed += lake.maintain(keep_h=0)["removed_pages"]
        pages = lake.pages()
        assert [page.mark.batch for page in pages] == list(range(3 * round_, 0, -1))
        assert [page.files for page in pages] == [((f"/in/{page.mark.batch}.csv", 3),) for page in pages]
        assert lake.table().clean("run") == [], "no folder of a committed batch is taken for a lost one"
        assert lake.is_whole()
    assert removed > 8
    assert len(lake.names("_rota/flights")) < 8


def test_a_reader_of_the_ledger_that_was_overtaken_by_a_merge_goes_on(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaning, "NEWEST", 1)
    monkeypatch.setattr(cleaning, "WORTHWHILE", 2)
    lake.put(6)
    table = lake.table()
    reading = table.ledger.pages(table.last())
    seen = [next(reading), next(reading)]
    lake.maintain()  # merges, and leaves the files for a week
    seen += list(reading)
    assert [page.mark.batch for page in seen] == [6, 5, 4, 3, 2, 1]


def test_rows_are_clustered_and_again_only_after_many_new_ones(lake: Lakehouse) -> None:
    lake.put(20)
    done = lake.maintain(cluster_by=["n"], target_bytes=500)
    assert (done["clustered_files"], done["compacted_files"], done["rows"]) == (20, 0, 60)
    again = lake.maintain(cluster_by=["n"], target_bytes=500)
    assert (again["clustered_files"], again["compacted_files"]) == (0, 0)
    lake.put(20)
    assert lake.maintain(cluster_by=["n"], min_files=100)["clustered_files"] > 20
    assert lake.is_whole()


def test_partitions_are_merged_each_for_itself(local: Lakehouse) -> None:
    """Also with values that are spelled another way in a path, and again in the log."""
    rows = pa.table({"n": [1, 2, 3], "at": ["05:00", None, "a/b c=%25ü"]})
    for _ in range(4):
        write_deltalake(local.url, rows, mode="append", partition_by=["at"])
    done = local.maintain(keep_h=0, full=True)
    assert (done["files_before"], done["files_after"], done["removed_files"], done["rows"]) == (12, 3, 12, 12)
    assert local.numbers() == sorted([1, 2, 3] * 4)


def test_a_table_that_is_not_there_is_named(lake: Lakehouse) -> None:
    with pytest.raises(NoTable, match=r"there is no Delta table at .*run the task that makes it first"):
        lake.maintain()


def test_a_file_and_a_log_that_cannot_be_read_are_named_in_one_line(local: Lakehouse) -> None:
    local.root.write_text("no table")
    with pytest.raises(TableUnfit, match=r"is a file, and a table is a folder$"):
        local.maintain()
    local.root.unlink()
    (local.root / "_delta_log").mkdir(parents=True)
    (local.root / "_delta_log" / f"{0:020d}.json").write_text("{no JSON\n")
    with pytest.raises(TableUnfit, match=r"has a log that cannot be read: .*Json error") as refused:
        local.maintain()
    assert "\n" not in str(refused.value)


def test_a_bucket_that_is_not_there_and_keys_that_are_wrong_are_named(
    in_store: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert in_store.store is not None
    with pytest.raises(NoBucket, match="the bucket 'absent' does not exist"):
        in_store.maintain(table="s3://absent/table")
    with pytest.raises(NoPermission, match="give `options` a key and a secret"):
        in_store.maintain(options={"endpoint_url": in_store.store.endpoint})


def test_what_the_table_itself_asks_for_is_heeded(local: Lakehouse) -> None:
    local.put(2)
    local.delta().alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 30 days"})
    with pytest.raises(KeepTooShort, match="`keep_h` is 168: give it at least as many hours"):
        local.maintain()
    assert local.maintain(keep_h=720)["removed_files"] == 0
    local.delta().alter.set_table_properties({"delta.setTransactionRetentionDuration": "interval 1 days"})
    with pytest.raises(TableUnfit, match="files would be ingested twice: remove the property"):
        local.maintain(keep_h=720)


@pytest.mark.parametrize(("column", "said"), [("absent", "has no column 'absent'"), ("at", "is partitioned by 'at'")])
def test_columns_that_cannot_be_clustered_by_are_named(local: Lakehouse, column: str, said: str) -> None:

    write_deltalake(local.url, pa.table({"n": [1], "at": ["x"]}), partition_by=["at"])
    with pytest.raises(TableUnfit, match=said):
        local.maintain(cluster_by=[column])


def test_no_file_outside_of_the_table_is_removed(local: Lakehouse) -> None:
    local.put(2)
    elsewhere = local.folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "dear.parquet").write_text("dear")
    (local.root / "link").symlink_to(elsewhere)
    local.age(["link/dear.parquet"], days=100)
    with pytest.raises(TableUnfit, match="a link that leads out of the table"):
        local.maintain(full=True)
    assert (elsewhere / "dear.parquet").exists()
    context = local.attempt()
    context.access = Access("node-1", (), (f"{local.folder}/other",), (), (), ())
    with pytest.raises(AccessRefused):
        Maintain().run(context)


def test_a_table_in_an_object_store_is_kept_in_shape(in_store: Lakehouse) -> None:
    in_store.fill(5)
    done = in_store.maintain()
    assert (done["compacted_files"], done["files_after"], done["compared_rows"]) == (5, 1, 15)
    in_store.fill(2)
    done = in_store.maintain(cluster_by=["n"], keep_h=0, full=True)
    assert (done["clustered_files"], done["files_after"], done["removed_files"]) == (3, 1, 8)
    assert len(in_store.data_names()) == 1
    assert in_store.is_whole()


def test_what_a_rewrite_moves_is_no_change_and_the_log_keeps_what_tasks_have_noted(local: Lakehouse) -> None:
    local.put(4)
    notes = [f"rota/flights{end}" for end in ("", "/token", "/holder")]
    noted = [local.delta().transaction_version(each) for each in notes]
    version = local.delta().version()
    assert local.maintain()["files_after"] == 1
    moved = local.entry(version + 2)
    assert [sum(kind in action for action in moved) for kind in ("add", "remove")] == [1, 4]
    assert not any(action[kind]["dataChange"] for action in moved for kind in ("add", "remove") if kind in action)
    content = "\n".join(map(json.dumps, moved)).encode()
    entry = delta_log.entry(version + 2, content, local.url)
    assert (entry.added, entry.removed, entry.changes) == ((), (), ())
    assert [local.delta().transaction_version(each) for each in notes] == noted
