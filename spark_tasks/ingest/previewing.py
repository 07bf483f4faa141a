"""Previews an ingest: the first rows of new files, without a claim, a checkpoint, or anything written."""

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

from spark_tasks.files.columns import evolve, table_columns
from spark_tasks.files.faults import BadFile
from spark_tasks.files.listing import Source, canonical, check_globs, listing, new_and_changed
from spark_tasks.files.malformed import explained_row
from spark_tasks.files.reading import check_fields, layouts_of, load_files
from spark_tasks.files.ready import complete
from spark_tasks.files.staging import staged
from spark_tasks.files.text_checks import clean_text
from spark_tasks.ingest.converting import check_partitions
from spark_tasks.ingest.errors import IngestFailed
from spark_tasks.ingest.params import IngestParams
from spark_tasks.ingest.writing import kept_rows
from spark_tasks.spark.causes import cause, is_sparks
from spark_tasks.spark.sample import nothing, sample
from spark_tasks.spark.session import is_local_master
from tasks.file_guard import FileGuard
from tasks.kind import Context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from spark_tasks.table.delta import Table

FILES: Final = 4
"""The most files that a preview reads."""


def preview_files(
    ctx: Context[IngestParams],
    table: "Table",
    most: int,
    start_spark: "Callable[[], AbstractContextManager[SparkSession]]",
) -> dict[str, Any]:
    """Return the first `most` rows of the first new files, with the columns that the table would have
    (`sample.RESULT`).

    The result's `files` are the files that were read. If no file is new, the first files of the table are read again.
    Raises the errors of files and of the table that `kind` names.
    """
    files = _first_files(ctx, table)
    if not files:
        return nothing() | {"files": []}
    with start_spark() as spark:
        try:
            rows = _rows(ctx, table, files, most, spark)
        except BadFile as bad:
            raise bad.why from None
    return rows | {"files": [file.path for file in files]}


def _first_files(ctx: Context[IngestParams], table: "Table") -> tuple[Source, ...]:
    globs = [ctx.params.source] if isinstance(ctx.params.source, str) else ctx.params.source
    check_globs(globs, ctx.access)
    found = listing(globs, ctx.access)
    taken = {canonical(path): size for page in table.ledger.pages(table.last()) for path, size in page.files}
    new = complete(new_and_changed(found, taken).new, ctx.params.ready, time.time())
    if not new:
        ctx.log.info("nothing is new: the rows are those of files that are in the table")
    return (new or found)[:FILES]


def _rows(
    ctx: Context[IngestParams], table: "Table", files: tuple[Source, ...], most: int, spark: "SparkSession"
) -> dict[str, Any]:
    params = ctx.params
    pins = FileGuard(ctx.access, "source") if is_local_master(os.environ) else None
    with staged(files, ctx.scratch / "fetched" / "preview", pins) as places:
        schema: StructType | None = None
        clean = places
        try:
            clean, _ = clean_text(params, places, ctx.scratch / "fetched" / "preview" / "clean")
            found = layouts_of(spark, params, clean)
            by = table.partitioned_by()
            schema = table_columns(spark, params, table.schema_json(), clean, by, found)
            schema = evolve(schema, params, clean, found)
            check_partitions(schema, by, table.shown, in_folder=table.place.is_local)
            check_fields(spark, params, schema, clean, found)
            return sample(kept_rows(params, load_files(spark, params, schema, clean, found)), most)
        except BadFile:
            raise
        except Exception as error:
            if not is_sparks(error):
                raise
            raise explained_row(spark, params, schema, error, clean) or IngestFailed(cause(str(error)).said) from None
