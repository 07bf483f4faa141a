"""A batch is committed once, whichever attempt tries. Real Delta and Parquet files, without Spark."""

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")
pytest.importorskip("deltalake", reason="the extra `spark` is not installed")

from deltalake import DeltaTable, Transaction  # noqa: E402  after the check that it is there

from spark_tasks.files import disks  # noqa: E402
from spark_tasks.files.disks import disks_of  # noqa: E402
from spark_tasks.ingest.errors import TableReplaced  # noqa: E402
from spark_tasks.ingest.kind import Ingest  # noqa: E402
from spark_tasks.ingest.params import IngestParams  # noqa: E402
from spark_tasks.table.delta import Overtaken, Table, TableUnfit, app_id  # noqa: E402
from spark_tasks.table.ledger import LedgerDamaged, Mark  # noqa: E402
from spark_tasks.table.local_parts import local_parts  # noqa: E402
from tasks.kind import Fenced  # noqa: E402
from tasks.place import Place  # noqa: E402
from tasks.source_identity import OtherSource, identity_id  # noqa: E402
from testkit.fake_context import FakeContext  # noqa: E402
from tests.integration.tables import SCHEMA, commit, local_table, write_batch  # noqa: E402

pytestmark = pytest.mark.integration


def _numbers(folder: Path) -> list[int]:
    rows = DeltaTable(folder).to_pyarrow_table().column("n").to_pylist()
    return sorted(rows)


def test_batches_follow_one_another_and_the_ledger_says_what_they_brought(tmp_path: Path) -> None:
    table = local_table(tmp_path / "table")
    assert (table.last(), table.version(), table.schema_json()) == (None, None, None)
    first = write_batch(table, Mark(1, 5), [1, 2])
    assert commit(table, Mark(1, 5)) == 1
    second = write_batch(table, Mark(2, 9), [3], previous=Mark(1, 5))
    assert commit(table, Mark(2, 9)) == 2
    assert table.last() == Mark(2, 9)
    assert list(table.ledger.pages(table.last())) == [second, first]
    assert [part.rows for part in local_parts(table, table.parquet_folder(Mark(1, 5)))] == [2]
    assert DeltaTable(tmp_path / "table").transaction_version(app_id("task")) == 2
    assert _numbers(tmp_path / "table") == [1, 2, 3]


def test_the_same_attempt_may_repeat_its_commit_and_changes_nothing(tmp_path: Path) -> None:
    table = local_table(tmp_path)
    write_batch(table, Mark(1, 5), [1])
    assert [commit(table, Mark(1, 5)) for _ in range(3)] == [1, 1, 1]
    assert _numbers(tmp_path) == [1]


def test_another_attempt_cannot_commit_the_batch_again(tmp_path: Path) -> None:
    table = local_table(tmp_path)
    for token in (5, 6):
        write_batch(table, Mark(1, token), [token])
    commit(table, Mark(1, 6))
    with pytest.raises(Overtaken, match="token 6, not 5"):
        commit(table, Mark(1, 5))
    assert _numbers(tmp_path) == [6]


@pytest.mark.parametrize("batch", [1, 2])
def test_of_two_writers_that_race_one_commits_a_batch(
    tmp_path: Path, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have read the table before either commits: only Delta's own check is left to refuse the second."""
    table = local_table(tmp_path)
    if batch == 2:
        write_batch(table, Mark(1, 1), [0])
        commit(table, Mark(1, 1))
    both_have_read = threading.Barrier(2)
    check_follows = Table._check_follows

    def meet(self: Table, mark: Mark, last: Mark | None) -> None:
        check_follows(self, mark, last)
        both_have_read.wait(timeout=30)

    monkeypatch.setattr(Table, "_check_follows", meet)
    outcomes: dict[int, str] = {}

    def attempt(token: int) -> None:
        try:
            commit(local_table(tmp_path), Mark(batch, token))
            outcomes[token] = "committed"
        except Overtaken:
            outcomes[token] = "refused"

    for token in (7, 8):
        write_batch(table, Mark(batch, token), [token])
    writers = [threading.Thread(target=attempt, args=(token,)) for token in (7, 8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(outcomes.values()) == ["committed", "refused"]
    winner = next(token for token, outcome in outcomes.items() if outcome == "committed")
    assert table.last() == Mark(batch, winner)
    assert _numbers(tmp_path) == ([0, winner] if batch == 2 else [winner])


def test_an_old_token_commits_nothing_once_a_later_one_has_the_table(tmp_path: Path) -> None:
    table = local_table(tmp_path)
    assert (table.holder(), table.claim(6, instead_of=None)) == (None, False), "there is no table"
    write_batch(table, Mark(1, 5), [1])
    commit(table, Mark(1, 5))
    assert table.holder() == 5
    assert not table.claim(6, instead_of=4)
    assert table.claim(6, instead_of=5)
    assert (table.holder(), table.last()) == (6, Mark(1, 5)), "and the ledger is as it was"
    write_batch(table, Mark(2, 5), [2], previous=Mark(1, 5))
    with pytest.raises(Overtaken, match=r"token 6, not .*holds"):
        commit(table, Mark(2, 5))
    write_batch(table, Mark(2, 6), [3], previous=Mark(1, 5))
    commit(table, Mark(2, 6))
    assert _numbers(tmp_path) == [1, 3]


def test_an_old_token_that_has_read_the_table_already_commits_nothing_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = local_table(tmp_path)
    write_batch(table, Mark(1, 5), [1])
    commit(table, Mark(1, 5))
    write_batch(table, Mark(2, 5), [2], previous=Mark(1, 5))
    monkeypatch.setattr(Table, "_check_follows", lambda self, mark, last: self.claim(6, instead_of=5))
    with pytest.raises(Overtaken, match=r"token 6, not .*holds"):
        commit(table, Mark(2, 5))
    assert _numbers(tmp_path) == [1]


def test_of_two_that_claim_the_table_at_once_one_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other has to ask the cluster again: it may be the older one."""
    table = local_table(tmp_path)
    write_batch(table, Mark(1, 5), [1])
    commit(table, Mark(1, 5))
    holds = Table._holds

    def overtaken(self: Table, token: int) -> Transaction:
        monkeypatch.setattr(Table, "_holds", holds)
        assert local_table(tmp_path).claim(7, instead_of=5)
        return holds(self, token)

    monkeypatch.setattr(Table, "_holds", overtaken)
    assert not table.claim(6, instead_of=5)
    assert table.holder() == 7


def test_of_two_that_make_the_table_one_does_and_both_use_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """deltalake alone lets both succeed, and the second commit would hold no trace of a conflict."""
    write_new = Place.write_new

    def overtaken(self: Place, name: str, content: bytes) -> bool:
        monkeypatch.setattr(Place, "write_new", write_new)
        assert commit(local_table(tmp_path), Mark(1, 8)) == 1
        return write_new(self, name, content)

    for token in (7, 8):
        write_batch(local_table(tmp_path), Mark(1, token), [token])
    monkeypatch.setattr(Place, "write_new", overtaken)
    with pytest.raises(Overtaken, match="token 8, not 7"):
        commit(local_table(tmp_path), Mark(1, 7))
    assert _numbers(tmp_path) == [8]
    assert not list(tmp_path.rglob("*.partial"))


def test_two_tasks_feed_one_table_without_hindering_each_other(tmp_path: Path) -> None:
    mine, yours = local_table(tmp_path, "mine"), local_table(tmp_path, "yours")
    write_batch(mine, Mark(1, 1), [1])
    write_batch(yours, Mark(1, 2), [2])
    commit(mine, Mark(1, 1))
    commit(yours, Mark(1, 2))
    assert (mine.last(), yours.last()) == (Mark(1, 1), Mark(1, 2))
    assert _numbers(tmp_path) == [1, 2]


def test_the_count_of_batches_survives_delta_s_own_checkpoints(tmp_path: Path) -> None:
    table = local_table(tmp_path)
    for batch in (1, 2, 3):
        write_batch(table, Mark(batch, batch), [batch], None if batch == 1 else Mark(batch - 1, batch - 1))
        commit(table, Mark(batch, batch))
        DeltaTable(tmp_path).create_checkpoint()
    DeltaTable(tmp_path).cleanup_metadata()
    for version in range(2):
        (tmp_path / "_delta_log" / f"{version:020d}.json").unlink()
    assert table.last() == Mark(3, 3)
    assert [page.mark.batch for page in table.ledger.pages(table.last())] == [3, 2, 1]


def test_what_cannot_be_committed_any_more_is_removed_and_nothing_else(tmp_path: Path) -> None:
    table = local_table(tmp_path)
    for mark in (Mark(1, 1), Mark(1, 2), Mark(2, 1), Mark(3, 3)):
        write_batch(table, mark, [mark.token], None if mark.batch == 1 else Mark(1, 2))
    assert table.clean("run") == []
    commit(table, Mark(1, 2))
    assert table.clean("run") == ["_rota/task/00000001-1.json", "task/00000001-1"]
    assert (tmp_path / table.parquet_folder(Mark(2, 1))).is_dir()
    assert _numbers(tmp_path) == [2]


def test_a_gap_is_refused(tmp_path: Path) -> None:
    table = local_table(tmp_path)
    write_batch(table, Mark(2, 1), [1])
    with pytest.raises(TableUnfit, match="restored or replaced"):
        commit(table, Mark(2, 1))
    assert _numbers(tmp_path) == []


def _spoil(path: Path) -> None:
    path.write_text("{")


@pytest.mark.parametrize("damage", [Path.unlink, _spoil])
def test_a_ledger_that_cannot_be_read_is_an_error_not_an_empty_one(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    table = local_table(tmp_path)
    write_batch(table, Mark(1, 1), [1])
    commit(table, Mark(1, 1))
    damage(tmp_path / "_rota" / "task" / "00000001-1.json")
    with pytest.raises(LedgerDamaged, match="contains batch 1 of task"):
        list(table.ledger.pages(table.last()))


def test_a_type_that_delta_has_not_is_named(tmp_path: Path) -> None:
    table = local_table(tmp_path)
    write_batch(table, Mark(1, 1), [1])
    with pytest.raises(TableUnfit, match="no type"):
        commit(table, Mark(1, 1), SCHEMA.replace("long", "char"))


def _context(folder: Path, **more: Any) -> FakeContext[IngestParams]:
    """An attempt at ingesting `folder`/in into `folder`/table."""
    params = IngestParams(source=f"{folder}/in/*.csv", table=str(folder / "table"), format="csv")
    return FakeContext(params, folder / "scratch", **more)


def test_a_file_is_known_by_the_name_that_an_earlier_version_noted(tmp_path: Path) -> None:
    """Nothing is new, so no Spark is started either."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text("n\n7\n")
    table = local_table(tmp_path / "table")
    page = write_batch(table, Mark(1, 1), [7])
    table.ledger.write(replace(page, files=((f"{tmp_path}/gone/..//in/./1.csv", 4),)))
    commit(table, Mark(1, 1))
    assert Ingest().run(_context(tmp_path, token=2))["rows"] == 0
    assert _numbers(tmp_path / "table") == [7]


def test_an_attempt_whose_token_is_old_does_not_take_the_table(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "2.csv").write_text("n\n7\n")
    table = local_table(tmp_path / "table")
    write_batch(table, Mark(1, 6), [1])
    commit(table, Mark(1, 6))
    old = _context(tmp_path, token=5)

    def fence(value: Any) -> None:
        raise Fenced

    old.before_checkpoint = fence
    with pytest.raises(Fenced):
        Ingest().run(old)
    assert table.holder() == 6


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        (
            {"batch": 2, "version": 2, "intent": None},
            "has committed batch 2 to the table, but the last batch in the table here is 1",
        ),
        ({"batch": 0, "version": 7, "intent": None}, "has read version 7 of the table, but here it is at 1"),
        ({"batch": 1, "version": 1, "intent": 2}, "has written batch 2 to .*, but its files are not here"),
    ],
)
def test_another_folder_than_the_run_has_written_to_is_not_taken_for_it(
    tmp_path: Path, hint: dict[str, Any], said: str
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "2.csv").write_text("n\n7\n")
    table = local_table(tmp_path / "table")
    write_batch(table, Mark(1, 1), [1])
    commit(table, Mark(1, 1))
    with pytest.raises(TableReplaced, match=f"{said}.*Mount the table's storage here"):
        Ingest().run(_context(tmp_path, token=2, checkpoint=hint))


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        ({"batch": 0, "version": 7, "intent": 1}, "but here there is none"),
        ({"batch": 0, "intent": 1}, "its files are not here"),
    ],
)
def test_an_empty_folder_is_not_taken_for_the_table(tmp_path: Path, hint: dict[str, Any], said: str) -> None:
    """An empty mount point is where the run's own table was a moment ago."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text("n\n7\n")
    with pytest.raises(TableReplaced, match=said):
        Ingest().run(_context(tmp_path, token=2, checkpoint=hint))
    assert not (tmp_path / "table").exists()


def test_another_machine_s_folder_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by the next attempt at the run, nor by the next run; no Spark is started, nothing comes to the table."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text("n\n7\n")
    (tmp_path / "in" / "2.csv").write_text("n\n8\n")
    table, folder = local_table(tmp_path / "table"), f"{tmp_path}/in"
    page = write_batch(table, Mark(1, 1), [7])
    here = disks_of([f"{folder}/*.csv"], "node-1")
    table.ledger.write(replace(page, files=((f"{folder}/1.csv", 4),), disks=here))
    commit(table, Mark(1, 1))
    assert [page.disks for page in table.ledger.pages(table.last())] == [here]
    elsewhere = {folder: {**here[folder], "uuid": "another", "fsid": "another"}}
    standing = {"batch": 1, "version": table.version(), "intent": None}
    with pytest.raises(OtherSource, match=r"what this run has committed to the table was made from.*another") as told:
        Ingest().run(_context(tmp_path, token=2, node="node-2", checkpoint=standing | {"disks": elsewhere}))
    monkeypatch.setattr(disks, "facts_of", lambda *_, **__: elsewhere[folder])
    with pytest.raises(OtherSource, match="batch 1 of the table was made from"):
        Ingest().run(_context(tmp_path, token=3, node="node-2"))
    assert "group: {node: ID}" in str(told.value)
    assert _numbers(tmp_path / "table") == [7]
    assert len(list((tmp_path / "table" / "_rota" / "task").iterdir())) == 1
    monkeypatch.undo()
    (tmp_path / "in" / "2.csv").unlink()
    accepting = _context(tmp_path, token=2, checkpoint=standing | {"disks": elsewhere})
    accepting.params.accept_source = [identity_id(here[folder])]
    assert Ingest().run(accepting)["rows"] == 0


@dataclass
class Syncs:
    """What was synced, in order, each with the version that the table at `folder` had then. Names are those in it."""

    folder: Path
    seen: list[tuple[str, int | None]] = field(default_factory=list)

    def fsync(self, descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        self.seen.append((os.path.relpath(path, self.folder), local_table(self.folder).version()))

    def at(self, version: int | None) -> set[str]:
        return {name for name, then in self.seen if then == version}


@pytest.fixture
def syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Syncs:
    kept = Syncs(tmp_path / "table")
    monkeypatch.setattr(os, "fsync", kept.fsync)
    return kept


def _log(version: int) -> str:
    return f"_delta_log/{version:020d}.json"


def test_after_a_power_cut_what_the_log_names_is_there(tmp_path: Path, syncs: Syncs) -> None:
    """An entry that outlives the files it names would be rows lost for good: their source counts as ingested."""
    table = local_table(syncs.folder)
    page = write_batch(table, Mark(1, 5), [1])
    commit(table, Mark(1, 5))
    files = {"task/00000001-5/part-00000.snappy.parquet", "_rota/task/00000001-5.json.partial"}
    folders = {"task/00000001-5", "task", "_rota/task", "_rota", ".", ".."}
    assert files | folders <= syncs.at(None) | syncs.at(0), "before there is an entry of it"
    assert {_log(0), _log(1), "_delta_log", "."} <= syncs.at(1), "before anybody is told of it"

    write_batch(table, Mark(2, 5), [2], previous=page.mark)
    commit(table, Mark(2, 5))
    assert {"task/00000002-5/part-00000.snappy.parquet", "task/00000002-5", "task"} <= syncs.at(1)
    assert {_log(2), "_delta_log"} <= syncs.at(2)


def test_delta_s_own_checkpoints_are_on_the_disk_as_well(tmp_path: Path, syncs: Syncs) -> None:
    table = local_table(syncs.folder)
    write_batch(table, Mark(1, 5), [1])
    commit(table, Mark(1, 5))
    DeltaTable(syncs.folder).create_checkpoint()
    table.sync_log()
    assert {"_delta_log/00000000000000000001.checkpoint.parquet", "_delta_log/_last_checkpoint"} <= syncs.at(1)


def test_what_another_attempt_committed_is_on_the_disk_before_it_is_gone_on_from(tmp_path: Path, syncs: Syncs) -> None:
    """It may have died between its commit and its sync."""
    (tmp_path / "in").mkdir()
    write_batch(local_table(syncs.folder), Mark(1, 5), [1])
    commit(local_table(syncs.folder), Mark(1, 5))
    syncs.seen.clear()
    Ingest().run(_context(tmp_path, token=6))
    assert {_log(1), "_delta_log"} <= syncs.at(1)
