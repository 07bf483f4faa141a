"""A table in a PostgreSQL database: one transaction writes a batch's rows and records the batch as committed."""

import json
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_tasks.contracts.fetched import fetch, numbered
from spark_tasks.contracts.names import literal, name, table_parts
from spark_tasks.contracts.sink import About, Committed, SinkUnfit, Staged, Visible
from spark_tasks.postgres import carried, staging
from spark_tasks.postgres.ledger import BatchLedger
from spark_tasks.postgres.merge import Merge, check_kept, explain_rows, known_types, target_columns
from spark_tasks.postgres.params import PostgresTable
from spark_tasks.postgres.session import QueryFailed, ServerAway, Session, session
from spark_tasks.table.ledger import Mark, mark_named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_PREFIX: Final = "rota_stage_"

SWEEP_LOCK: Final = "2s"
"""How long a sweep waits for a staging table to which an overtaken attempt still writes."""

_WHOLE_TIMES: Final = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Spark's formats for times in JSON, with microseconds. Spark's default formats leave out their last three digits."""

WRITERS: Final = 4
"""How many files of a batch are copied at once on this machine."""


class PostgresSink:
    """The table of `params`, to which the task `task` writes. `uri` is the database's URL with its password.

    `local` says that Spark's executors are on this machine: then the driver writes the rows, otherwise the executors
    do. The class implements `contracts.sink.Sink`. Its methods also raise the errors of `Session`.
    """

    def __init__(self, params: PostgresTable, uri: str, task: str, scratch: Path, local: bool = False) -> None:
        self.params = params
        self.uri = uri
        self.scratch = scratch
        self.local = local
        self.schemas: dict[Mark, StructType] = {}
        *schema, table = table_parts(params.table)
        with session(uri) as opened:
            self.schema = schema[0] if schema else str(opened.rows("SELECT current_schema()")[0][0])
            self.table = f"{name(self.schema)}.{name(table)}"
            target = f"{self.schema}.{table}"
            self.ledger = BatchLedger(self.schema, task, target)
        self.prefix = f"{_PREFIX}{sha256(json.dumps([task, target]).encode()).hexdigest()[:12]}_"

    def last(self) -> Visible | None:
        """Return the last visible batch; None if no batch is visible."""
        with session(self.uri) as opened:
            return self.ledger.last(opened) if self.ledger.is_there(opened) else None

    def has_run(self, run_id: str) -> bool:
        """Whether a batch of that run is visible."""
        with session(self.uri) as opened:
            return self.ledger.is_there(opened) and self.ledger.has_run(opened, run_id)

    def holder(self) -> int | None:
        """Return the token of the attempt that holds the table for this task."""
        with session(self.uri) as opened:
            return self.ledger.holder(opened) if self.ledger.is_there(opened) else None

    def claim(self, token: int, instead_of: int | None) -> bool:
        """Make the attempt with `token` the holder."""
        with session(self.uri) as opened:
            self.ledger.create(opened)
            return self.ledger.claim(opened, token, instead_of)

    def _staging(self, mark: Mark) -> str:
        return f"{self.prefix}{mark.name.replace('-', '_')}"

    def write(self, rows: "DataFrame", mark: Mark) -> Staged:
        """Write the rows into a staging table of this attempt."""
        self._check_columns(rows.schema)
        ready = _flattened(rows)
        table = self._staging(mark)
        with session(self.uri) as opened:
            opened.run(
                f"DROP TABLE IF EXISTS {name(self.schema)}.{name(table)}",
                staging.create(f"{name(self.schema)}.{name(table)}", ready.schema),
            )
            opened.commit()
        parts = self._copied(ready, table, mark) if self.local else self._copied_by_executors(ready, table, mark)
        self.schemas[mark] = ready.schema
        return Staged(sum(count for _, count in parts), tuple(number for number, _ in parts))

    def _copied(self, rows: "DataFrame", table: str, mark: Mark) -> list[tuple[int, int]]:
        """Copy the rows into the staging table: Spark writes them to files, from which threads of the driver copy them.

        To write from Python, Spark would first start two planners and a worker in Python, which takes longer.
        """
        fetched = fetch(rows, self.scratch / mark.name, local=True)
        parts = list(enumerate(fetched.parts()))
        with ThreadPoolExecutor(WRITERS) as pool:
            counts = pool.map(
                lambda part: staging.copy_in(self.uri, self.schema, table, part[0], part[1], fetched.names), parts
            )
            done = [(number, count) for (number, _), count in zip(parts, counts, strict=True)]
        fetched.remove()
        return done

    def _copied_by_executors(self, rows: "DataFrame", table: str, mark: Mark) -> list[tuple[int, int]]:
        self.scratch.mkdir(parents=True, exist_ok=True)
        receipt = self.scratch / f"{mark.name}.receipt.json"
        format_ = staging.staging_format(self.uri, self.schema, table, receipt, rows.columns)
        rows.sparkSession.dataSource.register(format_)
        numbered(rows).write.format(format_.name()).mode("append").save()
        return [(number, count) for number, count in json.loads(receipt.read_text(encoding="utf-8"))]

    def _check_columns(self, schema: "StructType") -> None:
        wanted = [*self.params.keys, *([self.params.tombstone] if self.params.tombstone else [])]
        names = [column for column in schema.fieldNames() if column != carried.ODD]
        if missing := [column for column in wanted if column not in names]:
            raise SinkUnfit(f"the rows lack {', '.join(missing)}; they have {', '.join(names)}")
        if twice := [column for column in names if names.count(column) > 1]:
            raise SinkUnfit(f"the rows have two columns {twice[0]}: name them apart")

    def commit(self, mark: Mark, written: Staged, about: About) -> Committed:
        """Write the staged rows to the table, and record the batch in `rota_batches`, in one transaction."""
        stage = f"{name(self.schema)}.{name(self._staging(mark))}"
        merge = Merge(self.params, self.schemas[mark], self.table, stage, written.parts)
        try:
            with session(self.uri) as opened:
                if self.ledger.check(opened, mark):
                    return Committed(written.rows, 0)
                done = self._apply(opened, merge)
                self.ledger.add(opened, mark, about, done.rows, done.deleted)
                opened.run(f"DROP TABLE {merge.stage}")
                opened.commit()
                return done
        except ServerAway:
            # The connection ended, perhaps after the commit: the ledger has the answer.
            last = self.last()
            if last is None or last.mark != mark:
                raise
            return Committed(written.rows, 0)

    def _apply(self, opened: Session, merge: Merge) -> Committed:
        columns = target_columns(opened, self.table)
        if not columns:
            opened.run(merge.create(known_types(opened, set(merge.carried.values()))))
            columns = target_columns(opened, self.table)
        merge.check(columns)
        if (locale := merge.lc_monetary) is not None:
            opened.run(f"SELECT set_config('lc_monetary', {literal(locale)}, true)")
        if self.params.keys and (nameless := opened.rows(merge.without_keys())[0][0]):
            raise SinkUnfit(f"{self.table}: {nameless} rows of a batch have a null in their keys")
        try:
            deleted = opened.run(merge.delete(columns)) if self.params.mode == "replace" or self.params.tombstone else 0
            put = opened.run(merge.put(columns))
        except QueryFailed as error:
            opened.rollback()
            raise explain_rows(error, opened, merge, columns) from None
        check_kept(opened, merge, columns)
        return Committed(put, deleted if self.params.tombstone else 0)

    def move(self, mark: Mark, about: About) -> None:
        """Record a batch without rows in `rota_batches`, with the cursor of `about`."""
        with session(self.uri) as opened:
            if not self.ledger.check(opened, mark):
                self.ledger.add(opened, mark, about, 0, 0)
                opened.commit()

    def sweep(self) -> list[str]:
        """Drop staging tables of committed batches and of overtaken attempts, and return their names."""
        gone = []
        with session(self.uri) as opened:
            last, holder = self.ledger.last(opened), self.ledger.holder(opened)
            found = opened.rows(
                f"SELECT tablename FROM pg_tables WHERE schemaname = {literal(self.schema)} "
                f"AND starts_with(tablename, {literal(self.prefix)}) ORDER BY 1"
            )
            opened.rollback()
            for (table,) in found:
                mark = mark_named(table.removeprefix(self.prefix).replace("_", "-"))
                if mark is None or (mark.token == holder and (last is None or mark.batch > last.mark.batch)):
                    continue
                try:
                    opened.run(f"SET LOCAL lock_timeout = '{SWEEP_LOCK}'")
                    opened.run(f"DROP TABLE {name(self.schema)}.{name(table)}")
                    opened.commit()
                    gone.append(table)
                except QueryFailed:
                    opened.rollback()  # its writer still locks it: a later sweep drops it
        return gone


def _flattened(rows: "DataFrame") -> "DataFrame":
    """Return the rows with the columns for which PostgreSQL has no type (arrays, maps, structs) as JSON."""
    from pyspark.sql import functions as f

    def ready(column: Any, number: int) -> Any:
        plain = f.col(f"c{number}")
        if staging.postgres_type(column.dataType) is not None:
            return plain.alias(column.name, metadata=column.metadata)
        if column.dataType.typeName() not in ("array", "map", "struct"):
            return plain.cast("string").alias(column.name)
        return f.to_json(plain, _WHOLE_TIMES).alias(column.name)

    return numbered(rows).select(*[ready(column, number) for number, column in enumerate(rows.schema.fields)])
