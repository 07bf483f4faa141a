"""Delta tables that tests of sinks write: their rows, their commits and what attempts left in them."""

import json
import random
from typing import Any
from urllib.parse import unquote

from deltalake import DeltaTable

from spark_tasks.delta.batch_table import BatchTable
from spark_tasks.storage.store import delta_options
from spark_tasks.table.delta import PROBE
from tasks.places.place import Place
from testkit.spark.etl_sinks import TASK, RowTuple, SinkHouse

DDL = "id BIGINT, part INT, v STRING, gone BOOLEAN"
ROWS_A_BATCH = 40


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
