"""ETL into plain Parquet files with real Spark: what readers see is each batch once, also after faults."""

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("moto.server", reason="moto[server] is not installed")
pytest.importorskip("s3fs", reason="the extra `s3` is not installed")
pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("deltalake", reason="the extra `spark` is not installed")

from pyarrow import dataset

from spark_tasks.contracts.sink import SinkUnfit
from spark_tasks.delta.batch_table import BatchTable
from spark_tasks.delta.parquet_sink import LEDGER, ParquetSink
from spark_tasks.table.delta import PROBE, Table
from spark_tasks.table.ledger import Ledger, Mark
from tasks.kind import Fenced
from tasks.places.place import Place
from testkit.servers.object_store import BUCKET
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
    sink_session,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark]

DDL = "id BIGINT, v STRING"
ROWS_A_BATCH = 40

spark, house = sink_session, sink_anywhere  # fixtures


def sink_of(house: SinkHouse, name: str = "out") -> dict[str, Any]:
    return house.sink(type="parquet", folder=house.at(name))


def rows_of(house: SinkHouse, name: str = "out", columns: Sequence[str] = ("id", "v")) -> list[RowTuple]:
    """What a plain reader of the folder sees."""
    if house.store is None:
        found = dataset.dataset(house.at(name), format="parquet")
    else:
        found = dataset.dataset(f"{BUCKET}/{name}", format="parquet", filesystem=house.store.files)
    return sorted(tuple(row.values()) for row in found.to_table(columns=list(columns)).to_pylist())


def batch(number: int) -> list[RowTuple]:
    return [(number * ROWS_A_BATCH + row, f"v{row}") for row in range(ROWS_A_BATCH)]


def ledger(house: SinkHouse, name: str = "out") -> BatchTable:
    options = {} if house.store is None else house.store.options
    return BatchTable(Place(house.at(name), options).inside(LEDGER), TASK)


def leftovers(house: SinkHouse, name: str = "out") -> set[str]:
    """The files that are not published, of the ledger's log, or of a committed batch's page."""
    table = ledger(house, name)
    pages = {f"{LEDGER}/{table.ledger.path(page.mark)}" for page in table.ledger.pages(table.last())}
    known = pages | {f"{LEDGER}/{PROBE}", f"{LEDGER}/_rota/{TASK}/columns.json"}
    hidden = {one for one in house.names(name) if one.startswith(f"{LEDGER}/")}
    return {one for one in hidden if not one.startswith(f"{LEDGER}/_delta_log/")} - known


def published(house: SinkHouse, name: str = "out") -> set[str]:
    """The batch and the token that the names of visible files bear."""
    visible = {one for one in house.names(name) if not one.startswith(f"{LEDGER}/")}
    assert all(one.startswith(f"part-{TASK}-") for one in visible), visible
    return {"-".join(one.removeprefix(f"part-{TASK}-").split("-")[:2]) for one in visible}


@pytest.mark.soak
def test_each_batch_is_there_once_for_plain_readers(house: SinkHouse, spark: "SparkSession") -> None:
    batches = [batch(number) for number in range(3)]
    first = run_attempt(spark, house.attempt(sink_of(house)), GivenBatches(DDL, batches[:2]))
    assert (first.rows, first.batches) == (2 * ROWS_A_BATCH, 2)
    assert run_attempt(spark, house.attempt(sink_of(house), 2, 2), GivenBatches(DDL, batches[:2])).batches == 0
    run_attempt(spark, house.attempt(sink_of(house), 3, 3), GivenBatches(DDL, [*batches, []]))
    expected = [row for rows in batches for row in rows]
    assert rows_of(house) == expected
    assert published(house) == {"00000001-1", "00000002-1", "00000003-3"}
    assert ledger(house).last() == Mark(4, 3), "an empty batch has no files"
    assert leftovers(house) == set()
    if house.store is None:
        assert sorted(map(tuple, spark.read.parquet(house.at("out")).collect())) == expected
    with pytest.raises(SinkUnfit, match="has no column w, which the batch has"):
        more: list[list[RowTuple]] = [*batches, [], [(1, "a", 1)]]
        run_attempt(spark, house.attempt(sink_of(house), 4, 4), GivenBatches(f"{DDL}, w INT", more))


STEPS: list[tuple[Step, int]] = [
    ((ParquetSink, "claim", "before"), 1),
    ((Table, "_append", "after"), 1),
    ((ParquetSink, "sweep", "before"), 1),
    ((ParquetSink, "write", "before"), 1),
    ((ParquetSink, "write", "after"), 1),
    ((BatchTable, "check", "after"), 1),
    ((Ledger, "write", "before"), 1),
    ((Ledger, "write", "after"), 1),
    ((Table, "_append", "before"), 2),
    ((Table, "_append", "after"), 2),
    ((BatchTable, "apply", "after"), 1),
    ((Place, "move", "before"), 1),
    ((Place, "move", "after"), 1),
    ((Place, "move", "after"), 2),
    ((ParquetSink, "_publish", "after"), 1),
    ((ParquetSink, "commit", "after"), 1),
    ((ParquetSink, "sweep", "before"), 2),
]


@pytest.mark.soak
@pytest.mark.parametrize("batches_before", [0, 1])
def test_after_a_crash_at_any_step_the_next_attempt_makes_the_batch_whole(
    house: SinkHouse, spark: "SparkSession", batches_before: int
) -> None:
    """The next attempt has nothing new to read, where the batch was decided: it publishes the rest all the same."""
    batches = [batch(number) for number in range(batches_before + 1)]
    expected = [row for rows in batches for row in rows]
    for number, (step, call) in enumerate(STEPS):
        name = f"out-{number}"
        sink = sink_of(house, name)
        if batches_before:
            run_attempt(spark, house.attempt(sink, 1, 1), GivenBatches(DDL, batches[:-1]))
        assert crashes(spark, house.attempt(sink, 2, 2), GivenBatches(DDL, batches), step, call), step
        seen = rows_of(house, name) if published(house, name) else []
        assert set(seen) <= set(expected)
        assert len(seen) == len(set(seen))
        run_attempt(spark, house.attempt(sink, 3, 2), GivenBatches(DDL, batches))
        assert rows_of(house, name) == expected, step
        assert leftovers(house, name) == set(), step
        assert len(published(house, name)) == len(batches), step


OVERTAKEN: list[tuple[Step, int]] = [
    ((ParquetSink, "commit", "before"), 1),
    ((BatchTable, "check", "after"), 1),
    ((Ledger, "write", "after"), 1),
    ((BatchTable, "apply", "before"), 1),
    ((Table, "_append", "before"), 2),
]


@pytest.mark.soak
@pytest.mark.parametrize("whole", [True, False], ids=["commits", "only claims"])
def test_an_attempt_that_was_overtaken_at_any_step_publishes_nothing(
    house: SinkHouse, spark: "SparkSession", whole: bool
) -> None:
    rows = batch(0)
    for number, (step, call) in enumerate(OVERTAKEN):
        name = f"out-{number}"
        old, new = house.attempt(sink_of(house, name), token=1), house.attempt(sink_of(house, name), token=2)

        def overtake(name: str = name, old: Any = old, new: Any = new) -> None:
            if whole:
                assert run_attempt(spark, new, GivenBatches(DDL, [rows])).batches == 1
            else:
                options = {} if house.store is None else house.store.options
                held = ParquetSink(Place(house.at(name), options), TASK, house.folder / "other")
                assert held.claim(2, instead_of=1)
            old.before_checkpoint = fence

        with at_step(step, overtake, call), pytest.raises(Fenced):
            run_attempt(spark, old, GivenBatches(DDL, [rows]))
        assert published(house, name) == ({"00000001-2"} if whole else set()), step
        assert run_attempt(spark, new, GivenBatches(DDL, [rows])).batches == (0 if whole else 1)
        assert rows_of(house, name) == rows, step


@pytest.mark.soak
def test_a_batch_that_is_decided_and_not_published_outlives_the_sweep_of_others(
    house: SinkHouse, spark: "SparkSession"
) -> None:
    """The attempt that decided it is frozen, and another, which has planned before, claims and sweeps."""
    rows, source = batch(0), GivenBatches(DDL, [batch(0)])
    frozen, other = house.attempt(sink_of(house), token=1), house.attempt(sink_of(house), token=2)
    assert crashes(spark, frozen, source, (ParquetSink, "_publish", "before"))
    assert published(house) == set()
    options = {} if house.store is None else house.store.options
    sink = ParquetSink(Place(house.at("out"), options), TASK, house.folder / "other")
    assert sink.claim(2, instead_of=1)
    assert sink.sweep() == []
    assert run_attempt(spark, other, source).batches == 0
    assert rows_of(house) == rows


@pytest.mark.parametrize("kills", [pytest.param(3, marks=pytest.mark.soak), pytest.param(20, marks=pytest.mark.soak)])
def test_attempts_that_are_killed_at_any_moment_neither_lose_nor_double_a_row(
    house: SinkHouse, spark: "SparkSession", kills: int
) -> None:
    rows = 2000 * (kills * 2 + 2)
    finish = kill_attempts(house, sink_of(house), rows, kills, random.Random(15))
    run_attempt(spark, finish)
    assert rows_of(house) == [
        (n % 3000, f"v{n}") for n in sorted(range(1, rows + 1), key=lambda n: (n % 3000, f"v{n}"))
    ]
    assert len(published(house)) == rows // 2000
    assert leftovers(house) == set()
