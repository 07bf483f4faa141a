"""Reads one part of a batch on an executor: its own session, in the snapshot that the driver holds."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from spark_tasks.postgres.session import QueryUnfit, Session, explained

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSource


def read(uri: str, snapshot: str, query: str, schema: "pa.Schema") -> "Iterator[pa.RecordBatch]":
    """The rows of `query` as Arrow batches of that schema. Raises what a `Session` raises, `QueryUnfit` for a value."""
    opened = Session(uri)
    try:
        opened.run(
            "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY",
            f"SET TRANSACTION SNAPSHOT '{snapshot}'",
            "SET LOCAL datestyle = 'ISO'",
        )
        with explained(), opened.connection.cursor() as cursor:
            cursor.execute(query)
            for batch in cursor.fetch_record_batch():
                yield _fitted(batch, schema)
    finally:
        opened.close()


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
            return read(uri, snapshot, partition.value, arrow)

    class PostgresDataSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return format_name

        def schema(self) -> str:
            return ddl

        def reader(self, schema: StructType) -> DataSourceReader:
            return Reader()

    return PostgresDataSource
