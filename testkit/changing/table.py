"""A Delta table that changes while it is read: rows are appended, updated and deleted, and files are compacted."""

import random
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

SCHEMA = pa.schema([("id", pa.int64()), ("version", pa.int64())])


@dataclass
class ChangingTable:
    """One writer, which changes the table in `folder` until `stop`. The same `seed` draws the same changes.

    `appends_only` leaves out updates and deletions. `rows` are the last versions of the rows, by their ids.
    """

    folder: Path
    seed: int
    appends_only: bool = False
    pause_s: float = 0.05
    changes: int = 0
    rows: dict[int, int] = field(default_factory=dict)
    ever: dict[int, int] = field(default_factory=dict)
    failed: list[BaseException] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def create(self) -> None:
        """Make the table, with its change data feed on."""
        DeltaTable.create(str(self.folder), SCHEMA, configuration={"delta.enableChangeDataFeed": "true"})

    def start(self) -> None:
        """Start the writer."""
        self._thread = threading.Thread(target=self._write, name="table-writer")
        self._thread.start()

    def stop(self) -> None:
        """Stop the writer; all that it wrote is committed then. Raises what it raised."""
        self._over.set()
        assert self._thread is not None
        self._thread.join()
        if self.failed:
            raise self.failed[0]

    def _write(self) -> None:
        draw = random.Random(self.seed)
        try:
            while not self._over.is_set():
                self._change(draw)
                self.changes += 1
                self._over.wait(draw.random() * self.pause_s)
        except BaseException as error:
            self.failed.append(error)

    def _change(self, draw: random.Random) -> None:
        what = draw.random()
        if what < 0.1:
            DeltaTable(self.folder).optimize.compact()
            return
        if self.appends_only or what < 0.5 or not self.rows:
            new = {len(self.ever) + number: 1 for number in range(draw.randint(1, 5))}
            write_deltalake(self.folder, _table(new), mode="append")
            self.rows.update(new)
            self.ever.update(new)
            return
        key = draw.choice(sorted(self.rows))
        if what < 0.8:
            DeltaTable(self.folder).update(predicate=f"id = {key}", updates={"version": "version + 1"})
            self.rows[key] += 1
            self.ever[key] += 1
        else:
            DeltaTable(self.folder).delete(f"id = {key}")
            del self.rows[key]


def _table(rows: dict[int, int]) -> Any:
    return pa.table({"id": list(rows), "version": list(rows.values())}, schema=SCHEMA)
