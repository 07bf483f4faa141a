"""Reads the rows of a batch, part by part, each in a session that sees the snapshot which the driver holds."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from spark_tasks.postgres.session import QueryUnfit, Session, explained, session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSource


def join(opened: Session, snapshot: str) -> None:
    """Have the transaction of a new session see what the snapshot shows. Raises what a `Session` raises."""
    opened.run(
        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY",
        f"SET TRANSACTION SNAPSHOT '{snapshot}'",
        "SET LOCAL datestyle = 'ISO'",
    )


def read(opened: Session, query: str, schema: "pa.Schema") -> "Iterator[pa.RecordBatch]":
    """The rows of `query` as Arrow batches of that schema. Raises what a `Session` raises, `QueryUnfit` for a value."""
    with explained(), opened.connection.cursor() as cursor:
        # The reader of `fetch_record_batch` raises OSError, without a SQLSTATE, for what goes wrong midway.
        results = cursor.execute(query)._results
        assert results is not None
        for batch in results.reader:
            yield _fitted(batch, schema)


def _fitted(batch: "pa.RecordBatch", schema: "pa.Schema") -> "pa.RecordBatch":
    import pyarrow as pa

    arrays = []
    for field, array in zip(schema, batch.columns, strict=True):
        try:
            arrays.append(array if array.type == field.type else array.cast(field.type))
        except pa.ArrowInvalid as error:
            why = str(error).partition(". ")[0]
            raise QueryUnfit(f"column {field.name} has a value that is no {field.type}: {why}") from None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def data_source(format_name: str, uri: str, snapshot: str, queries: list[str], ddl: str) -> "type[DataSource]":
    """A Python data source of Spark by that name, with one partition for each query.

    The class is made here so that it is pickled with what it holds: the password is in no option, and in no plan.
    """
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    columns = StructType.fromDDL(ddl)
    assert isinstance(columns, StructType)
    arrow = to_arrow_schema(columns, timezone="UTC")

    class Reader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(query) for query in queries]

        def read(self, partition: InputPartition) -> Any:
            with session(uri) as opened:
                join(opened, snapshot)
                yield from read(opened, partition.value, arrow)

    class PostgresDataSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return format_name

        def schema(self) -> str:
            return ddl

        def reader(self, schema: StructType) -> DataSourceReader:
            return Reader()

    return PostgresDataSource
