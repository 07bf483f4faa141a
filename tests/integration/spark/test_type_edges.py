"""Each edge of each type of each source goes through each sink: it arrives equal, or is refused by name."""

import importlib
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("adbc_driver_postgresql", reason="the extra `spark` is not installed")

from tasks.kind import Unretryable
from testkit.spark.databases import EtlDatabase
from testkit.spark.etl_sinks import sink_session
from testkit.spark.type_edges import SINKS, SOURCES, Becomes, Refused
from testkit.spark.type_edges.drawn import differing
from testkit.spark.type_edges.pushing import Pushing, Sinks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark]

__all__ = ["sink_session"]


PAIRS = [(source, sink) for source in SOURCES for sink in SINKS if sink != "postgres-sql" or source == "postgres"]
"""Every source with every sink. Only what PostgreSQL has goes into PostgreSQL in two ways."""

OFTEN = {("postgres", sink) for sink in ("postgres", "postgres-sql", "delta")} | {
    (source, "delta") for source in SOURCES
}
"""What make test-more runs. The rest takes half an hour: pytest -m soak tests/integration/spark/test_type_edges.py."""

EACH = [pytest.param(*pair, marks=pytest.mark.more if pair in OFTEN else pytest.mark.soak) for pair in PAIRS]
NAMED = [
    pytest.param(*pair, marks=pytest.mark.more if pair == ("postgres", "delta") else pytest.mark.soak) for pair in PAIRS
]


def module(source: str) -> ModuleType:
    return importlib.import_module(f"testkit.spark.type_edges.{source}")


@pytest.fixture
def sinks(database: EtlDatabase, tmp_path: Path) -> Iterator[Sinks]:
    with ExitStack() as stack:
        yield Sinks(database, tmp_path, stack)


@pytest.mark.parametrize(("source", "sink"), EACH)
def test_what_is_not_refused_arrives_equal(sink_session: "SparkSession", sinks: Sinks, source: str, sink: str) -> None:
    columns = {f"c{n}": of for n, of in enumerate(module(source).EDGES)}
    kept = {
        column: [edge for edge in of.edges if not isinstance(edge.but.get(sink), Refused)]
        for column, of in columns.items()
    }
    columns = {column: of for column, of in columns.items() if kept[column]}  # without types that no sink can have
    rows = [
        {column: edges[number] for column, edges in kept.items() if number < len(edges)}
        for number in range(max(map(len, kept.values())))
    ]
    Pushing(sink_session, sinks, source).run(sink, "every", columns, rows)
    cells = sinks.cells(sink, "every", columns)
    wrong = []
    for number, row in enumerate(rows):
        for column, edge in row.items():
            fate = edge.but.get(sink)
            wanted = fate.text if isinstance(fate, Becomes) else edge.text
            if (found := cells[number, column]) != wanted:
                wrong.append(f"{columns[column].type}, {edge.edge}: {wanted!r} became {found!r}")
    assert wrong == []


@pytest.mark.parametrize(("source", "sink"), NAMED)
def test_what_is_refused_is_refused_by_name(sink_session: "SparkSession", sinks: Sinks, source: str, sink: str) -> None:
    pushing, wrong = Pushing(sink_session, sinks, source), []
    for of in module(source).EDGES:
        for edge in of.edges:
            fate = edge.but.get(sink)
            if not isinstance(fate, Refused):
                continue
            what = f"{of.type}, {edge.edge}"
            name = f"r{pushing.runs}"
            try:
                pushing.run(sink, name, {"odd_column": of}, [{"odd_column": edge}])
            except Unretryable as error:
                if not all(said in str(error) for said in (fate.said, "odd_column")):
                    wrong.append(f"{what}: {type(error).__name__}: {error}")
            except Exception as error:
                wrong.append(f"{what}: comes again as {type(error).__name__}: {error}")
            else:
                wrong.append(f"{what}: was taken as {sinks.cells(sink, name, {'odd_column': of})}")
    assert wrong == []


@pytest.mark.more
@pytest.mark.parametrize("sink", SINKS)
def test_drawn_values_of_postgresql_arrive_equal(sink_session: "SparkSession", sinks: Sinks, sink: str) -> None:
    """`python -m testkit.spark.type_edges` draws a hundred thousand."""
    assert differing(Pushing(sink_session, sinks, "postgres"), sink, 100, number=os.getpid()) == []
