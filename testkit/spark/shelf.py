"""Tables in SQLite files, and attempts at one task from one file into another."""

import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

from spark_tasks.etl.params import EtlParams
from testkit.execution.one_attempt import start_attempt
from testkit.fake_context import FakeContext


class Shelf:
    """A source file and a target file in a folder, with attempts at one task between them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "source.db"
        self.target = folder / "out" / "target.db"
        self.target.parent.mkdir()
        self.attempts = 0

    def sql(self, text: str, *values: Any, file: Path | None = None) -> list[Any]:
        with closing(sqlite3.connect(file or self.file)) as database, database:
            return database.execute(text, values).fetchall()

    def there(self, text: str, *values: Any) -> list[Any]:
        return self.sql(text, *values, file=self.target)

    def tables(self) -> set[str]:
        """The tables of the target but for Rota's own."""
        names = {name for (name,) in self.there("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        return names - {"rota_sinks", "rota_batches"}

    def numbers(self, last: int, file: Path | None = None) -> None:
        """A table `src` with the rows 1 to `last`, in the source file or another."""
        self.sql("CREATE TABLE src (id INTEGER PRIMARY KEY, v TEXT, gone INTEGER)", file=file)
        self.sql(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
            "INSERT INTO src SELECT i, 'v' || i, 0 FROM n",
            last,
            file=file,
        )

    def params(self, sql: str | None = None, source: dict[str, Any] | None = None, **sink: Any) -> dict[str, Any]:
        given = {"type": "sqlite", "path": str(self.target), "table": "dst", "mode": "append", "shared": True}
        from_file = {"type": "sqlite", "path": str(self.file), "table": "src", "shared": True}
        transform = {} if sql is None else {"transform": {"sql": sql}}
        return {"source": from_file | (source or {}), "sink": given | sink} | transform

    def attempt(self, params: dict[str, Any], token: int = 1, run: int = 1) -> FakeContext[EtlParams]:
        self.attempts += 1
        scratch = self.folder / f"scratch-{self.attempts}"
        return FakeContext(EtlParams.model_validate(params), scratch, task="t", run_id=f"t~{run}", token=token)

    def started(self, params: dict[str, Any], token: int, die_at: str = "") -> "subprocess.Popen[bytes]":
        """An attempt in a process of its own, which gets SIGKILL when it logs `die_at`."""
        self.attempts += 1
        file = self.folder / f"attempt-{self.attempts}.json"
        given: dict[str, Any] = {"kind": "spark_tasks.etl.kind:Etl", "params": params, "task": "t", "run_id": "t~1"}
        given |= {"token": token, "secrets": {}, "die_at": die_at, "scratch": str(self.folder / f"s-{self.attempts}")}
        return start_attempt(file, given, {})
