"""Reads the rows of a batch, part by part, each in a session that sees the snapshot which the driver holds."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from spark_tasks.postgres.session import TEXT_FORMS, QueryUnfit, Session, session, translated_errors
from spark_tasks.postgres.source_columns import SourceColumns, first_uncastable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.types import StructType


def adopt_snapshot(opened: Session, snapshot: str) -> None:
    """Make the transaction of a new session read from the snapshot. Raises the errors of `Session`."""
    opened.run(
        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY",
        f"SET TRANSACTION SNAPSHOT '{snapshot}'",
        TEXT_FORMS,
    )


def stored(schema: "StructType") -> "StructType":
    """Return the columns, renamed `c0`, `c1` and so on, because Spark ignores case in names, and would mistake `a` for
    `A`.
    """
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(f"c{number}", each.dataType) for number, each in enumerate(schema)])


def with_own_names(rows: "DataFrame", schema: "StructType") -> "DataFrame":
    """Give the columns of the rows, which have the names of `stored`, their own names and metadata again."""
    from pyspark.sql import functions as f

    return rows.select(*[f.col(f"c{n}").alias(each.name, metadata=each.metadata) for n, each in enumerate(schema)])


def read_partition(
    opened: Session, query: str, columns: SourceColumns, schema: "pa.Schema"
) -> "Iterator[pa.RecordBatch]":
    """Yield the rows of `query` as Arrow batches of that schema. Raises the errors of `Session`, and `SourceUnfit`."""
    try:
        with translated_errors(), opened.connection.cursor() as cursor:
            # The reader of `fetch_record_batch` raises OSError, without a SQLSTATE, for errors midway.
            results = cursor.execute(query)._results
            assert results is not None
            for batch in results.reader:
                yield _fitted(batch, columns, schema)
    except QueryUnfit as error:
        raise columns.refused(str(error)) or error from None


def _fitted(batch: "pa.RecordBatch", columns: SourceColumns, schema: "pa.Schema") -> "pa.RecordBatch":
    import pyarrow as pa

    arrays = []
    for number, (field, array) in enumerate(zip(schema, batch.columns, strict=True)):
        try:
            arrays.append(array if array.type == field.type else array.cast(field.type))
        except pa.ArrowInvalid:
            raise columns.unfit(columns.columns[number], str(first_uncastable(array, field.type))) from None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def data_source(
    format_name: str, uri: str, snapshot: str, queries: list[str], columns: SourceColumns
) -> "type[DataSource]":
    """Return a Python data source for Spark, named `format_name`: a partition for each query, and the columns of
    `stored`.

    The class is defined here so that its values are pickled with it; so the password is in no option, and in no plan.
    """
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
    from pyspark.sql.pandas.types import to_arrow_schema

    numbered = stored(columns.schema())
    arrow = to_arrow_schema(numbered, timezone="UTC")

    class Reader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(query) for query in queries]

        def read(self, partition: InputPartition) -> Any:
            with session(uri) as opened:
                adopt_snapshot(opened, snapshot)
                yield from read_partition(opened, partition.value, columns, arrow)

    class PostgresDataSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return format_name

        def schema(self) -> "StructType":
            return numbered

        def reader(self, schema: "StructType") -> DataSourceReader:
            return Reader()

    return PostgresDataSource
