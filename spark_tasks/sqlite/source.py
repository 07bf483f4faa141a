"""Reads rows of a table in an SQLite file on this machine, in one read transaction.

The driver copies the rows of a batch into Parquet files in its scratch folder, and then ends the transaction, because
in SQLite's older journal modes writers wait for it. Spark reads the copy.
"""

import math
import os
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_tasks.contracts.incremental import Incremental
from spark_tasks.contracts.names import name
from spark_tasks.contracts.source import Cursor, Plan, SourceReplaced, SourceUnfit
from spark_tasks.spark.session import is_local_master
from spark_tasks.sqlite.params import SqliteRows
from tasks.file_guard import FileGuard, regular_files_open

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

BUSY_S: Final = 60
"""How long to wait for a writer, in seconds."""

ROWS_A_STEP: Final = 50_000

_NO_TEXT: Final = "Could not decode to UTF-8"
"""The message of Python's module for a text that it cannot read."""


class SourceBusy(Exception):
    """An SQLite file could not be read now: another program keeps it locked, or it cannot be opened."""


class SqliteReader:
    """The rows of a table, for the view `view`. `guard` checks every file that SQLite opens, once it is open."""

    def __init__(
        self, view: str, params: SqliteRows, guard: FileGuard, scratch: Path, incremental: Incremental | None = None
    ) -> None:
        self.view = view
        self.params = params
        self.guard = guard
        self.scratch = scratch
        self.incremental = incremental
        self.database: sqlite3.Connection | None = None

    def plan(self, after: Cursor | None) -> Plan | None:
        """Plan the next batch (`RowSource`). Raises `AccessRefused`, `SourceBusy`, `SourceReplaced`, `SourceUnfit`."""
        database = self._opened()
        columns = self._columns(database)
        if self.incremental is None:
            return Plan(None, {"file": self.params.path})
        column = self.incremental.cursor
        if column is None or self.incremental.lag_s:
            raise SourceUnfit(
                "an SQLite file is read by `incremental: {cursor: COLUMN, lag_s: 0}`: it has one writer at a time, so "
                "rows are committed in the order of the cursor"
            )
        if column not in columns:
            raise SourceUnfit(f"{self.params.table} has no column {column}; it has {', '.join(columns)}")
        if after is not None and after.get("cursor") != column:
            raise SourceReplaced(
                f"the sink's last batch was read by {after}, and the task now says {column}: change `incremental` "
                "back, or set a cursor of the new way by `rota etl reset`"
            )
        low = None if after is None else after["value"]
        if isinstance(low, str):
            self._check_has_text(database, column, low)
        found = f"SELECT {name(column)} FROM {name(self.params.table)} WHERE {name(column)} IS NOT NULL"
        found += "" if low is None else f" AND {name(column)} > ?"
        if self.incremental.batch_rows is not None:
            found += f" ORDER BY {name(column)} LIMIT {self.incremental.batch_rows}"
        values = () if low is None else (low,)
        high, count = self._asked(database, f"SELECT max({name(column)}), count(*) FROM ({found})", values)[0]
        if high is None:
            return None
        if not isinstance(high, int | float | str) or high == math.inf:
            raise SourceUnfit(
                f"{self.params.table}, column {column}: the cursor {high!r:.100} is neither a finite number nor text: "
                "correct the row, or read a view without it"
            )
        about = {"file": self.params.path, "above": low, "to": high, "rows": count}
        return Plan({"cursor": column, "value": high}, about, more=count == self.incremental.batch_rows)

    def _check_has_text(self, database: sqlite3.Connection, column: str, low: str) -> None:
        """Raise `SourceUnfit` if the column has only numbers, because SQLite sorts text after all numbers, so no row
        would be new.
        """
        newest = self._asked(database, f"SELECT max({name(column)}) FROM {name(self.params.table)}")[0][0]
        if isinstance(newest, int | float):
            raise SourceUnfit(f"the cursor {low!r} is text, and the column {column} of {self.params.table} has numbers")

    def load(self, spark: "SparkSession", plan: Plan) -> "DataFrame":
        """Return the rows of the plan (`RowSource`), which are copied now."""
        if not is_local_master(os.environ):
            raise SourceUnfit(
                "the driver copies SQLite files onto its own disk, which Spark's executors on other machines do not see"
            )
        from pyarrow import parquet

        database = self._opened()
        columns = self._columns(database)
        query = f"SELECT {', '.join(map(name, columns))} FROM {name(self.params.table)}"
        values: tuple[Any, ...] = ()
        if plan.reaches is not None:
            key, low = name(plan.reaches["cursor"]), plan.about["above"]
            query += f" WHERE {key} <= ?" + ("" if low is None else f" AND {key} > ?")
            values = (plan.reaches["value"],) if low is None else (plan.reaches["value"], low)
        self.scratch.mkdir(parents=True, exist_ok=True)
        path = self.scratch / f"{self.view}.parquet"
        schema = _schema(columns)
        with parquet.ParquetWriter(path, schema) as writer:
            for rows in self._steps(database, query, values):
                writer.write_table(_table(rows, schema, self.params))
        self.release()
        return spark.read.parquet(str(path))

    def _opened(self) -> sqlite3.Connection:
        if self.database is None:
            path = self.guard.resolve(self.params.path)
            if not path.exists():
                raise SourceUnfit(f"{self.params.path} is not there: correct `path`, or make the file")
            before = regular_files_open()
            try:
                database = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=BUSY_S, isolation_level=None)
            except sqlite3.Error as error:
                raise SourceBusy(f"{self.params.path}: {error}") from error
            self.database = database
            self._asked(database, "BEGIN")
            self._asked(database, "SELECT count(*) FROM sqlite_schema")
            for descriptor in regular_files_open().keys() - before.keys():
                self.guard.check_opened(descriptor, self.params.path)
        return self.database

    def _asked(self, database: sqlite3.Connection, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        try:
            return database.execute(query, values).fetchall()
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB:
                raise SourceUnfit(f"{self.params.path} is no SQLite database: correct `path`") from None
            raise SourceBusy(f"{self.params.path}: {error}") from error

    def _steps(self, database: sqlite3.Connection, query: str, values: tuple[Any, ...]) -> Iterator[list[Any]]:
        try:
            found = database.execute(query, values)
            while rows := found.fetchmany(ROWS_A_STEP):
                yield rows
        except sqlite3.Error as error:
            if _NO_TEXT in str(error):
                raise SourceUnfit(
                    f"{self.params.path}, {self.params.table}: a text is not UTF-8 ({error}): correct the row, or "
                    "read a view that casts the column to BLOB"
                ) from None
            raise SourceBusy(f"{self.params.path}: {error}") from error

    def _columns(self, database: sqlite3.Connection) -> dict[str, str]:
        """Return the table's columns with their types: `integer`, `real` or `blob` if declared so, else `text`."""
        found = self._asked(database, f"PRAGMA table_info({name(self.params.table)})")
        if not found:
            raise SourceUnfit(f"{self.params.path} has no table {self.params.table}")
        return {row[1]: affinity(row[2]) for row in found}

    def release(self) -> None:
        """End the transaction (`RowSource`)."""
        if self.database is not None:
            self.database.close()
            self.database = None


def affinity(declared: str) -> str:
    """Return the type with which values of a column with this declared type are read, by SQLite's rules for type
    affinity.

    >>> affinity("BIGINT"), affinity("double precision"), affinity("BLOB"), affinity("varchar(3)"), affinity("DATE")
    ('integer', 'real', 'blob', 'text', 'text')
    """
    upper = declared.upper()
    if "INT" in upper:
        return "integer"
    if any(part in upper for part in ("CHAR", "CLOB", "TEXT")):
        return "text"
    if "BLOB" in upper:
        return "blob"
    return "real" if any(part in upper for part in ("REAL", "FLOA", "DOUB")) else "text"


def _schema(columns: dict[str, str]) -> "pa.Schema":
    import pyarrow as pa

    types = {"integer": pa.int64(), "real": pa.float64(), "blob": pa.binary(), "text": pa.string()}
    return pa.schema([(column, types[kind]) for column, kind in columns.items()])


def _table(rows: list[Any], schema: "pa.Schema", params: SqliteRows) -> "pa.Table":
    import pyarrow as pa

    arrays = []
    for field, given in zip(schema, zip(*rows, strict=True), strict=True):
        kept, values = _KEPT[str(field.type)], list(given)
        try:
            if not {type(value) for value in values} <= {kept, type(None)}:
                values = [_of(kept, value) for value in values]
        except _Misfit as misfit:
            raise SourceUnfit(
                f"{params.path}, {params.table}, column {field.name}: the value {misfit.args[0]!r:.100} is no "
                f"{field.type}, the declared type of the column: correct the row, or read a view that casts the column"
            ) from None
        arrays.append(pa.array(values, field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


_KEPT: Final[Mapping[str, type]] = {"int64": int, "double": float, "binary": bytes, "string": str}
"""The Python type of a column's values, by Arrow type."""


class _Misfit(Exception):
    """A value that the type of its column cannot hold."""


def _of(kept: type, value: Any) -> Any:
    """Convert a value to the type `kept` without loss, because SQLite stores any value in any column.

    Raises `_Misfit` if the conversion would lose something. Arrow itself would cut off a fraction, and would accept
    text as binary and binary as text.
    """
    if value is None or type(value) is kept:
        return value
    if kept is str and isinstance(value, int | float):
        return number_text(value)
    if kept is float and isinstance(value, int) and int(float(value)) == value:
        return float(value)
    raise _Misfit(value)


def number_text(value: float) -> str:
    """Return a number as SQLite casts it to text, but with all its digits where SQLite leaves some out.

    >>> number_text(7), number_text(1.5), number_text(100.0), number_text(1e20), number_text(0.1 + 0.2)
    ('7', '1.5', '100.0', '1.0e+20', '0.30000000000000004')
    """
    if isinstance(value, int):
        return str(value)
    if math.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    mantissa, e, exponent = f"{value:.15g}".partition("e")
    text = (mantissa if "." in mantissa else f"{mantissa}.0") + e + exponent
    return text if float(text) == value else repr(value)
