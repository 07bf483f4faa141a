"""Reads rows of an HTTP API: the driver requests the pages in order, and writes their records to a Parquet file.

An API has no snapshot: a record that changes between two pages may come twice, or not at all. With a cursor, a batch
has the records whose cursor is above the cursor of the last batch and older than `lag_s`, whatever else the API sends.
So a record that changes while the pages are read is left for the next batch.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_tasks.contracts.incremental import Incremental
from spark_tasks.contracts.source import Cursor, Plan, SourceReplaced, SourceUnfit, last_rows
from spark_tasks.http.client import ApiClient
from spark_tasks.http.pages import pages_of
from spark_tasks.http.params import CURSOR_KINDS, HttpRows
from spark_tasks.http.records import NotOfType, RecordRows, arrow_schema, converter, table_of
from spark_tasks.spark.session import is_local_master
from spark_tasks.sql.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_A_STEP: Final = 20_000

ORDER: Final = "_rota_order"
"""The column with a record's number, counted over all pages."""


@dataclass(frozen=True)
class _Fetched:
    """A batch that is in the scratch folder: the cursor that it comes after, and its plan."""

    after: Cursor | None
    plan: Plan


@dataclass
class _Newest:
    """Decides which records are new: above `low`, and not above `bound`. `high` is their greatest cursor so far."""

    column: str
    kind: str
    at: int
    low: Any
    bound: Any
    high: Any = None
    raw: Any = None

    def takes(self, row: tuple[Any, ...], record: dict[str, Any]) -> bool:
        """Whether that record is new. If it is, `high` is updated."""
        value = row[self.at]
        if value is None or (self.low is not None and value <= self.low):
            return False
        if self.bound is not None and (value >= self.bound if self.kind == "date" else value > self.bound):
            return False
        if self.high is None or value > self.high:
            self.high, self.raw = value, record[self.column]
        return True


class HttpReader:
    """The records of an API, for the view `view`. `now_s` returns the time in seconds since 1970."""

    def __init__(
        self,
        view: str,
        params: HttpRows,
        client: ApiClient,
        scratch: Path,
        incremental: Incremental | None = None,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self.view = view
        self.params = params
        self.client = client
        self.path = scratch / f"{view}.parquet"
        self.incremental = incremental
        self.now_s = now_s
        self._fetched: _Fetched | None = None
        self._loaded = False

    def plan(self, after: Cursor | None) -> Plan | None:
        """Plan the next batch (`RowSource`). Fetches it, unless the batch after that cursor was fetched already and not
        read yet.

        Raises `ApiAway`, `ApiReadStopped`, `SourceReplaced` and `SourceUnfit`.
        """
        if not is_local_master(os.environ):
            raise SourceUnfit(
                "the driver reads an HTTP API onto its own disk, which Spark's executors on other machines do not see"
            )
        if self._fetched is None or self._fetched.after != after:
            plan = self._fetch(after)
            if plan is None:
                return None
            self._fetched = _Fetched(after, plan)
        return self._fetched.plan

    def _fetch(self, after: Cursor | None) -> Plan | None:
        from pyarrow import parquet

        newest = None if self.incremental is None else self._newest(self.incremental, after)
        more: dict[str, str] = {}
        if after is not None and self.incremental is not None and self.incremental.parameter is not None:
            more = {self.incremental.parameter: str(after["value"])}
        schema = arrow_schema(self.params.columns | ({ORDER: "bigint"} if self.params.keys else {}))
        maker, rows, pages, records, taken = RecordRows(self.params.columns), list[tuple[Any, ...]](), 0, 0, 0
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with parquet.ParquetWriter(self.path, schema) as writer:
            for page in pages_of(self.client, self.params, more):
                pages = page.number
                for number, record in enumerate(page.records, 1):
                    try:
                        row = maker.row(record, f"{page.shown}: page {page.number}, record {number}")
                    except NotOfType as error:
                        raise SourceUnfit(str(error)) from None
                    records += 1
                    if newest is not None and not newest.takes(row, record):
                        continue
                    rows.append((*row, records) if self.params.keys else row)
                    taken += 1
                    if len(rows) == ROWS_A_STEP:
                        writer.write_table(table_of(rows, schema))
                        rows.clear()
            writer.write_table(table_of(rows, schema))
        about = {"url": self.params.url, "pages": pages, "records": records, "new": taken}
        if newest is None:
            return Plan(None, about)
        if newest.high is None:
            return None
        raw = str(newest.raw) if isinstance(newest.raw, Decimal) else newest.raw
        return Plan({"cursor": newest.column, "value": raw}, about | {"above": after and after["value"], "to": raw})

    def _newest(self, how: Incremental, after: Cursor | None) -> _Newest:
        column = how.cursor
        assert column is not None
        if after is not None and after.get("cursor") != column:
            raise SourceReplaced(
                f"the sink's last batch was read by {after}, and the task now says {column}: change `incremental` "
                "back, or set a cursor of the new way by `rota etl reset`"
            )
        kind = self.params.columns[column]
        bound: datetime | date | None = None
        if how.lag_s and CURSOR_KINDS[kind]:
            moment = datetime.fromtimestamp(self.now_s() - how.lag_s, UTC)
            bound = moment.date() if kind == "date" else moment
        return _Newest(column, kind, list(self.params.columns).index(column), self._low(kind, after), bound)

    @staticmethod
    def _low(kind: str, after: Cursor | None) -> Any:
        if after is None:
            return None
        value = after["value"]
        try:
            return converter(kind)(Decimal(value) if kind.startswith("epoch") else value)
        except (NotOfType, ArithmeticError, TypeError):
            raise SourceReplaced(
                f"the sink's last batch reaches {value!r}, which is no {kind}: change `columns` back, or set another "
                "cursor by `rota etl reset`"
            ) from None

    def load(self, spark: "SparkSession", plan: Plan) -> "DataFrame":
        """Return the rows of the plan (`RowSource`)."""
        from pyspark.sql import functions as f

        self._loaded = True
        rows = spark.read.parquet(str(self.path))
        if not self.params.keys:
            return rows
        order = [f.col(ORDER).desc()]
        if plan.reaches is not None:
            order.insert(0, f.col(quoted(plan.reaches["cursor"])).desc_nulls_last())
        return last_rows(rows, self.params.keys, order, ties=False).drop(ORDER)

    def release(self) -> None:
        """Remove the batch if it was read (`RowSource`). Else it stays, so that it need not be requested from the API
        again.
        """
        if self._loaded:
            self.path.unlink(missing_ok=True)
            self._fetched, self._loaded = None, False
