"""A table in an SQLite file: one transaction writes a batch's rows and records the batch as committed.

The driver writes the rows. It first stages them in a database of its own in the attempt's scratch folder, so that the
target is locked only while SQLite copies from one file into the other.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from spark_tasks.contracts.fetched import FetchedRows, check_case_distinct, fetch, python_values
from spark_tasks.contracts.sink import About, Committed, SinkUnfit, Staged, Visible
from spark_tasks.sqlite.file import CommitUnknown, SqliteFile
from spark_tasks.sqlite.ledger import SqliteLedger
from spark_tasks.sqlite.merge import SqliteMerge
from spark_tasks.sqlite.params import SqliteTable
from spark_tasks.sqlite.values import encoder
from spark_tasks.table.ledger import Mark
from tasks.file_guard import FileGuard

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


class SqliteSink:
    """The table of `params`, to which the task `task` writes. `guard` checks each file that is opened.

    `local` says that Spark's executors are on this machine. The class implements `contracts.sink.Sink`. Its methods
    also raise `AccessRefused`, `SinkAway` and `SinkUnfit`.
    """

    def __init__(self, params: SqliteTable, guard: FileGuard, task: str, scratch: Path, local: bool) -> None:
        self.params = params
        self.file = SqliteFile(params.path, guard)
        self.ledger = SqliteLedger(task, params.table)
        self.scratch = scratch
        self.local = local
        self.schemas: dict[Mark, pa.Schema] = {}

    def last(self) -> Visible | None:
        """Return the last visible batch; None if no batch is visible."""
        with self.file.reading() as database:
            return None if database is None or not self.ledger.is_there(database) else self.ledger.last(database)

    def has_run(self, run_id: str) -> bool:
        """Whether a batch of that run is visible."""
        with self.file.reading() as database:
            return database is not None and self.ledger.is_there(database) and self.ledger.has_run(database, run_id)

    def holder(self) -> int | None:
        """Return the token of the attempt that holds the table for this task."""
        with self.file.reading() as database:
            return None if database is None or not self.ledger.is_there(database) else self.ledger.holder(database)

    def claim(self, token: int, instead_of: int | None) -> bool:
        """Make the attempt with `token` the holder."""
        with self.file.writing() as database:
            self.ledger.create(database)
            return self.ledger.claim(database, token, instead_of)

    def write(self, rows: "DataFrame", mark: Mark) -> Staged:
        """Write the rows into a database in the scratch folder."""
        check_case_distinct(rows.columns)
        wanted = [*self.params.keys, *([self.params.tombstone] if self.params.tombstone else [])]
        if missing := [column for column in wanted if column not in rows.columns]:
            raise SinkUnfit(f"the rows lack {', '.join(missing)}; they have {', '.join(rows.columns)}")
        fetched = fetch(rows, self.scratch / mark.name, self.local)
        self.schemas[mark] = fetched.schema()
        count = _stage(fetched, self._staged(mark))
        fetched.remove()
        return Staged(count, ())

    def _staged(self, mark: Mark) -> Path:
        return self.scratch / f"{mark.name}.db"

    def commit(self, mark: Mark, written: Staged, about: About) -> Committed:
        """Write the staged rows to the table, and record the batch in `rota_batches`, in one transaction."""
        staged = self._staged(mark)
        try:
            with self.file.writing(staged) as database:
                self.ledger.create(database)
                if self.ledger.check(database, mark):
                    return Committed(written.rows, 0)
                done = SqliteMerge(self.params, self.schemas[mark]).apply(database)
                self.ledger.add(database, mark, about, done.rows, done.deleted)
        except CommitUnknown:
            if not self._is_last(mark):
                raise
            done = Committed(written.rows, 0)
        staged.unlink()
        return done

    def move(self, mark: Mark, about: About) -> None:
        """Record a batch without rows in `rota_batches`, with the cursor of `about`."""
        try:
            with self.file.writing() as database:
                self.ledger.create(database)
                if not self.ledger.check(database, mark):
                    self.ledger.add(database, mark, about, 0, 0)
        except CommitUnknown:
            if not self._is_last(mark):
                raise

    def _is_last(self, mark: Mark) -> bool:
        last = self.last()
        return last is not None and last.mark == mark

    def sweep(self) -> list[str]:
        """Do nothing: an attempt's staged rows are in its scratch folder, which is removed with the attempt."""
        return []


def _stage(fetched: FetchedRows, path: Path) -> int:
    """Write the rows into the table `rows` of a new SQLite database at `path`. Returns their number."""
    path.unlink(missing_ok=True)
    schema = fetched.schema()
    encoders = [encoder(field.type, field.name) for field in schema]
    count = 0
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        # The file is not needed after a crash.
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("PRAGMA synchronous = OFF")
        # Columns without a type keep values as they are.
        database.execute(f"CREATE TABLE rows ({', '.join(f'c{number}' for number in range(len(encoders)))})")
        database.execute("BEGIN")
        insert = f"INSERT INTO rows VALUES ({', '.join('?' * len(encoders))})"
        for batch in fetched.batches():
            columns = [
                map(encode, python_values(column, field.name))
                for encode, column, field in zip(encoders, batch.columns, schema, strict=True)
            ]
            database.executemany(insert, zip(*columns, strict=True))
            count += batch.num_rows
        database.execute("COMMIT")
    return count
