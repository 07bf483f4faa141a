"""A Delta table as a sink's ledger: held from before its first batch on, and by one attempt. Real Delta, no Spark."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")
pytest.importorskip("deltalake", reason="the extra `spark` is not installed")
pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from deltalake import DeltaTable, write_deltalake  # noqa: E402  after the check that it is there
from deltalake.transaction import AddAction, RemoveAction  # noqa: E402
from pyspark.sql.types import LongType, StringType, StructType  # noqa: E402

from spark_tasks.delta.batch_table import BatchTable  # noqa: E402
from spark_tasks.table.delta import Overtaken, Table, TableUnfit, add_action  # noqa: E402
from spark_tasks.table.ledger import Mark, Page  # noqa: E402
from spark_tasks.table.live_files import live_files, row_changing_features  # noqa: E402
from spark_tasks.table.parquet_files import ParquetReader, ParquetRows  # noqa: E402
from tasks.places.place import Place  # noqa: E402
from testkit.spark.tables import SCHEMA, write_parts  # noqa: E402

pytestmark = pytest.mark.integration


def _table(folder: Path) -> BatchTable:
    return BatchTable(Place(str(folder)), "task")


def _numbers(folder: Path) -> list[int]:
    numbers: list[int] = DeltaTable(folder).to_pyarrow_table().column("n").to_pylist()
    return sorted(numbers)


def _commit(
    table: BatchTable, mark: Mark, numbers: list[int], handle: DeltaTable | None = None, replaces: bool = False
) -> bool:
    """Commit a batch, in place of all others if it `replaces` them; to the version of `handle` if there is one."""
    parts = write_parts(table, mark, numbers)
    handle = handle or table.opened(SCHEMA)
    assert not table.check(handle, mark)
    table.ledger.write(Page(mark, table.previous(handle), f"run-{mark.batch}", len(numbers), 0, (), cursor={"n": 1}))
    files: list[AddAction | RemoveAction] = [
        *map(add_action, parts),
        *([file.remove() for file in live_files(handle)] if replaces else []),
    ]
    return table.apply(handle, mark, parts, files, {"rota.run": "run"}, alone=replaces)


def test_a_table_that_is_not_there_yet_has_a_holder_and_the_last_claim_wins(tmp_path: Path) -> None:
    table = _table(tmp_path / "table")
    assert (table.holder(), table.last_page(), table.has_run("run-1")) == (None, None, False)
    assert table.claim(5, instead_of=None)
    assert not table.claim(6, instead_of=None)
    assert table.claim(6, instead_of=5)
    assert (table.holder(), table.version()) == (6, None)
    with pytest.raises(Overtaken, match="token 6, not 5, holds"):
        _commit(table, Mark(1, 5), [1])
    assert table.holder() is None, "there is a table now, and its log does not say who holds it"
    assert _commit(table, Mark(1, 6), [2])
    assert (table.holder(), table.last(), _numbers(tmp_path / "table")) == (6, Mark(1, 6), [2])
    page = table.last_page()
    assert page is not None
    assert (page.run_id, page.cursor, page.previous) == ("run-1", {"n": 1}, None)
    assert (table.has_run("run-1"), table.has_run("run-2")) == (True, False)


def test_a_claim_of_an_abandoned_cluster_with_a_greater_token_is_given_up(tmp_path: Path) -> None:
    """A new cluster counts from 1 again; what is left of the old one commits nothing."""
    table = _table(tmp_path)
    assert table.claim(90, instead_of=None)
    assert _commit(table, Mark(1, 90), [1])
    assert table.claim(3, instead_of=90)
    with pytest.raises(Overtaken, match="token 3, not 90, holds"):
        _commit(table, Mark(2, 90), [2])
    assert _commit(table, Mark(2, 3), [3])
    assert _numbers(tmp_path) == [1, 3]


@pytest.mark.parametrize("batch", [1, 2])
def test_of_two_attempts_that_meet_anywhere_the_older_one_commits_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    """The newer one claims at a moment when the older one has asked whether it holds the table."""
    for number, method in enumerate(("_create", "_is_in", "_check_follows", "_sync_parts", "_append")):
        if batch == 2 and method == "_create":
            continue
        folder = tmp_path / str(number)
        table, other = _table(folder), _table(folder)
        assert table.claim(5, instead_of=None)
        if batch == 2:
            assert _commit(table, Mark(1, 5), [0])
        real: Callable[..., Any] = getattr(Table, method)

        def overtaken(
            self: Table, *args: Any, real: Any = real, method: str = method, other: BatchTable = other, **more: Any
        ) -> Any:
            monkeypatch.setattr(Table, method, real)
            while other.holder() != 6:
                other.claim(6, instead_of=other.holder())
            return real(self, *args, **more)

        monkeypatch.setattr(Table, method, overtaken)
        with pytest.raises(Overtaken, match="token 6, not 5, holds"):
            _commit(table, Mark(batch, 5), [1])
        assert _commit(other, Mark(batch, 6), [2]), method
        assert _numbers(folder) == ([0, 2] if batch == 2 else [2]), method


def test_a_commit_that_takes_files_away_is_for_one_version_alone(tmp_path: Path) -> None:
    table = _table(tmp_path)
    table.claim(1, instead_of=None)
    assert _commit(table, Mark(1, 1), [1])
    seen = table.opened(SCHEMA)
    write_deltalake(tmp_path, pa.table({"n": [7]}), mode="append")
    assert not _commit(table, Mark(2, 1), [2], seen, replaces=True)
    assert (table.last(), _numbers(tmp_path)) == (Mark(1, 1), [1, 7])
    table.place.inside(table.parquet_folder(Mark(2, 1))).remove_folder()
    assert _commit(table, Mark(2, 1), [2], replaces=True)
    assert (table.last(), _numbers(tmp_path)) == (Mark(2, 1), [2])


def test_only_what_can_never_be_committed_is_swept(tmp_path: Path) -> None:
    table = _table(tmp_path)
    table.claim(1, instead_of=None)
    write_parts(table, Mark(1, 1), [9])
    table.claim(2, instead_of=1)
    assert table.sweep() == ["task/00000001-1"], "the holder of a table that is not there yet is known, too"
    assert _commit(table, Mark(1, 2), [1])
    for mark in (Mark(1, 1), Mark(2, 1), Mark(2, 2), Mark(2, 3)):
        write_parts(table, mark, [mark.token])
        table.ledger.write(Page(mark, Mark(1, 2), "run", 1, 0, ()))
    (tmp_path / "task" / "00000001-2.staged").mkdir()
    (tmp_path / "task" / "00000001-2.widened").mkdir()
    gone = [f"_rota/task/0000000{batch}-{token}.json" for batch, token in ((1, 1), (2, 1), (2, 3))]
    gone += [f"task/0000000{batch}-{token}" for batch, token in ((1, 1), (2, 1), (2, 3))]
    assert table.sweep() == sorted([*gone, "task/00000001-2.staged"])
    assert table.sweep() == []
    assert _numbers(tmp_path) == [1]


def test_files_tell_their_partitions_and_bounds_and_their_rows_are_read_with_both(tmp_path: Path) -> None:
    rows = pa.table({"kind": ["a b", "50%/x", None], "n": [1, 2, 3], "v": ["x", "y", None]})
    write_deltalake(tmp_path, rows, partition_by=["kind"])
    found = live_files(DeltaTable(tmp_path), ["n", "v", "other"])
    told = sorted(((file.partition["kind"], file.lowest["n"], file.highest.get("v")) for file in found), key=str)
    assert told == sorted([("a b", 1, "x"), ("50%/x", 2, "y"), (None, 3, None)], key=str)
    columns = StructType().add("v", StringType()).add("kind", StringType()).add("absent", LongType())
    files = [ParquetRows(file.path, file.size_bytes, file.partition) for file in found]
    reader = ParquetReader(str(tmp_path), {}, columns, [files])
    back = [row for one in reader.partitions() for part in reader.read(one) for row in part.to_pylist()]
    expected = [{"v": v, "kind": kind, "absent": None} for v, kind in (("x", "a b"), ("y", "50%/x"), (None, None))]
    assert sorted(back, key=str) == sorted(expected, key=str)
    assert row_changing_features(DeltaTable(tmp_path)) == []


def test_a_file_that_no_commit_could_take_away_is_named(tmp_path: Path) -> None:
    """deltalake spells its path in another way than the log, and so removes nothing."""
    write_deltalake(tmp_path, pa.table({"n": [1]}))
    [name] = [file.path for file in live_files(DeltaTable(tmp_path))]
    entry = tmp_path / "_delta_log" / f"{0:020d}.json"
    entry.write_text(entry.read_text().replace(name, name.replace("-", "%2D")))
    assert DeltaTable(tmp_path).to_pyarrow_table().num_rows == 1
    with pytest.raises(TableUnfit, match=r"spells the path 'part%2D.* have the program that wrote it write its rows"):
        live_files(DeltaTable(tmp_path))


def test_an_attempt_whose_files_its_successor_has_swept_learns_that_it_was_overtaken(tmp_path: Path) -> None:
    old = new = _table(tmp_path / "table")
    assert old.claim(1, instead_of=None)
    handle, mark = old.opened(SCHEMA), Mark(1, 1)
    parts = write_parts(old, mark, [1, 2])
    assert not old.check(handle, mark)
    assert new.claim(2, instead_of=new.holder())
    assert new.sweep()
    with pytest.raises(Overtaken, match="the attempt with token 2, not 1"):
        old.apply(handle, mark, parts, [*map(add_action, parts)], {}, alone=False)
    assert new.last() is None
