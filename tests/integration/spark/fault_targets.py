"""Sinks of all kinds, fed by one source of numbered rows: what each shows, what it should, and what is left in it.

Row n is (n, n % 700, n // 400, "vn"), and a batch has 500 of them, so what a sink shows after a number of batches is
known: a key comes once in a batch, and a partition is in two of them.
"""

import csv
import re
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from spark_tasks.delta.parquet_sink import LEDGER
from spark_tasks.table.delta import Table
from spark_tasks.table.ledger import quarantine_of
from tasks.places.place import Place
from testkit.servers.object_store import ObjectStore
from testkit.servers.webhook_receiver import WebhookReceiver
from testkit.spark import delta_sinks as of_delta
from testkit.spark.databases import EtlDatabase
from testkit.spark.etl_sinks import TASK, RowTuple, SinkHouse
from tests.integration.spark import test_etl_parquet as of_parquet

BATCH_ROWS: Final = 500
COLUMNS: Final = ("n", "id", "part", "v")


def row(n: int) -> RowTuple:
    return (n, n % 700, n // 400, f"v{n}")


def rows(first: int, last: int) -> list[RowTuple]:
    return [row(n) for n in range(first, last + 1)]


def appended(last: int) -> list[RowTuple]:
    """What a sink shows that keeps all rows, after the rows up to `last`."""
    return rows(1, last)


def merged(last: int) -> list[RowTuple]:
    """What one shows that keeps the last row of each key."""
    return sorted({one[1]: one for one in rows(1, last)}.values())


def overwritten(last: int) -> list[RowTuple]:
    """What one shows that keeps of each partition the rows of the last batch with rows in it."""
    kept: dict[int, list[RowTuple]] = {}
    for first in range(1, last + 1, BATCH_ROWS):
        batch = rows(first, first + BATCH_ROWS - 1)
        kept |= {part: [one for one in batch if one[2] == part] for part in {one[2] for one in batch}}
    return sorted(one for part in kept.values() for one in part)


class Source:
    """An SQLite file and a folder of CSV files with the same rows."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "app.db"
        self.files = folder / "in"
        self.files.mkdir()
        self.last = 0
        with closing(sqlite3.connect(self.file)) as database, database:
            database.execute("CREATE TABLE src (n INTEGER PRIMARY KEY, id INTEGER, part INTEGER, v TEXT)")

    def add(self, batches: int) -> None:
        """Add the rows of that many batches at once."""
        first, self.last = self.last + 1, self.last + batches * BATCH_ROWS
        with closing(sqlite3.connect(self.file)) as database, database:
            database.executemany("INSERT INTO src VALUES (?, ?, ?, ?)", rows(first, self.last))
        for begin in range(first, self.last, BATCH_ROWS):
            with (self.files / f".{begin:09d}").open("w", newline="") as file:
                out = csv.writer(file)
                out.writerow(COLUMNS)
                out.writerows(rows(begin, begin + BATCH_ROWS - 1))
            (self.files / f".{begin:09d}").rename(self.files / f"{begin:09d}.csv")

    def etl(self, sink: dict[str, Any], *, whole: bool = False) -> dict[str, Any]:
        """The params of an ETL from the file."""
        source = {"type": "sqlite", "path": str(self.file), "table": "src", "shared": True}
        how = {} if whole else {"incremental": {"cursor": "n", "lag_s": 0, "batch_rows": BATCH_ROWS}}
        return {"source": source, "sink": sink} | how


_LOG: Final = re.compile(r"\d{20}(\.json|\.checkpoint.*\.parquet)|_last_checkpoint")


def of_log(house: SinkHouse, name: str) -> set[str]:
    """What is in the folder of a log and is no entry of it."""
    folder = "_delta_log/"
    there = {one.removeprefix(folder) for one in house.names(name) if one.startswith(folder)}
    return {folder + one for one in there if not _LOG.fullmatch(one)}


class FaultTarget:
    """A sink that shows whole batches, and nothing else. Either `etl` or `ingest` has the params of what writes it."""

    name: str
    etl: dict[str, Any] | None = None
    ingest: dict[str, Any] | None = None
    whole = False
    """Whether each run is one batch, of all rows."""

    def shown(self) -> list[RowTuple]:
        """The rows that it shows now."""
        raise NotImplementedError

    def expected(self, last: int) -> list[RowTuple]:
        """Those that it shows once the rows up to `last` are in."""
        return appended(last)

    def leftovers(self) -> Iterable[str]:
        """What is in it that attempts left, and that nobody needs."""
        raise NotImplementedError

    def torn(self, last: int) -> str:
        """What it shows now that it should show at no moment; "" if it is right. `last` is the source's last row."""
        shown = self.shown()
        newest = max((one[0] for one in shown), default=0)
        if newest <= last and newest % BATCH_ROWS == 0 and shown == self.expected(newest):
            return ""
        return f"{len(shown)} rows, {len(set(shown))} different ones, the last is {newest} of {last}"


class DeltaFaults(FaultTarget):
    """A Delta table."""

    def __init__(self, source: Source, house: SinkHouse, mode: str) -> None:
        self.name = f"delta-{mode.partition('_')[0]}"
        self.house = house
        self.mode = mode
        more: dict[str, Any] = {"merge": {"keys": ["id"]}, "overwrite_partitions": {"partition_by": ["part"]}}
        own = {} if house.store is not None else {"shared": True}
        sink = house.sink(type="delta", table=house.at(self.name), mode=mode, **own, **more.get(mode, {}))
        self.whole = mode == "replace"
        self.etl = source.etl(sink, whole=self.whole)

    def expected(self, last: int) -> list[RowTuple]:
        return {"merge": merged, "overwrite_partitions": overwritten}.get(self.mode, appended)(last)

    def shown(self) -> list[RowTuple]:
        if not any(name.startswith("_delta_log/") and name.endswith(".json") for name in self.house.names(self.name)):
            return []
        found = of_delta.delta(self.house, self.name).to_pyarrow_table(columns=list(COLUMNS)).to_pylist()
        return sorted(tuple(one.values()) for one in found)

    def leftovers(self) -> Iterable[str]:
        return of_delta.leftovers(self.house, self.name) | of_log(self.house, self.name)


class ParquetFaults(FaultTarget):
    """A folder of Parquet files, which are published one after another."""

    def __init__(self, source: Source, house: SinkHouse) -> None:
        self.name = "parquet"
        self.house = house
        own = {} if house.store is not None else {"shared": True}
        self.etl = source.etl(house.sink(type="parquet", folder=house.at(self.name), **own))

    def shown(self) -> list[RowTuple]:
        if not of_parquet.published(self.house, self.name):
            return []
        return of_parquet.rows_of(self.house, self.name, COLUMNS)

    def torn(self, last: int) -> str:
        shown = self.shown()
        return "" if len(shown) == len(set(shown)) and set(shown) <= set(self.expected(last)) else f"{len(shown)} rows"

    def leftovers(self) -> Iterable[str]:
        return of_parquet.leftovers(self.house, self.name) | of_log(self.house, f"{self.name}/{LEDGER}")


class IngestFaults(FaultTarget):
    """A Delta table into which files are ingested, one a batch."""

    def __init__(self, source: Source, house: SinkHouse) -> None:
        self.name = "ingest"
        self.house = house
        options = {"shared": True} if house.store is None else {"options": house.store.references}
        self.ingest = {
            "source": f"{source.files}/*.csv",
            "format": "csv",
            "table": house.at(self.name),
            "columns": "n BIGINT, id BIGINT, part BIGINT, v STRING",
            "batch_files": 1,
            "shared": True,
        } | options

    def shown(self) -> list[RowTuple]:
        if not any(name.startswith("_delta_log/") and name.endswith(".json") for name in self.house.names(self.name)):
            return []
        found = of_delta.delta(self.house, self.name).to_pyarrow_table(columns=list(COLUMNS)).to_pylist()
        return sorted(tuple(one.values()) for one in found)

    def leftovers(self) -> Iterable[str]:
        options = {} if self.house.store is None else self.house.store.options
        table = Table(Place(self.house.at(self.name), options), TASK)
        pages = list(table.ledger.pages(table.last()))
        known = {table.ledger.path(page.mark) for page in pages} | {part for page in pages for part in page.parts}
        there = {name for name in self.house.names(self.name) if not name.startswith("_delta_log/")}
        left = {name for name in there if not name.endswith(".crc") and "conditional-writes" not in name} - known
        return left | of_log(self.house, self.name) | self.house.names(quarantine_of(self.name))


class SqliteFaults(FaultTarget):
    """A table in an SQLite file."""

    def __init__(self, source: Source, folder: Path) -> None:
        self.name = "sqlite"
        self.folder = folder / "sqlite"
        self.folder.mkdir()
        self.file = self.folder / "target.db"
        sink = {"type": "sqlite", "path": str(self.file), "table": "dst", "mode": "append", "shared": True}
        self.etl = source.etl(sink)

    def shown(self) -> list[RowTuple]:
        if not self.file.exists():
            return []
        with closing(sqlite3.connect(self.file, timeout=60)) as database:
            there = database.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'dst'").fetchone()[0]
            return database.execute("SELECT n, id, part, v FROM dst ORDER BY n").fetchall() if there else []

    def leftovers(self) -> Iterable[str]:
        with closing(sqlite3.connect(self.file)) as database:
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        return {path.name for path in self.folder.iterdir()} - {"target.db"} | tables - {
            "dst",
            "rota_sinks",
            "rota_batches",
        }


class PostgresFaults(FaultTarget):
    """A table in PostgreSQL."""

    def __init__(self, source: Source, database: EtlDatabase, mode: str) -> None:
        self.name = f"postgres-{mode}"
        self.table = f"dst_{mode}"
        self.database = database
        self.mode = mode
        keys = {"keys": ["id"]} if mode == "upsert" else {}
        self.etl = source.etl(database.end(table=self.table, mode=mode, **keys))

    def expected(self, last: int) -> list[RowTuple]:
        return merged(last) if self.mode == "upsert" else appended(last)

    def shown(self) -> list[RowTuple]:
        if not self.database.sql(f"SELECT to_regclass('{self.table}')"):
            return []
        lines = self.database.sql(f"SELECT n, id, part, v FROM {self.table} ORDER BY n").splitlines()
        found = [line.split("|") for line in lines]
        return [(int(n), int(key), int(part), v) for n, key, part, v in found]

    def leftovers(self) -> Iterable[str]:
        known = ("src", "dst_append", "dst_upsert", "rota_sinks", "rota_batches")
        found = self.database.sql("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").splitlines()
        return set(found) - set(known)


class WebhookFaults(FaultTarget):
    """A server that takes webhooks."""

    def __init__(self, source: Source, house: SinkHouse, receiver: WebhookReceiver) -> None:
        self.name = "webhook"
        self.receiver = receiver
        self.house = house
        sink = {"type": "webhook", "url": receiver.url, "secret": {"secret": "signs"}, "batch_rows": 50}
        own = {} if house.store is not None else {"shared": True}
        self.etl = source.etl(house.sink(**sink, ledger=house.at("hooks"), **own))

    def shown(self) -> list[RowTuple]:
        """In the order in which they came."""
        return [tuple(one[name] for name in COLUMNS) for one in self.receiver.rows()]

    def torn(self, last: int) -> str:
        shown = self.shown()
        right = shown == self.expected(len(shown)) and not self.receiver.wrong
        return "" if right else f"{len(shown)} rows, {len(set(shown))} different ones; {self.receiver.wrong}"

    def leftovers(self) -> Iterable[str]:
        versions = re.compile(rf"{TASK}/versions/\d{{12}}\.json|{TASK}/\.conditional-writes")
        return {name for name in self.house.names("hooks") if not versions.fullmatch(name)}


GROUPS: Final = ("folder", "bucket")


def targets(
    group: str, source: Source, folder: Path, store: ObjectStore, database: EtlDatabase, receiver: WebhookReceiver
) -> list[FaultTarget]:
    """The sinks of a group: those on this machine, or those in a bucket."""
    house = SinkHouse(folder, None if group == "folder" else store)
    modes = ("append", "merge", "overwrite_partitions", "replace")
    found: list[FaultTarget] = [DeltaFaults(source, house, mode) for mode in modes]
    found += [ParquetFaults(source, house), IngestFaults(source, house), WebhookFaults(source, house, receiver)]
    if group == "folder":
        found += [SqliteFaults(source, folder)]
        found += [PostgresFaults(source, database, mode) for mode in ("append", "upsert")]
    return found
