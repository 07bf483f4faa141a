"""A table in a folder or in an object store that a test fills, maintains and looks at."""

import io
import json
import os
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction, RemoveAction
from pyarrow import parquet

from spark_tasks.maintain.kind import Maintain
from spark_tasks.maintain.layout import DataFile
from spark_tasks.maintain.params import MaintainParams
from spark_tasks.maintain.table import MaintainedTable
from spark_tasks.storage.store import delta_options
from spark_tasks.table.delta import Table
from spark_tasks.table.ledger import Mark, Page
from spark_tasks.table.statistics import statistics
from tasks.places.place import Place
from testkit.fake_context import FakeContext
from testkit.servers.object_store import ObjectStore
from testkit.spark.tables import SCHEMA, commit, write_batch

ROOT = Path(__file__).parents[2]
ROWS = 3
DAY_S = 86_400


@dataclass
class Lakehouse:
    """A table, the batches of the task `flights` in it, and its maintenance by the task `tidy`."""

    folder: Path
    store: ObjectStore | None = None
    attempts: int = 0
    numbers_put: list[int] = field(default_factory=list)
    name: str = field(default_factory=lambda: f"table-{uuid.uuid4().hex[:8]}")

    @property
    def url(self) -> str:
        return str(self.folder / self.name) if self.store is None else self.store.url(self.name)

    @property
    def root(self) -> Path:
        """The table's folder, if it is in one."""
        return self.folder / self.name

    @property
    def options(self) -> dict[str, Any]:
        return {} if self.store is None else self.store.options

    def table(self, task: str = "flights") -> Table:
        return Table(Place(self.url, self.options), task)

    def put(self, batches: int, token: int | None = None) -> None:
        """Commit further batches, of `ROWS` rows each, by the attempt with that token, or one for each."""
        table = self.table()
        last = table.last()
        for batch in range(1 if last is None else last.batch + 1, batches + (0 if last is None else last.batch) + 1):
            mark = Mark(batch, batch if token is None else token)
            numbers = list(range(batch * ROWS, (batch + 1) * ROWS))
            write_batch(table, mark, numbers, last)
            commit(table, mark)
            self.numbers_put += numbers
            last = mark

    def fill(self, files: int) -> None:
        """Append further files, of `ROWS` rows each, in one commit of no task."""
        first = max(self.numbers_put, default=0) + 1
        place = self.table().place
        added: list[AddAction | RemoveAction] = []
        for number in range(files):
            numbers = list(range(first + number * ROWS, first + (number + 1) * ROWS))
            out = io.BytesIO()
            parquet.write_table(pa.table({"n": pa.array(numbers, pa.int64())}), out)
            path = f"filled/{uuid.uuid4().hex}.parquet"
            place.write_whole(path, out.getvalue())
            stats = statistics(parquet.read_metadata(io.BytesIO(out.getvalue())))
            added.append(AddAction(path, len(out.getvalue()), {}, time.time_ns() // 1_000_000, True, stats))
            self.numbers_put += numbers
        if "_delta_log" not in place.folders():
            self._make()
        handle = self.delta()
        handle.create_write_transaction(added, "append", handle.schema())

    def _make(self) -> None:
        options = None if self.store is None else delta_options(self.store.options, "us-east-1")
        DeltaTable.create(self.url, Schema.from_json(SCHEMA), storage_options=options)

    def live(self) -> list[DataFile]:
        """The files that hold the table's rows."""
        table = MaintainedTable(self.table().place, "tidy")
        return table.data_files(table.handle())

    def attempt(self, **params: Any) -> FakeContext[MaintainParams]:
        """A context for the next attempt. What params may not be is not checked: `keep_h` may be 0."""
        self.attempts += 1
        scratch = self.folder / f"scratch-{self.attempts}"
        scratch.mkdir()
        given = MaintainParams.model_construct(**self._params(params))
        return FakeContext(given, scratch, task="tidy", token=self.attempts)

    def _params(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"table": self.url, "options": self.options, "min_files": 2} | params

    def maintain(self, **params: Any) -> dict[str, Any]:
        return Maintain().run(self.attempt(**params))

    def killed_at(self, step: str, **params: Any) -> None:
        """Have an attempt in a process of its own kill itself when it logs `step`."""
        process = self.start(die_at=step, **params)
        _, error = process.communicate(timeout=120)
        assert process.returncode == -9, error

    def start(self, die_at: str = "", pause_at: str = "", **params: Any) -> "subprocess.Popen[str]":
        """An attempt in a process of its own, which kills or stops itself when it logs that."""
        context = self.attempt()
        told = self.folder / f"attempt-{self.attempts}.json"
        value = {"params": self._params(params), "task": "tidy", "run_id": "tidy~1", "token": context.token}
        value |= {"kind": "spark_tasks.maintain.kind:Maintain", "scratch": str(context.scratch), "secrets": {}}
        told.write_text(json.dumps(value | {"die_at": die_at, "pause_at": pause_at}))
        return subprocess.Popen(
            [sys.executable, "-m", "testkit.execution.one_attempt", str(told)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def delta(self, version: int | None = None) -> DeltaTable:
        options = None if self.store is None else delta_options(self.store.options, "us-east-1")
        return DeltaTable(self.url, version=version, storage_options=options)

    def numbers(self, version: int | None = None) -> list[int]:
        return sorted(self.delta(version).to_pyarrow_table(columns=["n"]).column("n").to_pylist())

    def is_whole(self) -> bool:
        """Whether the table has the rows that were put into it, each once, and no others."""
        return self.numbers() == sorted(self.numbers_put)

    def was_whole(self, since: int = 0) -> bool:
        """Whether each version from that one on, which any reader may have seen, had no row twice and lost none.

        Not for a table of which rows were deleted, or files removed.
        """
        seen: set[int] = set()
        for version in range(since, self.delta().version() + 1):
            numbers = self.numbers(version)
            if len(set(numbers)) < len(numbers) or not seen <= set(numbers):
                return False
            seen = set(numbers)
        return self.is_whole()

    def names(self, folder: str = "") -> list[str]:
        """The paths of all files in the table below `folder`."""
        if self.store is not None:
            found = self.store.names(self.name)
        else:
            found = sorted(path.relative_to(self.root).as_posix() for path in self.root.rglob("*") if path.is_file())
        return [name for name in found if name.startswith(folder)]

    def data_names(self) -> list[str]:
        return [name for name in self.names() if not name.startswith("_")]

    def contents(self) -> dict[str, bytes]:
        place = self.table().place
        return {name: place.read(name) or b"" for name in self.names()}

    def pages(self, task: str = "flights") -> list[Page]:
        table = self.table(task)
        return list(table.ledger.pages(table.last()))

    def age(self, names: list[str], days: float) -> None:
        """Have files of a table in a folder look as old as that."""
        then_s = time.time() - days * DAY_S
        for name in names:
            os.utime(self.root / name, (then_s, then_s))

    def entry(self, version: int) -> list[dict[str, Any]]:
        """What the log says of that version."""
        content = self.table().place.read(f"_delta_log/{version:020d}.json")
        assert content is not None
        return [json.loads(line) for line in content.splitlines()]
