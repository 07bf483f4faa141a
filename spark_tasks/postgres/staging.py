"""Writes a batch into a staging table by COPY, in parallel, from the executors.

Each writer writes its rows in one transaction, with the writer's number in each row. Spark may run a writer twice. So
the driver gets a receipt that names the writers that count, and ignores the rows of the others.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_tasks.contracts.names import name
from spark_tasks.contracts.sink import SinkUnfit
from spark_tasks.postgres.session import QueryFailed, Session, translated_errors

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.types import DataType, StructType

PART: Final = "_rota_part"
"""The column with the writer's number."""

_TYPES: Final = {
    "boolean": "boolean",
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamp with time zone",
    "timestamp_ntz": "timestamp without time zone",
    "string": "text",
}
"""PostgreSQL's types for Spark's, as `format_type` writes them."""


_DAYS: Final = (-2440588, 2145042905)
"""The first and the last day that PostgreSQL can store, in days since 1970."""

_MICROSECONDS: Final = (-2440588 * 86_400_000_000, 2**63 - 1)
"""The first time that PostgreSQL can store, and the last one that Arrow can, in microseconds since 1970."""


def postgres_type(kind: "DataType") -> str | None:
    """Return the type of a staging table's column for a Spark column; None if the column must be converted to JSON
    first.
    """
    simple = kind.simpleString()
    if simple.startswith(("varchar", "char")):
        return "text"
    return simple.replace("decimal", "numeric") if simple.startswith("decimal") else _TYPES.get(simple)


def create(table: str, schema: "StructType") -> str:
    """Return the statement that creates a staging table, unlogged, because it is not needed after a crash. `table` is
    quoted.
    """
    columns = [f"{name(PART)} bigint"]
    columns += [f"{name(field.name)} {postgres_type(field.dataType)}" for field in schema.fields]
    return f"CREATE UNLOGGED TABLE {table} ({', '.join(columns)})"


def copy_in(
    uri: str, schema: str, table: str, part: int, batches: "Iterable[pa.RecordBatch]", names: Sequence[str]
) -> int:
    """Copy the batches into the columns `names` of `schema.table`, as the rows of writer `part`, in one transaction.

    Returns the number of rows. Raises the errors of `Session`, and `SinkUnfit` for a value that cannot be written.
    """
    import pyarrow as pa

    given = iter(batches)
    first = next(given, None)
    if first is None:
        return 0
    counted = 0
    failed: list[Exception] = []

    def marked() -> "Iterator[pa.RecordBatch]":
        nonlocal counted
        try:
            for batch in _chain(first, given):
                check_times(batch, names)
                counted += batch.num_rows
                numbers = pa.array([part], pa.int64()).take(pa.array([0] * batch.num_rows, pa.int32()))
                yield pa.RecordBatch.from_arrays([numbers, *batch.columns], schema=wider)
        except Exception as error:
            failed.append(error)
            raise

    columns = [field.with_name(each) for field, each in zip(first.schema, names, strict=True)]
    wider = pa.schema([pa.field(PART, pa.int64()), *columns])
    opened = Session(uri)
    try:
        with translated_errors(), opened.connection.cursor() as cursor:
            cursor.adbc_ingest(
                table, pa.RecordBatchReader.from_batches(wider, marked()), mode="append", db_schema_name=schema
            )
        opened.commit()
    except QueryFailed:
        if failed:
            raise failed[0] from None  # the ADBC driver passes on only the text of this error
        raise
    finally:
        opened.close()
    return counted


def check_times(batch: "pa.RecordBatch", names: Sequence[str]) -> None:
    """Raise `SinkUnfit` for a date or time outside PostgreSQL's range, because the ADBC driver would write a
    wrong one.
    """
    import pyarrow as pa
    from pyarrow import compute, types

    for values, named in zip(batch.columns, names, strict=True):
        if types.is_date32(values.type):
            (low, high), numbers, unit = _DAYS, values.view(pa.int32()), "days"
        elif types.is_timestamp(values.type):
            (low, high), numbers, unit = _MICROSECONDS, values.view(pa.int64()), "microseconds"
        else:
            continue
        found = compute.min_max(numbers).as_py()
        for end in found.values():
            if end is not None and not low <= end <= high:
                raise SinkUnfit(
                    f"the column {named} has a time {end:,} {unit} from 1970, which PostgreSQL cannot hold: it knows "
                    "those from 4714-11-24 BC on; make it null or text in `transform`"
                )


def _chain(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest


def staging_format(uri: str, schema: str, table: str, receipt: Path, names: Sequence[str]) -> "type[DataSource]":
    """Return a Python data source for Spark that writes rows into the columns `names` of the staging table.

    When all writers are done, the file `receipt` on the driver's machine has `[[writer, rows], ...]` as JSON. The class
    is defined here so that its values are pickled with it; so the password is in no option, and in no plan.
    """
    from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

    @dataclass
    class Part(WriterCommitMessage):
        number: int
        rows: int

    class Writer(DataSourceArrowWriter):
        def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
            from pyspark import TaskContext

            context = TaskContext.get()
            assert context is not None
            number = context.taskAttemptId()
            return Part(number, copy_in(uri, schema, table, number, iterator, names))

        def commit(self, messages: list[WriterCommitMessage | None]) -> None:
            parts = [[part.number, part.rows] for part in messages if isinstance(part, Part)]
            receipt.write_text(json.dumps(parts), encoding="utf-8")

    class StagingDataSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "rota_staging"

        def writer(self, schema: "StructType", overwrite: bool) -> DataSourceArrowWriter:
            return Writer()

    return StagingDataSource
