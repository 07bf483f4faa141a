"""The maintenance of a table among others and among faults: at no version a row is lost or there twice."""

import signal
import subprocess
import time
from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest

pytest.importorskip("moto.server", reason="moto[server] is not installed")
pytest.importorskip("s3fs", reason="the extra `s3` is not installed")
pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("deltalake", reason="the extra `spark` is not installed")

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from spark_tasks.maintain import attempt, bin_writer, rewriting, table
from spark_tasks.maintain.errors import FileUnreadable, MaintainStopped, RewriteDiffers, TableInUse
from spark_tasks.maintain.kind import Maintain
from spark_tasks.maintain.table import MaintainedTable
from spark_tasks.table import parquet_writer
from spark_tasks.table.ledger import Mark
from spark_tasks.table.part import Part
from tasks.kind import Fenced
from tasks.places.place import Place
from testkit.fake_context import FakeContext
from testkit.processes import process_state
from testkit.spark.maintained import Lakehouse

pytestmark = pytest.mark.integration

STEPS = [f"step: {step}" for step in attempt.STEPS]


def _before_commit(monkeypatch: pytest.MonkeyPatch, do: Callable[[], Any], times: int = 1) -> list[int]:
    """Call `do` after an attempt has looked at the version to which it commits, as often as that."""
    calls: list[int] = []
    replace = MaintainedTable._replace

    def late(self: MaintainedTable, handle: DeltaTable, *rest: Any) -> bool:
        if len(calls) < times:
            calls.append(handle.version())
            do()
        return replace(self, handle, *rest)

    monkeypatch.setattr(MaintainedTable, "_replace", late)
    return calls


def test_a_batch_that_is_committed_during_a_rewrite_stays(local: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that were read are still there, so the new ones are committed to the next version as they are."""
    local.fill(5)
    written: list[str] = []

    def counted(place: Place, name: str, *rest: Any) -> Part:
        written.append(name)
        return parquet_writer.write_file(place, name, *rest)

    monkeypatch.setattr(bin_writer, "write_file", counted)
    calls = _before_commit(monkeypatch, lambda: local.fill(1), times=3)
    done = local.maintain()
    assert (len(calls), len(written)) == (3, 1)
    assert (done["files_after"], done["rows"]) == (4, 24)
    assert local.was_whole()


@pytest.mark.more
def test_a_batch_of_a_task_that_is_committed_during_a_rewrite_stays(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.put(5)
    calls = _before_commit(monkeypatch, lambda: lake.put(2))
    done = lake.maintain(keep_h=0, full=True)
    assert (len(calls), done["files_after"], done["rows"]) == (1, 3, 21)
    assert lake.is_whole()
    assert lake.table().last() == Mark(7, 7)


@pytest.mark.parametrize("early", [True, False], ids=["before the version is looked at", "after"])
def test_an_attempt_that_another_has_overtaken_commits_nothing(
    local: Lakehouse, monkeypatch: pytest.MonkeyPatch, early: bool
) -> None:
    local.fill(5)
    first, seen = local.attempt(), []

    def overtake() -> None:
        monkeypatch.undo()
        seen.append(local.maintain())
        local.fill(2)

    if early:
        exchange = MaintainedTable.exchange

        def late(*each: Any) -> bool:
            overtake()
            return exchange(*each)

        monkeypatch.setattr(MaintainedTable, "exchange", late)
    else:
        _before_commit(monkeypatch, overtake)
    with pytest.raises(TableInUse, match=r"another attempt \(token 2, this one has 1\) has begun to maintain"):
        Maintain().run(first)
    assert seen[0]["files_after"] == 1
    assert local.was_whole()
    assert local.maintain()["files_after"] == 1
    assert local.was_whole()


@pytest.mark.parametrize("kind", ["delete", "merge", "replace", "wider"])
def test_what_others_do_to_the_files_during_a_rewrite_counts(
    local: Lakehouse, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The rewrite is refused, and planned anew."""
    local.fill(5)
    numbers = sorted(local.numbers_put)

    def change() -> None:
        if kind == "delete":
            local.delta().delete(f"n = {numbers[0]}")
            local.numbers_put.remove(numbers[0])
        elif kind == "merge":
            rows = pa.table({"n": pa.array([numbers[1], 1000], pa.int64())})
            merge = local.delta().merge(rows, "s.n = t.n", source_alias="s", target_alias="t")
            merge.when_matched_delete().when_not_matched_insert_all().execute()
            local.numbers_put.remove(numbers[1])
            local.numbers_put.append(1000)
        elif kind == "replace":
            write_deltalake(local.url, pa.table({"n": pa.array([1, 2], pa.int64())}), mode="overwrite")
            local.numbers_put[:] = [1, 2]
        else:
            rows = pa.table({"n": pa.array([999], pa.int64()), "more": ["x"]})
            write_deltalake(local.url, rows, mode="append", schema_mode="merge")
            local.numbers_put.append(999)

    calls = _before_commit(monkeypatch, change)
    done = local.maintain()
    assert len(calls) == 1
    assert (done["files_after"], done["rows"]) == (1, len(local.numbers_put))
    assert local.is_whole()
    assert [name for name in local.data_names() if "maintain-" in name] == [
        file.path for file in local.live() if "maintain-" in file.path
    ], "the new files of the rewrite that was refused are gone"
    if kind == "wider":
        assert local.delta().to_pyarrow_table().column("more").to_pylist().count("x") == 1


def test_a_table_whose_files_others_change_all_the_time_is_left_as_it_is(
    local: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.fill(8)

    def delete() -> None:
        local.delta().delete(f"n = {min(local.numbers_put)}")
        local.numbers_put.remove(min(local.numbers_put))

    calls = _before_commit(monkeypatch, delete, times=rewriting.ROUNDS)
    with pytest.raises(TableInUse, match="run this task when fewer writers are active"):
        local.maintain()
    assert len(calls) == rewriting.ROUNDS
    assert local.is_whole()
    monkeypatch.undo()
    assert local.maintain()["files_after"] == 1
    assert local.is_whole()


def test_others_who_only_append_all_the_time_do_not_make_it_try_for_ever(
    local: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.fill(3)
    monkeypatch.setattr(table, "TRIES", 3)
    calls = _before_commit(monkeypatch, lambda: local.fill(1), times=3)
    with pytest.raises(TableInUse, match=r"commit to .* all the time"):
        local.maintain()
    assert len(calls) == 3
    assert local.was_whole()


@pytest.mark.parametrize("committed", [True, False])
def test_a_commit_of_which_nobody_heard_is_looked_up_in_the_log(
    local: Lakehouse, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    local.fill(4)
    commit = DeltaTable.create_write_transaction

    def unheard(self: DeltaTable, files: Any, *rest: Any, **more: Any) -> None:
        if committed or not files:
            commit(self, files, *rest, **more)
        if files:
            raise OSError("the connection was closed")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", unheard)
    if committed:
        assert local.maintain()["files_after"] == 1
    else:
        with pytest.raises(OSError, match="the connection was closed"):
            local.maintain()
        assert len(local.data_names()) == 5, "it may yet come about, so its file stays"
        monkeypatch.undo()
        done = local.maintain(keep_h=0, full=True)
        assert (done["files_after"], done["removed_files"]) == (1, 5)
    assert local.is_whole()


def test_a_rewrite_that_changed_a_row_is_not_committed(local: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    local.fill(4)
    old, groups = local.data_names(), parquet_writer.row_groups

    def spoilt(*given: Any) -> Any:
        for group in groups(*given):
            numbers = group.column("n").to_pylist()
            yield pa.table({"n": pa.array([*numbers[:-1], numbers[-1] ^ 1], pa.int64())})

    monkeypatch.setattr(bin_writer, "row_groups", spoilt)
    with pytest.raises(RewriteDiffers, match=r"12 rows with the sum \w{16} went in, and 12 with \w{16} came out"):
        local.maintain(keep_h=0, full=True)
    assert (local.data_names(), local.was_whole()) == (old, True)


def test_a_file_that_the_log_names_and_that_is_gone_is_named(local: Lakehouse) -> None:
    local.fill(4)
    lost = local.data_names()[2]
    content = (local.root / lost).read_bytes()
    (local.root / lost).unlink()
    with pytest.raises(FileUnreadable, match=f"{lost} is not there, though the table's log names it"):
        local.maintain()
    (local.root / lost).write_bytes(content[:-20])
    with pytest.raises(FileUnreadable, match=f"{lost}, which the table's log names, cannot be read"):
        local.maintain()
    (local.root / lost).write_bytes(content)
    assert local.maintain()["files_after"] == 1
    assert local.was_whole()


def _paused(process: "subprocess.Popen[str]") -> None:
    end_s = time.monotonic() + 60
    while process_state(process.pid) != "T":
        assert process.poll() is None and time.monotonic() < end_s, process.communicate()
        time.sleep(0.01)


@pytest.mark.parametrize("moment", ["compared", pytest.param("rewrite 6 files", marks=pytest.mark.more)])
def test_an_attempt_that_was_paused_until_another_had_done_it_wakes_and_doubles_nothing(
    local: Lakehouse, moment: str
) -> None:
    _woken(local, moment)


@pytest.mark.more
def test_an_attempt_on_s3_that_was_paused_until_another_had_done_it_wakes_and_doubles_nothing(
    in_store: Lakehouse,
) -> None:
    _woken(in_store, "compared")


def _woken(lake: Lakehouse, moment: str) -> None:
    lake.fill(6)
    process = lake.start(pause_at=moment)
    _paused(process)
    assert lake.maintain()["files_after"] == 1
    lake.fill(2)
    process.send_signal(signal.SIGCONT)
    while process.poll() is None:
        assert lake.is_whole()
    _, error = process.communicate()
    if moment == "compared":
        assert "TableInUse: another attempt (token 2, this one has 1)" in error
    else:
        assert process.returncode == 0, "it had not held the table yet, and does what is left"
    assert lake.was_whole()
    lake.maintain(keep_h=0, full=True)
    assert lake.is_whole()
    assert len(lake.data_names()) == len(lake.live())


def test_files_of_a_paused_attempt_that_a_later_one_has_removed_are_never_committed(local: Lakehouse) -> None:
    """It slept for longer than files are kept, and its old files are all still part of the table."""
    local.fill(6)
    old = set(local.data_names())
    process = local.start(pause_at="compared")
    _paused(process)
    local.age(list(set(local.data_names()) - old), days=8)
    done = local.maintain(full=True, min_files=100)
    assert (done["removed_files"], done["files_after"]) == (1, 6)
    process.send_signal(signal.SIGCONT)
    _, error = process.communicate(timeout=60)
    assert "TableInUse: another attempt (token 2, this one has 1)" in error
    assert local.is_whole()


def test_a_reader_of_an_earlier_version_finds_its_files_for_as_long_as_they_are_kept(local: Lakehouse) -> None:
    local.fill(4)
    reader = local.delta()
    local.maintain(full=True)
    local.maintain(full=True, cluster_by=["n"])
    assert sorted(reader.to_pyarrow_table().column("n").to_pylist()) == local.numbers_put
    assert len(local.data_names()) == 6


@pytest.mark.parametrize(
    "step",
    [
        "compared",
        *(pytest.param(step, marks=pytest.mark.more) for step in [*STEPS, "rewrite 6 files", "committed"]),
    ],
)
def test_an_attempt_that_is_killed_is_followed_by_one_that_does_the_rest(local: Lakehouse, step: str) -> None:
    _killed(local, step)


@pytest.mark.more
@pytest.mark.parametrize("step", ["compared", "committed", *STEPS[1:]])
def test_an_attempt_on_s3_that_is_killed_is_followed_by_one_that_does_the_rest(in_store: Lakehouse, step: str) -> None:
    _killed(in_store, step)


def _killed(lake: Lakehouse, step: str) -> None:
    lake.put(6)
    pages, old = lake.pages(), set(lake.data_names())
    lake.killed_at(step)
    assert lake.was_whole()
    assert old <= set(lake.data_names()), "nothing was removed"
    done = lake.maintain(keep_h=0, full=True)
    assert done["files_after"] == 1
    assert (len(lake.data_names()), lake.pages()) == (1, pages)
    assert lake.is_whole()
    lake.put(2)
    assert lake.is_whole()


@pytest.mark.more
def test_two_attempts_and_an_ingest_at_the_same_time_leave_a_whole_table(lake: Lakehouse) -> None:
    lake.put(12)
    failed: list[Exception] = []

    def run(context: FakeContext[Any]) -> None:
        try:
            Maintain().run(context)
        except TableInUse:
            pass
        except Exception as error:
            failed.append(error)

    for _ in range(3):
        attempts = [Thread(target=run, args=(lake.attempt(),)) for _ in range(2)]
        for each in attempts:
            each.start()
        lake.put(4)
        for each in attempts:
            each.join()
        assert lake.is_whole()
    assert failed == []
    assert lake.was_whole()
    lake.maintain(keep_h=0)
    assert lake.is_whole()
    assert len(lake.pages()) == 24


@pytest.mark.parametrize("step", ["remove files", "rewrite"])
def test_an_attempt_that_was_taken_over_does_no_further_step(local: Lakehouse, step: str) -> None:
    local.fill(4)
    context = local.attempt(keep_h=0)

    def fence(value: Any) -> None:
        if value["step"] == step and (step != "rewrite" or "bytes" in value):
            raise Fenced

    context.before_checkpoint = fence
    version = local.delta().version()
    with pytest.raises(Fenced):
        Maintain().run(context)
    assert len(local.data_names()) == (5 if step == "remove files" else 4)
    assert local.delta().version() == version + (2 if step == "remove files" else 0)
    assert local.was_whole()


def test_an_attempt_stops_in_the_middle_and_leaves_nothing(local: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    local.fill(4)
    context = local.attempt(keep_h=0)
    old, groups = local.data_names(), parquet_writer.row_groups

    def cancelled(*given: Any) -> Any:
        for group in groups(*given):
            context.cancelled = True
            yield group

    monkeypatch.setattr(bin_writer, "row_groups", cancelled)
    with pytest.raises(MaintainStopped, match="the next run does the rest"):
        Maintain().run(context)
    assert local.data_names() == old
    assert context.shown[-1][2] == "bytes"
    monkeypatch.undo()
    assert local.maintain(keep_h=0)["removed_files"] == 4
    assert local.is_whole()
