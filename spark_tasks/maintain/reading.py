"""Reads the Parquet files of a table, a small part of each at a time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow import parquet

from spark_tasks.maintain.errors import FileUnreadable
from spark_tasks.storage.errors import store_errors
from tasks.places.place import Place

BATCH_ROWS: Final = 16_384
BATCH_BYTES: Final = 8 << 20
"""The most rows, and about the most bytes of rows, that are read at once."""

BUFFER_BYTES: Final = 1 << 20
"""The bytes of a column of a local file that are read at once. From an object store, a whole row group is read."""


class FileGone(Exception):
    """A file does not exist. Another writer may have rewritten its rows and removed it."""


def read_rows(place: Place, path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, with the columns `schema`. A column that the file lacks is null; other columns are left
    out.

    Raises `FileGone`, `FileUnreadable`, `NoBucket`, `NoPermission` and `StoreAway`.
    """
    _check_inside(place, path)
    buffered = BUFFER_BYTES if place.is_local else 0
    try:
        with store_errors(place), place.reading(path) as opened:
            file = parquet.ParquetFile(opened, coerce_int96_timestamp_unit="us", pre_buffer=False, buffer_size=buffered)
            there = set(file.schema_arrow.names)
            # With no column at all, batches would not say how many rows they have.
            wanted = [name for name in schema.names if name in there] or file.schema_arrow.names[:1]
            for batch in file.iter_batches(_rows_at_once(file.metadata), columns=wanted):
                yield _fitted(batch, schema)
    except FileNotFoundError:
        raise FileGone(place.shown(path)) from None
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None and not isinstance(error, pa.ArrowException):
            raise
        said = " ".join(str(error).split())[:300]
        raise FileUnreadable(
            f"{place.shown(path)}, which the table's log names, cannot be read ({said}): restore it, or take its rows "
            "out of the table by a program that writes it"
        ) from error


def _check_inside(place: Place, path: str) -> None:
    """Raise `FileUnreadable` if a local file, or a folder above it, is a symlink to a place outside the table."""
    if place.is_local:
        root = Path(place.path).resolve()
        if not (root / path).resolve().is_relative_to(root):
            raise FileUnreadable(f"{place.shown(path)} is, or is behind, a link that leads out of the table")


def _rows_at_once(about: "parquet.FileMetaData") -> int:
    size_bytes = sum(int(about.row_group(number).total_byte_size) for number in range(about.num_row_groups))
    return max(1, min(BATCH_ROWS, BATCH_BYTES * int(about.num_rows) // max(1, size_bytes)))


def _fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert these rows to the columns `schema`. Raises `pyarrow.ArrowException` for values that do not fit."""
    columns = []
    for field in schema:
        if field.name in batch.schema.names:
            column = batch.column(field.name)
            columns.append(column if column.type == field.type else column.cast(field.type))
        else:
            columns.append(pa.nulls(batch.num_rows, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
