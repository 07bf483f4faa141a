"""What an attempt at an ingest finds before it starts Spark: its own table, its own sources, its own token, or not."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("deltalake", reason="the extra `spark` is not installed")

from spark_tasks.ingest import checkpoint
from spark_tasks.ingest.checkpoint import disks_of
from spark_tasks.ingest.errors import TableReplaced
from spark_tasks.ingest.kind import Ingest
from spark_tasks.table.ledger import Mark
from tasks.kind import Fenced
from tasks.source_identity import OtherSource, identity_id
from testkit.spark.tables import InFolder, commit, ingest_context, local_table, write_batch

pytestmark = pytest.mark.integration


def _numbers(table: Path) -> list[int]:
    return InFolder(table).numbers()


def test_a_file_is_known_by_the_name_that_an_earlier_version_noted(tmp_path: Path) -> None:
    """Nothing is new, so no Spark is started either."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text("n\n7\n")
    table = local_table(tmp_path / "table")
    page = write_batch(table, Mark(1, 1), [7])
    table.ledger.write(replace(page, files=((f"{tmp_path}/gone/..//in/./1.csv", 4),)))
    commit(table, Mark(1, 1))
    assert Ingest().run(ingest_context(tmp_path, token=2))["rows"] == 0
    assert _numbers(tmp_path / "table") == [7]


def test_an_attempt_whose_token_is_old_does_not_take_the_table(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "2.csv").write_text("n\n7\n")
    table = local_table(tmp_path / "table")
    write_batch(table, Mark(1, 6), [1])
    commit(table, Mark(1, 6))
    old = ingest_context(tmp_path, token=5)

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
        Ingest().run(ingest_context(tmp_path, token=2, checkpoint=hint))


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
        Ingest().run(ingest_context(tmp_path, token=2, checkpoint=hint))
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
        Ingest().run(ingest_context(tmp_path, token=2, node="node-2", checkpoint=standing | {"disks": elsewhere}))
    monkeypatch.setattr(checkpoint, "facts_of", lambda *_, **__: elsewhere[folder])
    with pytest.raises(OtherSource, match="batch 1 of the table was made from"):
        Ingest().run(ingest_context(tmp_path, token=3, node="node-2"))
    assert "group: {node: ID}" in str(told.value)
    assert _numbers(tmp_path / "table") == [7]
    assert len(list((tmp_path / "table" / "_rota" / "task").iterdir())) == 1
    monkeypatch.undo()
    (tmp_path / "in" / "2.csv").unlink()
    accepting = ingest_context(tmp_path, token=2, checkpoint=standing | {"disks": elsewhere})
    accepting.params.accept_source = [identity_id(here[folder])]
    assert Ingest().run(accepting)["rows"] == 0


def test_what_an_attempt_has_written_is_looked_for_by_all_after_it_until_it_is_committed(tmp_path: Path) -> None:
    """Also by the third, if the second died before it wrote anything."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "2.csv").write_text("n\n7\n")
    table = local_table(tmp_path / "table")
    first = write_batch(table, Mark(1, 1), [1])
    commit(table, Mark(1, 1))
    write_batch(table, Mark(2, 1), [2], previous=first.mark)
    second = ingest_context(tmp_path, token=2, checkpoint={"batch": 1, "version": 1, "intent": 2})
    kept: list[Any] = []

    def die(value: Any) -> None:
        kept.append(value)
        raise Fenced

    second.before_checkpoint = die
    with pytest.raises(Fenced):
        Ingest().run(second)
    assert [(value["batch"], value["intent"], value["plan"]) for value in kept] == [(1, 2, None)]
