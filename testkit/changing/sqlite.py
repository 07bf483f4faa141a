"""An SQLite file whose rows change while it is read."""

import random
import sqlite3
import threading
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_BUSY_S: Final = 120.0
"""How long a writer waits for the others and for readers."""


@dataclass
class ChangingSqlite:
    """Writers that change the table `src` of the file at `path` until `stop`.

    Each transaction draws the next number from a counter as its first write, and its rows bear it in `changed`: so they
    are committed in the order of that column. Some transactions stay open for up to `late_s`, and some are rolled back.
    Each change of a row gives it the next version; `gone` marks those that were deleted. The same `seed` draws the same
    changes.
    """

    path: Path
    seed: int
    journal: str = "wal"
    late_s: float = 0.3
    writers: int = 3
    pause_s: float = 0.05
    changes: int = 0
    failed: list[BaseException] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def create(self) -> None:
        """Make the file, with an index on the cursor."""
        with closing(self._opened()) as database:
            database.execute(f"PRAGMA journal_mode={self.journal}")
            database.execute("CREATE TABLE counter (n INTEGER)")
            database.execute("INSERT INTO counter VALUES (0)")
            database.execute(
                "CREATE TABLE src (id INTEGER PRIMARY KEY, version INTEGER, gone INTEGER, changed INTEGER)"
            )
            database.execute("CREATE INDEX by_changed ON src (changed)")

    def start(self) -> None:
        """Start the writers."""
        for number in range(self.writers):
            writer = threading.Thread(target=self._write, args=(number,), name=f"sqlite-writer-{number}")
            self._threads.append(writer)
            writer.start()

    def stop(self) -> None:
        """Stop the writers; all that they wrote is committed or rolled back then. Raises what one of them raised."""
        self._over.set()
        for thread in self._threads:
            thread.join()
        if self.failed:
            raise self.failed[0]

    def versions(self) -> dict[int, int]:
        """The last versions of the rows, by their ids."""
        with closing(self._opened()) as database:
            return dict(database.execute("SELECT id, version FROM src"))

    def _opened(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=_BUSY_S, isolation_level=None)

    def _write(self, number: int) -> None:
        draw = random.Random(f"{self.seed}/{number}")
        try:
            with closing(self._opened()) as database:
                while not self._over.is_set():
                    self._transaction(draw, database, number)
                    self._over.wait(draw.random() * self.pause_s)
        except BaseException as error:
            self.failed.append(error)

    def _transaction(self, draw: random.Random, database: sqlite3.Connection, number: int) -> None:
        database.execute("BEGIN IMMEDIATE")
        [changed] = database.execute("UPDATE counter SET n = n + 1 RETURNING n").fetchone()
        mine = [key for (key,) in database.execute("SELECT id FROM src WHERE id % ? = ?", (self.writers, number))]
        for _ in range(draw.randint(1, 4)):
            if not mine or draw.random() < 0.5:
                mine.append(len(mine) * self.writers + number)
                database.execute("INSERT INTO src VALUES (?, 1, 0, ?)", (mine[-1], changed))
            else:
                gone = "1" if draw.random() < 0.2 else "gone"
                database.execute(
                    f"UPDATE src SET version = version + 1, gone = {gone}, changed = ? WHERE id = ?",
                    (changed, draw.choice(mine)),
                )
        if draw.random() < 0.2:
            self._over.wait(draw.random() * self.late_s)
        if draw.random() < 0.1:
            database.execute("ROLLBACK")
        else:
            database.execute("COMMIT")
            self.changes += 1
