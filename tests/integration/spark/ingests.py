"""A folder of source files and a table, for tests of ingests on real Spark."""

import csv
import json
from pathlib import Path
from typing import Any

from spark_tasks.ingest.params import IngestParams
from testkit.fake_context import FakeContext

ROWS_A_FILE = 10


class Crash(BaseException):
    """The worker is gone: nothing of the kind's own may catch this."""


class House:
    """A folder of source files, and a table."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.table = folder / "table"
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

    def attempt(self, token: int = 1, **params: Any) -> FakeContext[IngestParams]:
        """A context for the next attempt, CSV files two by two unless told otherwise."""
        self.attempts += 1
        kind = params.setdefault("format", "csv")
        given: dict[str, Any] = {
            "source": f"{self.folder}/in/*.{kind}",
            "table": str(self.table),
            "batch_files": 2,
        } | params
        scratch = self.folder / f"scratch-{self.attempts}"
        return FakeContext(IngestParams(**given | params), scratch, task="flights", run_id="flights~1", token=token)

    def numbers(self) -> list[int]:
        from deltalake import DeltaTable  # the extra `spark` may not be installed where these tests are skipped

        rows = DeltaTable(self.table).to_pyarrow_table(columns=["n"]).column("n").to_pylist()
        return sorted(rows)
