"""The ledger of the batches in an SQLite sink: the tables `rota_sinks` and `rota_batches` in the file itself.

SQLite has one writer at a time, so one of two attempts waits for the other, and then reads the other's entry.
"""

import json
import sqlite3
from typing import Final

from spark_tasks.contracts.sink import About, Visible, is_in
from spark_tasks.sqlite.params import BATCHES, SINKS
from spark_tasks.table.ledger import Mark

KEPT: Final = 1000
"""The number of newest batches of a task that `rota_batches` keeps."""


class SqliteLedger:
    """The ledger of the batches of `task` in the table `target`. Table names are case-insensitive."""

    def __init__(self, task: str, target: str) -> None:
        self.mine = (task, target.lower())

    def create(self, database: sqlite3.Connection) -> None:
        """Create the two tables if they do not exist."""
        database.execute(
            f"CREATE TABLE IF NOT EXISTS main.{SINKS} (task TEXT, target TEXT, token INTEGER NOT NULL, "
            "PRIMARY KEY (task, target))"
        )
        database.execute(
            f"CREATE TABLE IF NOT EXISTS main.{BATCHES} (task TEXT, target TEXT, batch INTEGER, "
            "token INTEGER NOT NULL, run_id TEXT NOT NULL, cursor TEXT, rows INTEGER NOT NULL, "
            "deleted INTEGER NOT NULL, committed_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ')), "
            "PRIMARY KEY (task, target, batch))"
        )

    def is_there(self, database: sqlite3.Connection) -> bool:
        """Whether the file has the tables."""
        found = database.execute("SELECT count(*) FROM main.sqlite_schema WHERE name IN (?, ?)", (SINKS, BATCHES))
        return bool(found.fetchone()[0] == 2)

    def last(self, database: sqlite3.Connection) -> Visible | None:
        """Return the last committed batch; None if no batch was committed."""
        found = database.execute(
            f"SELECT batch, token, run_id, cursor FROM main.{BATCHES} WHERE (task, target) = (?, ?) "
            "ORDER BY batch DESC LIMIT 1",
            self.mine,
        ).fetchone()
        if found is None:
            return None
        batch, token, run_id, cursor = found
        return Visible(Mark(batch, token), run_id, None if cursor is None else json.loads(cursor))

    def has_run(self, database: sqlite3.Connection, run_id: str) -> bool:
        """Whether one of the newest `KEPT` batches is of that run."""
        query = f"SELECT 1 FROM main.{BATCHES} WHERE (task, target) = (?, ?) AND run_id = ? LIMIT 1"
        return database.execute(query, (*self.mine, run_id)).fetchone() is not None

    def holder(self, database: sqlite3.Connection) -> int | None:
        """Return the token of the holder."""
        query = f"SELECT token FROM main.{SINKS} WHERE (task, target) = (?, ?)"
        found = database.execute(query, self.mine).fetchone()
        return None if found is None else int(found[0])

    def claim(self, database: sqlite3.Connection, token: int, instead_of: int | None) -> bool:
        """Make the attempt with `token` the holder in place of `instead_of`. Returns False if another attempt is the
        holder.
        """
        if self.holder(database) not in {token, instead_of}:
            return False
        database.execute(f"INSERT OR REPLACE INTO main.{SINKS} VALUES (?, ?, ?)", (*self.mine, token))
        return True

    def check(self, database: sqlite3.Connection, mark: Mark) -> bool:
        """Whether this attempt has committed the batch already. Raises `SinkOvertaken`, and `SinkUnfit` if an earlier
        batch is missing.
        """
        return is_in(mark, self.last(database), self.holder(database), self.mine[1])

    def add(self, database: sqlite3.Connection, mark: Mark, about: About, rows: int, deleted: int) -> None:
        """Record the batch as written. The record takes effect when the transaction is committed."""
        cursor = None if about.cursor is None else json.dumps(about.cursor)
        database.execute(
            f"INSERT INTO main.{BATCHES} (task, target, batch, token, run_id, cursor, rows, deleted) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (*self.mine, mark.batch, mark.token, about.run_id, cursor, rows, deleted),
        )
        database.execute(
            f"DELETE FROM main.{BATCHES} WHERE (task, target) = (?, ?) AND batch <= ?", (*self.mine, mark.batch - KEPT)
        )
