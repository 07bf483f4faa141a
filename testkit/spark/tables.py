"""Tables for tests, in a folder or in an object store, and a batch of numbers that is written without Spark."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from deltalake import DeltaTable
from pyarrow import parquet

from spark_tasks.ingest.params import IngestParams
from spark_tasks.storage.store import delta_options
from spark_tasks.table.delta import Table
from spark_tasks.table.ledger import Mark, Page
from spark_tasks.table.object_writer import ObjectWriter
from spark_tasks.table.part import Part
from spark_tasks.table.statistics import statistics
from spark_tasks.table.writing import local_parts
from tasks.places.place import Place
from testkit.fake_context import FakeContext
from testkit.servers.object_store import ObjectStore

SCHEMA = json.dumps({"type": "struct", "fields": [{"name": "n", "type": "long", "nullable": True, "metadata": {}}]})


def local_table(folder: Path, task: str = "task") -> Table:
    return Table(Place(str(folder)), task)


def object_table(store: ObjectStore, name: str = "table", task: str = "task") -> Table:
    return Table(Place(store.url(name), store.options), task)


class TablePlace(Protocol):
    """Where a test has its table."""

    def table(self, task: str = "task") -> Table:
        """A new handle, as each attempt has one."""

    def delta(self) -> DeltaTable:
        """The table as any reader sees it."""

    def names(self) -> list[str]:
        """The paths of all files in the table's folder, relative to it."""

    def numbers(self) -> list[int]:
        """The rows that a reader sees."""


@dataclass
class InFolder:
    """In a local folder."""

    folder: Path

    def table(self, task: str = "task") -> Table:
        return local_table(self.folder, task)

    def delta(self) -> DeltaTable:
        return DeltaTable(self.folder)

    def names(self) -> list[str]:
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file())

    def numbers(self) -> list[int]:
        return _numbers(self.delta())


@dataclass
class InStore:
    """In an object store."""

    store: ObjectStore

    def table(self, task: str = "task") -> Table:
        return object_table(self.store, task=task)

    def delta(self) -> DeltaTable:
        return DeltaTable(self.store.url("table"), storage_options=delta_options(self.store.options, "us-east-1"))

    def names(self) -> list[str]:
        return self.store.names("table")

    def numbers(self) -> list[int]:
        return _numbers(self.delta())


def _numbers(table: DeltaTable) -> list[int]:
    return sorted(table.to_pyarrow_table().column("n").to_pylist())


def ingest_context(folder: Path, **more: Any) -> FakeContext[IngestParams]:
    """An attempt at ingesting `folder`/in into `folder`/table."""
    params = IngestParams(source=f"{folder}/in/*.csv", table=str(folder / "table"), format="csv")
    return FakeContext(params, folder / "scratch", **more)


def write_parts(table: Table, mark: Mark, numbers: Sequence[int]) -> tuple[Part, ...]:
    """What Spark does before a commit."""
    rows = pa.table({"n": pa.array(numbers, pa.int64())})
    if table.place.is_local:
        folder = Path(table.place.path) / table.parquet_folder(mark)
        folder.mkdir(parents=True)
        parquet.write_table(rows, folder / "part-00000.snappy.parquet")
        return local_parts(table, table.parquet_folder(mark))
    place = table.place
    return ObjectWriter(place.url, place.options, table.parquet_folder(mark), "").write(iter(rows.to_batches())).parts


def write_batch(table: Table, mark: Mark, numbers: Sequence[int], previous: Mark | None = None) -> Page:
    """What Spark and the ingest do before a commit."""
    parts = write_parts(table, mark, numbers)
    files = ((f"/in/{mark.batch}.csv", len(numbers)),)
    page = Page(mark, previous, "run", len(numbers), 0, files, parts=tuple(part.path for part in parts))
    table.ledger.write(page)
    return page


def commit(table: Table, mark: Mark, schema: str = SCHEMA) -> int:
    """Commit what `write_batch` wrote."""
    local = table.place.is_local
    parts = local_parts(table, table.parquet_folder(mark)) if local else _object_parts(table, mark)
    return table.commit(mark, schema, parts)


def _object_parts(table: Table, mark: Mark) -> tuple[Part, ...]:
    place, folder = table.place, table.parquet_folder(mark)
    found = []
    for name in place.names(folder):
        path = f"{folder}/{name}"
        with place.reading(path) as file:
            footer = parquet.read_metadata(file)
        found.append(Part(path, place.size_bytes(path) or 0, 0, footer.num_rows, statistics(footer)))
    return tuple(found)
