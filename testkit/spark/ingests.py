"""A folder of source files and a table, for tests of ingests on real Spark."""

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from spark_tasks.ingest.params import IngestParams
from spark_tasks.storage.store import delta_options
from spark_tasks.table.delta import PROBE
from testkit.fake_context import FakeContext
from testkit.servers.object_store import ObjectStore
from testkit.spark.tables import InFolder, InStore, TablePlace

ROWS_A_FILE = 10


class Crash(BaseException):
    """The worker is gone: nothing of the kind's own may catch this."""


class House:
    """A folder of source files, and a table beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.table = folder / "table"
        self.stored: TablePlace = InFolder(self.table)
        self.secrets: Mapping[str, str] = {}
        self.attempts = 0
        (folder / "in").mkdir()

    def put_csv(self, number: int) -> None:
        with (self.folder / "in" / f"{number:02d}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["n", "text"])
            for row in range(ROWS_A_FILE):
                writer.writerow([number * ROWS_A_FILE + row, f'a "{row}", quoted' if row else ""])

    def put_json(self, number: int, **more: Any) -> None:
        rows = [{"n": number * ROWS_A_FILE + row, "inner": {"x": row}} | more for row in range(ROWS_A_FILE)]
        (self.folder / "in" / f"{number:02d}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def params(self, **params: Any) -> dict[str, Any]:
        """CSV files two by two, unless told otherwise."""
        kind = params.setdefault("format", "csv")
        return {"source": f"{self.folder}/in/*.{kind}", "table": str(self.table), "batch_files": 2} | params

    def attempt(self, token: int = 1, **params: Any) -> FakeContext[IngestParams]:
        """A context for the next attempt."""
        self.attempts += 1
        return FakeContext(
            IngestParams(**self.params(**params)),
            self.folder / f"scratch-{self.attempts}",
            task="flights",
            run_id="flights~1",
            token=token,
            secrets=self.secrets,
        )

    def numbers(self) -> list[int]:
        return self.stored.numbers()

    def leftovers(self) -> set[str]:
        """The files that are not of the log, of a committed batch's page, or of the table."""
        table = self.stored.table("flights")
        pages = list(table.ledger.pages(table.last()))
        parts = {part for page in pages for part in page.parts}
        widened = [any(".widened/" in part for part in page.parts) for page in pages]  # newest first
        since = widened.index(True) + 1 if True in widened else len(pages)
        root = f"{table.shown}/"
        named = {uri.removeprefix(root) for uri in self.stored.delta().file_uris()}
        assert named == {part for page in pages[:since] for part in page.parts}
        known = parts | {PROBE} | {table.ledger.path(page.mark) for page in pages}
        there = {name for name in self.stored.names() if not name.startswith("_delta_log/")}
        return {name for name in there if not name.endswith(".crc")} - known  # Spark's own file system writes checksums


class Lake(House):
    """A folder of source files with more columns, and a table in an object store."""

    def __init__(self, folder: Path, store: ObjectStore) -> None:
        super().__init__(folder)
        self.store = store
        self.stored = InStore(store)
        self.secrets = store.secrets

    def put_csv(self, number: int, first_amount: str | None = None) -> None:
        with (self.folder / "in" / f"{number:02d}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["n", "text", "at", "amount"])
            for row in range(ROWS_A_FILE):
                n = number * ROWS_A_FILE + row
                amount = first_amount if first_amount is not None and row == 0 else n / 4
                writer.writerow([n, f"row {n}" if row else "", f"2026-01-05T09:00:{row:02d}.123456Z", amount])

    def params(self, **params: Any) -> dict[str, Any]:
        columns = "n INT, text STRING, at TIMESTAMP, amount DOUBLE"
        there = {"columns": columns, "table": self.store.url("table"), "options": self.store.references}
        return super().params(**there | params)

    def delta(self, name: str = "table") -> DeltaTable:
        """A table in the store as any reader sees it."""
        return DeltaTable(self.store.url(name), storage_options=delta_options(self.store.options, "us-east-1"))
