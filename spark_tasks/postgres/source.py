"""Reads rows of a PostgreSQL database, in parallel by key ranges, all under one snapshot that the driver holds.

New rows are found in one of two ways.

- By a cursor, a column that grows. A batch ends at the greatest cursor that is older than `lag_s`, so a row that was
  committed late is read as long as it was committed within `lag_s` of its cursor's time.
- By xmin, the transaction that wrote a row. A batch has the rows of the transactions from the last batch's horizon to
  this snapshot's horizon, which is the oldest transaction still open. All transactions below a horizon have ended, so
  each version of a row is in exactly one batch. (Ids of subtransactions are greater than that of their transaction,
  so they are not below the horizon while the transaction is open.)
"""

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from spark_tasks.contracts.incremental import Incremental
from spark_tasks.contracts.names import literal, name, qualified
from spark_tasks.contracts.source import Cursor, Plan, SourceReplaced, SourceUnfit
from spark_tasks.postgres.local_copy import LocalCopy
from spark_tasks.postgres.params import PostgresRows
from spark_tasks.postgres.partition import data_source, with_own_names
from spark_tasks.postgres.session import BatchSnapshots, Snapshot, translated_errors
from spark_tasks.postgres.source_columns import FLOATS, INTEGERS, TIMES, SourceColumns, columns_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEYS_LEAST: Final = 10_000
"""The number of keys per reader from which one more reader pays off: fewer keys are read in less time than a reader
needs to start.
"""

_HORIZON: Final = """SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
pg_snapshot_xmax(pg_current_snapshot())::text::bigint"""

_TYPES: Final = """SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute
WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped"""

_KEY: Final = """SELECT a.attname FROM pg_index i JOIN pg_attribute a
ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
WHERE i.indrelid = $1::text::regclass AND i.indisprimary AND i.indnkeyatts = 1"""


_ENDLESS: Final = {
    **dict.fromkeys(TIMES, "'infinity', '-infinity'"),
    **dict.fromkeys(FLOATS, "'Infinity', '-Infinity', 'NaN'"),
}
"""The values, by the cursor's type, after which no greater cursor can come."""

_ENDS: Final = frozenset({"infinity", "nan"})
"""The cursors of the last batch, in lower case, after which no row can come."""


class PostgresReader:
    """The rows of a table or a query, for the view `view`. `uri` is the database's URL with its password.

    With `copies`, for Spark on this machine, the driver reads the rows; without, the executors do. `carried` says that
    the rows are written to a PostgreSQL table without a transform, so that values of all types can be kept.
    """

    def __init__(
        self,
        view: str,
        params: PostgresRows,
        uri: str,
        snapshots: BatchSnapshots,
        incremental: Incremental | None = None,
        copies: LocalCopy | None = None,
        carried: bool = False,
    ) -> None:
        self.view = view
        self.params = params
        self.uri = uri
        self.snapshots = snapshots
        self.incremental = incremental
        self.copies = copies
        self.carried = carried
        self._columns: SourceColumns | None = None

    @property
    def _from(self) -> str:
        if self.params.table is not None:
            return qualified(self.params.table)
        return f"({self.params.query}) AS source"

    def plan(self, after: Cursor | None) -> Plan | None:
        """Plan the next batch (`RowSource`). Raises `SourceUnfit`, `SourceReplaced`, and the errors of `Session`."""
        snapshot = self.snapshots.of(self.uri)
        self._known(snapshot)
        if self.incremental is None:
            return Plan(None, {"snapshot": snapshot.name})
        if self.incremental.cursor is not None:
            return self._by_cursor(snapshot, self.incremental.cursor, self.incremental, after)
        return self._by_xmin(snapshot, after)

    def _known(self, snapshot: Snapshot) -> SourceColumns:
        """Return the columns. Asks the database for them at the first call only."""
        if self._columns is None:
            with translated_errors(), snapshot.session.connection.cursor() as cursor:
                cursor.execute(f"SELECT * FROM {self._from} LIMIT 0")
                schema = cursor.fetch_record_batch().schema
            types = self._types(snapshot, schema.names) if self.carried else {}
            money = "money" in types.values()
            found = snapshot.session.rows("SELECT current_setting('lc_monetary')") if money else [(None,)]
            self._columns = columns_of(self.params, schema, types, found[0][0])
        return self._columns

    def _types(self, snapshot: Snapshot, names: list[str]) -> dict[str, str]:
        """Return the columns' types by name. Types of a query's columns have no lengths."""
        if self.params.table is not None:
            return dict(snapshot.session.rows(_TYPES, (qualified(self.params.table),)))
        asked = ", ".join(f"format_type(pg_typeof(source.{name(each)})::oid, -1)" for each in names)
        # The join makes PostgreSQL plan the query without running it.
        found = snapshot.session.rows(f"SELECT {asked} FROM (SELECT) AS one LEFT JOIN {self._from} ON false")
        return dict(zip(names, found[0], strict=True))

    def _by_cursor(self, snapshot: Snapshot, column: str, how: Incremental, after: Cursor | None) -> Plan | None:
        kind = self._known(snapshot).one(column).type
        if kind not in TIMES and how.lag_s:
            raise SourceUnfit(
                f"the cursor {column} is of type {kind}, which is no time: set `lag_s: 0`, which trusts that rows are "
                "committed in the order of the cursor, or use `xmin: true`"
            )
        low = _value(after, "cursor", column)
        if kind in _ENDLESS and str(low).lower() in _ENDS:
            raise SourceUnfit(
                f"the sink's last batch reaches {column} = {low}, and no later row can have a greater cursor: set "
                "another one by `rota etl reset`"
            )
        key = name(column)
        tests = [f"{key} IS NOT NULL"] if low is None else [f"{key} > {literal(low)}::{kind}"]
        if how.lag_s:
            # A date is older than `lag_s` once its whole day is.
            older = "<" if kind == "date" else "<="
            tests.append(f"{key} {older} (transaction_timestamp() - interval '{how.lag_s:f} seconds')::{kind}")
        found = f"SELECT {key} FROM {self._from} WHERE {' AND '.join(tests)}"
        if how.batch_rows is not None:
            found += f" ORDER BY {key} LIMIT {how.batch_rows}"
        endless = f"{key} IN ({_ENDLESS[kind]})" if kind in _ENDLESS else "false"
        stuck = f"SELECT {key} FROM {self._from} WHERE {endless} LIMIT 1"
        high, count, wrong = snapshot.session.rows(
            f"SELECT max({key})::text, count(*), ({stuck})::text FROM ({found}) AS found"
        )[0]
        if wrong is not None:
            raise SourceUnfit(
                f"{self._known(snapshot).shown}, column {column}: a row has the cursor {wrong}, and no later row can "
                "have a greater one: correct the row, or leave it out by a `query`"
            )
        if high is None:
            return None
        about = {"snapshot": snapshot.name, "above": low, "to": high, "rows": count}
        return Plan({"cursor": column, "value": high}, about, more=count == how.batch_rows)

    def _by_xmin(self, snapshot: Snapshot, after: Cursor | None) -> Plan | None:
        if self.params.table is None:
            raise SourceUnfit("`xmin: true` needs a `table`: the rows of a query have no xmin")
        horizon, newest = snapshot.session.rows(_HORIZON)[0]
        low = _value(after, "xmin", True)
        if low is not None and low > newest:
            raise SourceReplaced(
                f"the sink's last batch reaches transaction {low}, but the database is at {newest}: it was restored or "
                "replaced. `rota etl reset` sets where to begin"
            )
        if low is not None and low >= horizon:
            return None
        plan = Plan({"xmin": True, "value": horizon}, {"snapshot": snapshot.name, "above": low, "to": horizon})
        some = snapshot.session.rows(
            f"SELECT EXISTS (SELECT 1 FROM {self._from} WHERE {_within(low, horizon, newest)})"
        )
        return plan if some[0][0] else None

    def _where(self, snapshot: Snapshot, plan: Plan) -> str:
        if plan.reaches is None:
            return "true"
        low, high = plan.about["above"], plan.about["to"]
        if self.incremental is not None and self.incremental.cursor is not None:
            key = name(self.incremental.cursor)
            kind = self._known(snapshot).one(self.incremental.cursor).type
            above = "true" if low is None else f"{key} > {literal(low)}::{kind}"
            return f"{above} AND {key} <= {literal(high)}::{kind}"
        return _within(low, high, snapshot.session.rows(_HORIZON)[0][1])

    def load(self, spark: "SparkSession", plan: Plan) -> "DataFrame":
        """Return the rows of the plan (`RowSource`)."""
        snapshot = self.snapshots.of(self.uri)
        queries, columns = self._queries(snapshot, self._where(snapshot, plan)), self._known(snapshot)
        if self.copies is not None:
            return self.copies.load(spark, self.uri, snapshot.name, queries, columns)
        source = data_source(f"rota_postgres_{self.view}", self.uri, snapshot.name, queries, columns)
        spark.dataSource.register(source)
        return with_own_names(spark.read.format(source.name()).load(), columns.schema())

    def _queries(self, snapshot: Snapshot, where: str) -> list[str]:
        """Return a query for each partition. Together they read each row once; the first one also reads rows without a
        key.
        """
        select = f"SELECT {self._known(snapshot).select} FROM {self._from} WHERE {where}"
        column, keys_least = self._partition_column(snapshot)
        if column is None or self.params.partitions == 1:
            return [select]
        key = name(column)
        low, high = snapshot.session.rows(
            f"SELECT min({key})::bigint, max({key})::bigint FROM {self._from} WHERE {where}"
        )[0]
        if low is None:
            return [select]
        cuts = key_cuts(low, high, min(self.params.partitions, (high - low + 1) // keys_least or 1))
        tests = [f"({key} < {cuts[0]} OR {key} IS NULL)"] if cuts else []
        tests += [f"{key} >= {left} AND {key} < {right}" for left, right in pairwise(cuts)]
        tests += [f"{key} >= {cuts[-1]}"] if cuts else ["true"]
        return [f"{select} AND {test}" for test in tests]

    def _partition_column(self, snapshot: Snapshot) -> tuple[str | None, int]:
        """Return the column by whose ranges the rows are read, if any, and the number of keys from which another reader
        pays off.
        """
        if self.params.partition_by is not None:
            if self._known(snapshot).one(self.params.partition_by).type not in INTEGERS:
                raise SourceUnfit(f"`partition_by` must be an integer column, and {self.params.partition_by} is none")
            return self.params.partition_by, 1
        if self.params.table is None:
            return None, 1
        found = snapshot.session.rows(_KEY, (qualified(self.params.table),))
        column = None if not found else str(found[0][0])
        whole = column is not None and self._known(snapshot).one(column).type in INTEGERS
        return (column if whole else None), KEYS_LEAST

    def release(self) -> None:
        """End the snapshots, and remove copies of rows (`RowSource`)."""
        if self.copies is not None:
            self.copies.remove()
        self.snapshots.release()


def key_cuts(low: int, high: int, parts: int) -> list[int]:
    """Return the keys at which `low` to `high` is cut into at most `parts` ranges of nearly the same width.

    >>> key_cuts(1, 10, 4), key_cuts(5, 6, 4), key_cuts(5, 5, 4)
    ([3, 6, 8], [6], [])
    """
    width = high - low + 1
    parts = min(parts, width)
    return [low + width * number // parts for number in range(1, parts)]


def _within(low: int | None, high: int, newest: int) -> str:
    """Return an SQL condition: a transaction from `low` on and below `high` wrote the row, by its whole 64-bit id.

    A row has only the lower 32 bits of its transaction's id. `newest` is greater than all ids, and gives the upper
    bits. Ids below 3 are PostgreSQL's own, in rows from before a pg_upgrade.
    """
    whole = f"({newest} - (({newest} - xmin::text::bigint) & 4294967295))"
    test = f"(xmin::text::bigint < 3 OR {whole} < {high})"
    return test if low is None else f"{test} AND xmin::text::bigint >= 3 AND {whole} >= {low}"


def _value(after: Cursor | None, by: str, what: Any) -> Any:
    if after is None:
        return None
    if after.get(by) != what:
        raise SourceReplaced(
            f"the sink's last batch was read by {_said(after)}, and the task now says otherwise: change `incremental` "
            "back, or set a cursor of the new way by `rota etl reset`"
        )
    return after["value"]


def _said(after: Cursor) -> str:
    if "cursor" in after:
        return f"the cursor {after['cursor']}"
    return next((way for way in after if after[way] is True), str(after))
