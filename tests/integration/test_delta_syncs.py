"""What is on the disk when: files before the log names them, the log before anybody is told of it."""

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("deltalake", reason="the extra `spark` is not installed")

from deltalake import DeltaTable

from spark_tasks.ingest.kind import Ingest
from spark_tasks.table.ledger import Mark
from testkit.spark.tables import commit, ingest_context, local_table, write_batch

pytestmark = pytest.mark.integration


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
    Ingest().run(ingest_context(tmp_path, token=6))
    assert {_log(1), "_delta_log"} <= syncs.at(1)
