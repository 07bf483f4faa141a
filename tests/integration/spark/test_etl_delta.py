"""ETL into Delta tables with real Spark: each batch once and equal to a model in plain Python, also after faults."""

import json
import random
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest

pytest.importorskip("moto.server", reason="moto[server] is not installed")
pytest.importorskip("s3fs", reason="the extra `s3` is not installed")
pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("deltalake", reason="the extra `spark` is not installed")

from deltalake import DeltaTable, write_deltalake

from spark_tasks.sinks import delta as delta_sink
from spark_tasks.sinks.batch_table import BatchTable
from spark_tasks.sinks.delta import DeltaSink
from spark_tasks.sinks.port import SinkUnfit
from spark_tasks.storage.delta_options import delta_options
from spark_tasks.table.delta import PROBE, Table
from spark_tasks.table.ledger import Ledger, Mark
from tasks.access import Access, AccessRefused
from tasks.kind import Fenced
from tasks.place import Place
from tests.integration.spark.etl_sinks import (
    TASK,
    GivenBatches,
    RowTuple,
    SinkHouse,
    Step,
    WholeBatch,
    at_step,
    crashes,
    fence,
    kill_at_any_moment,
    run_attempt,
    sink_anywhere,
    sink_in_folder,
    sink_session,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark]

DDL = "id BIGINT, part INT, v STRING, gone BOOLEAN"
ROWS_A_BATCH = 40

spark, house, folder = sink_session, sink_anywhere, sink_in_folder  # fixtures


def delta(house: SinkHouse, name: str = "table") -> DeltaTable:
    options = None if house.store is None else delta_options(house.store.options, "us-east-1")
    return DeltaTable(house.at(name), storage_options=options)


def rows_of(house: SinkHouse, name: str = "table") -> list[RowTuple]:
    found = delta(house, name).to_pyarrow_table().to_pylist()
    return sorted(tuple(row.values()) for row in found)


def batch(draw: random.Random, keys: int = 100) -> list[RowTuple]:
    """Rows with different keys, some of them tombstones."""
    ids = draw.sample(range(keys), ROWS_A_BATCH)
    return [(key, key % 3, f"v{draw.randrange(10**6)}", draw.random() < 0.3) for key in ids]


def merge_into(model: dict[int, RowTuple], rows: list[RowTuple]) -> None:
    for key, part, v, gone in rows:
        if gone:
            model.pop(key, None)
        else:
            model[key] = (key, part, v)


def log_lines(house: SinkHouse, name: str = "table") -> list[dict[str, Any]]:
    """What the log says, in no order. Read without deltalake: its `history` stops all threads, so the store too."""
    place = Place(house.at(name), {} if house.store is None else house.store.options)
    log = [one for one in house.names(name) if one.startswith("_delta_log/") and one.endswith(".json")]
    return [json.loads(line) for one in log for line in (place.read(one) or b"").splitlines()]


def commits(house: SinkHouse) -> list[dict[str, Any]]:
    """What is said of each commit of a batch."""
    found = [line["commitInfo"] for line in log_lines(house) if "commitInfo" in line]
    return [one for one in found if "rota.batch" in one]


def leftovers(house: SinkHouse, name: str = "table") -> set[str]:
    """The files that are not of the log, of a committed batch's page, or named by the log now or before."""
    place = Place(house.at(name), {} if house.store is None else house.store.options)
    named = {unquote(line["add"]["path"]) for line in log_lines(house, name) if "add" in line}
    table = BatchTable(place, TASK)
    pages = {table.ledger.path(page.mark) for page in table.ledger.pages(table.last())}
    known = named | pages | {PROBE, f"_rota/{TASK}/holder"}
    there = {one for one in house.names(name) if not one.startswith("_delta_log/")}
    return {one for one in there if not one.endswith(".crc")} - known  # Spark's own file system writes checksums


def marks(house: SinkHouse) -> list[tuple[int, int]]:
    """The batch and the token of each commit of a batch."""
    return sorted((int(one["rota.batch"]), int(one["rota.token"])) for one in commits(house))


@pytest.mark.soak
def test_batches_are_appended_each_once_and_the_table_knows_the_cursor(house: SinkHouse, spark: "SparkSession") -> None:
    draw = random.Random(1)
    batches = [batch(draw) for _ in range(3)]
    sink = house.sink(type="delta", table=house.at("table"), mode="append")
    first = run_attempt(spark, house.attempt(sink), GivenBatches(DDL, batches[:2]))
    assert (first.rows, first.batches) == (2 * ROWS_A_BATCH, 2)
    nothing = house.attempt(sink, token=2, run=2)
    assert run_attempt(spark, nothing, GivenBatches(DDL, batches[:2])).batches == 0
    assert nothing.saved == []
    assert run_attempt(spark, house.attempt(sink, token=3, run=3), GivenBatches(DDL, batches)).batches == 1
    assert rows_of(house) == sorted(row for rows in batches for row in rows)
    assert marks(house) == [(1, 1), (2, 1), (3, 3)]
    assert {"sales~1", "sales~3"} == {one["rota.run"] for one in commits(house)}
    assert leftovers(house) == set()


@pytest.mark.soak
def test_a_merge_updates_adds_and_deletes_by_the_keys(house: SinkHouse, spark: "SparkSession") -> None:
    draw, model = random.Random(2), dict[int, RowTuple]()
    sink = house.sink(type="delta", table=house.at("table"), mode="merge", keys=["id"], tombstone="gone")
    batches: list[list[RowTuple]] = []
    for token in range(1, 5):
        batches.append(batch(draw))
        there = set(model)
        figures = run_attempt(spark, house.attempt(sink, token, token), GivenBatches(DDL, batches))
        merge_into(model, batches[-1])
        assert rows_of(house) == sorted(model.values())
        assert figures.rows == sum(not row[3] for row in batches[-1])
        assert figures.deleted == sum(row[3] and row[0] in there for row in batches[-1])
    assert delta(house).schema().to_arrow().names == ["id", "part", "v"]
    assert leftovers(house) == set()


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
def test_partitions_that_a_batch_touches_are_replaced_and_no_others(house: SinkHouse, spark: "SparkSession") -> None:
    ddl = "at DATE, kind STRING, ok BOOLEAN, n INT"
    by = ["at", "kind", "ok"]
    sink = house.sink(type="delta", table=house.at("table"), mode="overwrite_partitions", partition_by=by)
    kinds = ["a b", "50%", "a/b=c", "Größe:1", None]
    first: list[RowTuple] = [(date(2026, 1, day), kind, bool(day % 2), day) for day in (1, 2) for kind in kinds]
    second: list[RowTuple] = [(*row[:3], 100 + n) for row in first[::2] for n in range(2)]
    third: list[RowTuple] = [(date(2026, 1, 3), "new", None, 7), (*first[1][:3], 8)]
    batches, model = [first, second, third], dict[RowTuple, list[int]]()
    for token in (1, 2, 3):
        run_attempt(spark, house.attempt(sink, token, token), GivenBatches(ddl, batches[:token]))
        touched: dict[RowTuple, list[int]] = {}
        for row in batches[token - 1]:
            touched.setdefault(row[:3], []).append(row[3])
        model |= touched
        found = delta(house).to_pyarrow_table().select(["at", "kind", "ok", "n"]).to_pylist()
        expected = [(*key, n) for key, numbers in model.items() for n in numbers]
        assert sorted((tuple(row.values()) for row in found), key=repr) == sorted(expected, key=repr)
    assert leftovers(house) == set()


@pytest.mark.soak
def test_a_merge_into_a_partitioned_table_moves_rows_between_partitions(
    house: SinkHouse, spark: "SparkSession"
) -> None:
    sink = house.sink(type="delta", table=house.at("table"), mode="merge", keys=["id"], partition_by=["part", "day"])
    ddl = "id INT, part STRING, day DATE, v INT"
    draw, model, batches = random.Random(5), dict[int, RowTuple](), list[list[RowTuple]]()
    for token in range(1, 6):
        ids = draw.sample(range(30), 12)
        parts = ["a b", "c%20d", "e=f", None]
        batches.append([(n, draw.choice(parts), date(2026, 1, draw.randint(1, 2)), token) for n in ids])
        run_attempt(spark, house.attempt(sink, token, token), GivenBatches(ddl, batches))
        model |= {row[0]: row for row in batches[-1]}
        found = delta(house).to_pyarrow_table().select(["id", "part", "day", "v"]).to_pylist()
        assert sorted(tuple(row.values()) for row in found) == sorted(model.values())
    assert leftovers(house) == set()


@pytest.mark.soak
def test_a_replaced_table_has_the_newest_batch_alone_and_a_run_replaces_it_once(
    house: SinkHouse, spark: "SparkSession"
) -> None:
    draw = random.Random(6)
    sink = house.sink(type="delta", table=house.at("table"), mode="replace")
    batches = [batch(draw) for _ in range(3)]
    for number in (1, 2, 3):
        source = WholeBatch(DDL, batches[:number])
        context = house.attempt(sink, token=2 * number, run=number, incremental=None)
        assert run_attempt(spark, context, source).batches == 1
        again = house.attempt(sink, token=2 * number + 1, run=number, incremental=None)
        assert run_attempt(spark, again, source).batches == 0
        assert rows_of(house) == sorted(batches[number - 1])
    empty = house.attempt(sink, token=9, run=9, incremental=None)
    assert run_attempt(spark, empty, WholeBatch(DDL, [[]])).rows == 0
    assert rows_of(house) == []
    assert leftovers(house) == set()


ODD_DDL = (
    "id INT, price DECIMAL(10,2), at TIMESTAMP, wall TIMESTAMP_NTZ, day DATE, raw BINARY, ok BOOLEAN, f FLOAT, "
    "d DOUBLE, s SMALLINT, t TINYINT, tags ARRAY<STRING>, inner STRUCT<a: INT, b: STRING>, "
    "m MAP<STRING, INT>, `o.d` INT"
)


@pytest.mark.soak
def test_a_merge_keeps_rows_of_all_types_that_it_does_not_change(house: SinkHouse, spark: "SparkSession") -> None:
    from decimal import Decimal

    def row(n: int) -> RowTuple:
        wall = datetime(2026, 1, 5, 9, 0, 0, n)
        given = (
            Decimal(n) / 4,
            wall.replace(tzinfo=UTC),
            wall,
            date(1900, 1, 5),
            bytes([n]),
            n % 2 == 0,
            n / 2,
            n / 3,
            n,
        )
        return (n, *given, -n, ["a", None], (n, "x"), {"k": n}, n)

    sink = house.sink(type="delta", table=house.at("table"), mode="merge", keys=["id"])
    nulls = (3, *[None] * 14)
    batches = [[row(1), row(2), nulls], [row(2)], [row(4)]]
    before = None
    for token in (1, 2, 3):
        run_attempt(spark, house.attempt(sink, token, token), GivenBatches(ODD_DDL, batches[:token]))
        there = {one["id"]: one for one in delta(house).to_pyarrow_table().to_pylist()}
        before = before or there
        assert {key: there[key] for key in (1, 2, 3)} == before
    assert before is not None
    assert before[1]["price"] == Decimal("0.25")
    assert set(there) == {1, 2, 3, 4}


@pytest.mark.soak
def test_rows_that_do_not_fit_are_refused_with_the_name_of_what_is_wrong(
    folder: SinkHouse, spark: "SparkSession"
) -> None:
    sink = folder.sink(type="delta", table=folder.at("table"), mode="merge", keys=["id", "part"])
    good: list[RowTuple] = [(1, 1, "a", False)]

    def refused(match: str, ddl: str, rows: list[RowTuple], token: int, **params: Any) -> None:
        with pytest.raises(SinkUnfit, match=match):
            run_attempt(spark, folder.attempt(sink | params, token), GivenBatches(ddl, [good, rows]))

    with pytest.raises(SinkUnfit, match="cannot have a column named 'a b': rename it in `transform`"):
        run_attempt(spark, folder.attempt(sink, 1), GivenBatches("id INT, part INT, `a b` INT", [[(1, 1, 1)]]))
    run_attempt(spark, folder.attempt(sink, 2), GivenBatches(DDL, [good]))
    refused("has no column w, which the batch has", f"{DDL}, w INT", [(1, 1, "a", False, 1)], 3)
    refused("the batch lacks the column gone of", "id BIGINT, part INT, v STRING", [(1, 1, "a")], 4)
    refused("the column v is string in .*, and int in the batch", DDL.replace("STRING", "INT"), [(1, 1, 1, False)], 5)
    refused("the rows lack part; they have id", "id BIGINT", [(1,)], 6)
    twice: list[RowTuple] = [(7, 1, "a", False), (7, 1, "b", False), (8, 1, "a", False)]
    refused("one batch has 2 rows with the keys 7, 1; make them one in `transform`", DDL, twice, 7)
    refused("1 rows of a batch have a null in their keys", DDL, [(7, None, "a", False)], 8)
    refused("is partitioned not at all", DDL, good, 9, partition_by=["part"])
    assert rows_of(folder) == sorted(good)


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


@pytest.mark.soak
def test_what_a_node_does_not_allow_is_refused_before_anything_is_written(
    house: SinkHouse, spark: "SparkSession"
) -> None:
    context = house.attempt(house.sink(type="delta", table=house.at("table"), mode="append"))
    context.access = Access("node-1", source_roots=("/",), destination_roots=("/nowhere",))
    with pytest.raises(AccessRefused, match="allows no such destination"):
        run_attempt(spark, context, GivenBatches(DDL, [[]]))
    assert house.names("table") == set()


@pytest.mark.parametrize("kills", [pytest.param(3, marks=pytest.mark.soak), pytest.param(20, marks=pytest.mark.soak)])
@pytest.mark.parametrize("mode", ["append", "merge"])
def test_attempts_that_are_killed_at_any_moment_neither_lose_nor_double_a_row(
    house: SinkHouse, spark: "SparkSession", mode: str, kills: int
) -> None:
    more = {"keys": ["id"]} if mode == "merge" else {}
    sink = house.sink(type="delta", table=house.at("table"), mode=mode, **more)
    rows = 2000 * (kills * 2 + 2)
    run_attempt(spark, kill_at_any_moment(house, sink, rows, kills, random.Random(14)))
    every = [(n, n % 3000, f"v{n}") for n in range(1, rows + 1)]
    expected = every if mode == "append" else list({row[1]: row for row in every}.values())
    assert rows_of(house) == sorted(expected)
    assert [number for number, _ in marks(house)] == list(range(1, rows // 2000 + 1))
    assert leftovers(house) == set()
