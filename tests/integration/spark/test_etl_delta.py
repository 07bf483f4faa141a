"""ETL into Delta tables with real Spark: each batch once and equal to a model in plain Python, also after faults."""

import random
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("moto.server", reason="moto[server] is not installed")
pytest.importorskip("s3fs", reason="the extra `s3` is not installed")
pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("deltalake", reason="the extra `spark` is not installed")

from spark_tasks.contracts.sink import SinkUnfit
from tasks.access import Access, AccessRefused
from testkit.spark.delta_sinks import (
    DDL,
    ROWS_A_BATCH,
    batch,
    commits,
    delta,
    leftovers,
    marks,
    merge_into,
    rows_of,
)
from testkit.spark.etl_sinks import (
    GivenBatches,
    RowTuple,
    SinkHouse,
    WholeBatch,
    run_attempt,
    sink_anywhere,
    sink_in_folder,
    sink_session,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark]

spark, house, folder = sink_session, sink_anywhere, sink_in_folder  # fixtures


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
def test_what_a_node_does_not_allow_is_refused_before_anything_is_written(
    house: SinkHouse, spark: "SparkSession"
) -> None:
    context = house.attempt(house.sink(type="delta", table=house.at("table"), mode="append"))
    context.access = Access("node-1", source_roots=("/",), destination_roots=("/nowhere",))
    with pytest.raises(AccessRefused, match="allows no such destination"):
        run_attempt(spark, context, GivenBatches(DDL, [[]]))
    assert house.names("table") == set()
