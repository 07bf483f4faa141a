"""Tables for tests: a table's handle, and a batch of numbers that is written without Spark."""

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from spark_tasks.table.delta import Table
from spark_tasks.table.ledger import Mark, Page
from spark_tasks.table.local_parts import local_parts
from spark_tasks.table.object_writer import ObjectWriter
from spark_tasks.table.part import Part
from spark_tasks.table.statistics import statistics
from tasks.place import Place
from testkit.object_store import ObjectStore

SCHEMA = json.dumps({"type": "struct", "fields": [{"name": "n", "type": "long", "nullable": True, "metadata": {}}]})


def local_table(folder: Path, task: str = "task") -> Table:
    return Table(Place(str(folder)), task)


def object_table(store: ObjectStore, name: str = "table", task: str = "task") -> Table:
    return Table(Place(store.url(name), store.options), task)


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
