"""ETL into Delta tables with real Spark after faults: attempts that crash, are killed, overtaken or interrupted."""

import random
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("moto.server", reason="moto[server] is not installed")
pytest.importorskip("s3fs", reason="the extra `s3` is not installed")
pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("deltalake", reason="the extra `spark` is not installed")

from deltalake import DeltaTable, write_deltalake

from spark_tasks.delta import sink as delta_sink
from spark_tasks.delta.batch_table import BatchTable
from spark_tasks.delta.sink import DeltaSink
from spark_tasks.table.delta import Table
from spark_tasks.table.ledger import Ledger, Mark
from tasks.kind import Fenced
from tasks.places.place import Place
from testkit.spark.delta_sinks import DDL, batch, delta, leftovers, marks, merge_into, rows_of
from testkit.spark.etl_sinks import (
    TASK,
    GivenBatches,
    RowTuple,
    SinkHouse,
    Step,
    at_step,
    crashes,
    fence,
    kill_attempts,
    run_attempt,
    sink_anywhere,
    sink_in_folder,
    sink_session,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark]

spark, house, folder = sink_session, sink_anywhere, sink_in_folder  # fixtures


STEPS: list[tuple[Step, int]] = [
    ((DeltaSink, "sweep", "before"), 1),
    ((DeltaSink, "write", "before"), 1),
    ((DeltaSink, "write", "after"), 1),
    ((BatchTable, "check", "after"), 1),
    ((Ledger, "write", "before"), 1),
    ((Ledger, "write", "after"), 1),
    ((Table, "_sync_parts", "after"), 1),
    ((Table, "_append", "after"), 1),
    ((Table, "_append", "before"), 2),
    ((Table, "_append", "after"), 2),
    ((BatchTable, "apply", "after"), 1),
    ((DeltaSink, "commit", "after"), 1),
    ((DeltaSink, "sweep", "before"), 2),
]
MERGE_STEPS: list[tuple[Step, int]] = [
    ((delta_sink, "merged", "before"), 1),
    ((Place, "remove_folder", "before"), 1),
    ((Place, "remove_folder", "after"), 1),
]
FIRST_STEPS: list[tuple[Step, int]] = [
    ((Place, "write_whole", "before"), 1),
    ((Place, "write_whole", "after"), 1),
    ((Table, "_create", "before"), 1),
    ((Table, "_create", "after"), 1),
    ((Ledger, "write", "after"), 1),
    ((Table, "_append", "before"), 1),
    ((Table, "_append", "after"), 1),
]


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["append", "merge"])
def test_after_a_crash_at_any_step_the_next_attempt_goes_on_where_the_log_stands(
    house: SinkHouse, spark: "SparkSession", mode: str
) -> None:
    draw, model, appended = random.Random(3), dict[int, RowTuple](), list[RowTuple]()
    more: dict[str, Any] = {"keys": ["id"], "tombstone": "gone"} if mode == "merge" else {}
    sink = house.sink(type="delta", table=house.at("table"), mode=mode, **more)
    batches = [batch(draw)]
    run_attempt(spark, house.attempt(sink, 1, 1), GivenBatches(DDL, batches))
    merge_into(model, batches[-1])
    appended += batches[-1]
    for number, (step, call) in enumerate([*STEPS, *(MERGE_STEPS if mode == "merge" else [])], 1):
        batches.append(batch(draw))
        assert crashes(spark, house.attempt(sink, 2 * number, number), GivenBatches(DDL, batches), step, call), step
        batches.append(batch(draw))  # an attempt with nothing to do sweeps nothing
        run_attempt(spark, house.attempt(sink, 2 * number + 1, number), GivenBatches(DDL, batches))
        for rows in batches[-2:]:
            merge_into(model, rows)
            appended += rows
        assert rows_of(house) == sorted(model.values() if mode == "merge" else appended), (step, call)
        assert leftovers(house) == set(), (step, call)
    assert [number for number, _ in marks(house)] == list(range(1, len(batches) + 1))


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["append", "merge"])
def test_after_a_crash_in_the_first_batch_there_is_one_table_and_one_batch(
    house: SinkHouse, spark: "SparkSession", mode: str
) -> None:
    draw = random.Random(7)
    rows, later = batch(draw), [(1000 + key, *rest) for key, *rest in batch(draw)]
    for number, (step, call) in enumerate(FIRST_STEPS):
        name, more = f"table-{number}", {"keys": ["id"]} if mode == "merge" else {}
        sink = house.sink(type="delta", table=house.at(name), mode=mode, **more)
        assert crashes(spark, house.attempt(sink, 1), GivenBatches(DDL, [rows]), step, call), step
        run_attempt(spark, house.attempt(sink, 2), GivenBatches(DDL, [rows, later]))
        assert rows_of(house, name) == sorted([*rows, *later]), step
        assert leftovers(house, name) == set(), step


OVERTAKEN: list[Step] = [
    (DeltaSink, "commit", "before"),
    (BatchTable, "opened", "after"),
    (BatchTable, "check", "after"),
    (Ledger, "write", "after"),
    (BatchTable, "apply", "before"),
    (Table, "_append", "before"),
]


@pytest.mark.soak
@pytest.mark.parametrize("whole", [True, False], ids=["commits", "only claims"])
@pytest.mark.parametrize("mode", ["append", "merge", "overwrite_partitions"])
@pytest.mark.parametrize("batches_before", [0, 1])
def test_an_attempt_that_was_overtaken_at_any_step_commits_nothing(
    folder: SinkHouse, spark: "SparkSession", mode: str, batches_before: int, whole: bool
) -> None:
    draw = random.Random(4)
    more: dict[str, Any] = {"merge": {"keys": ["id"]}, "overwrite_partitions": {"partition_by": ["part"]}}.get(mode, {})
    for number, step in enumerate(OVERTAKEN):
        name = f"table-{number}"
        sink = folder.sink(type="delta", table=folder.at(name), mode=mode, **more)
        batches = [batch(draw) for _ in range(batches_before + 1)]
        if batches_before:
            run_attempt(spark, folder.attempt(sink, token=1, run=0), GivenBatches(DDL, batches[:-1]))
        old, new = folder.attempt(sink, token=2), folder.attempt(sink, token=3)

        def overtake(sink: dict[str, Any] = sink, old: Any = old, new: Any = new, batches: Any = batches) -> None:
            if whole:
                assert run_attempt(spark, new, GivenBatches(DDL, batches)).batches == 1
            else:
                held = DeltaSink(new.params.sink, Place(sink["table"]), TASK, folder.folder / "other")
                assert held.claim(3, instead_of=held.holder())
            old.before_checkpoint = fence

        # A claim is a commit without files, and a claim without a table none at all: both come before the first write.
        opened_at_claim = step[1] == "_append" and batches_before
        with at_step(step, overtake, call=2 if opened_at_claim else 1), pytest.raises(Fenced):
            run_attempt(spark, old, GivenBatches(DDL, batches))
        table = BatchTable(Place(folder.at(name)), TASK)
        done = batches_before + whole
        assert table.last() == (Mark(done, 3 if whole else 1) if done else None), step
        assert run_attempt(spark, new, GivenBatches(DDL, batches)).batches == (0 if whole else 1)
        assert table.last() == Mark(batches_before + 1, 3)
        assert leftovers(folder, name) == set() or whole, step
        expected = batches[-1] if mode != "append" else [row for rows in batches for row in rows]
        found = DeltaTable(folder.at(name)).to_pyarrow_table().to_pylist()
        if mode == "merge":
            expected = list({row[0]: row for rows in batches for row in rows}.values())
        assert sorted(tuple(row[n] for n in ("id", "part", "v", "gone")) for row in found) == sorted(expected), step


@pytest.mark.soak
def test_a_merge_is_made_again_if_another_program_writes_in_between(folder: SinkHouse, spark: "SparkSession") -> None:
    """Its row has a key of the batch: had the merge been committed all the same, there would be two."""
    sink = folder.sink(type="delta", table=folder.at("table"), mode="merge", keys=["id"])
    batches: list[list[RowTuple]] = [[(1, 1, "a", False)], [(2, 2, "b", False)]]
    run_attempt(spark, folder.attempt(sink, 1, 1), GivenBatches(DDL, batches[:1]))
    schema = delta(folder).to_pyarrow_table().schema

    def write() -> None:
        import pyarrow as pa

        theirs = [{"id": key, "part": 0, "v": "theirs", "gone": False} for key in (2, 3)]
        write_deltalake(folder.at("table"), pa.Table.from_pylist(theirs, schema=schema), mode="append")

    with at_step((DeltaSink, "commit", "before"), write):
        assert run_attempt(spark, folder.attempt(sink, 2, 2), GivenBatches(DDL, batches)).batches == 1
    assert rows_of(folder) == [(1, 1, "a", False), (2, 2, "b", False), (3, 0, "theirs", False)]


@pytest.mark.parametrize("kills", [pytest.param(3, marks=pytest.mark.soak), pytest.param(20, marks=pytest.mark.soak)])
@pytest.mark.parametrize("mode", ["append", "merge"])
def test_attempts_that_are_killed_at_any_moment_neither_lose_nor_double_a_row(
    house: SinkHouse, spark: "SparkSession", mode: str, kills: int
) -> None:
    more = {"keys": ["id"]} if mode == "merge" else {}
    sink = house.sink(type="delta", table=house.at("table"), mode=mode, **more)
    rows = 2000 * (kills * 2 + 2)
    run_attempt(spark, kill_attempts(house, sink, rows, kills, random.Random(14)))
    every = [(n, n % 3000, f"v{n}") for n in range(1, rows + 1)]
    expected = every if mode == "append" else list({row[1]: row for row in every}.values())
    assert rows_of(house) == sorted(expected)
    assert [number for number, _ in marks(house)] == list(range(1, rows // 2000 + 1))
    assert leftovers(house) == set()
