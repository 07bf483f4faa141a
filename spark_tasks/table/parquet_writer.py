"""Writes Parquet files into a place by pyarrow, a row group at a time, and returns their facts for the table's log."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from spark_tasks.table.part import Part
from spark_tasks.table.statistics import statistics
from tasks.places.fsync import sync, sync_names
from tasks.places.place import Place

if TYPE_CHECKING:
    import pyarrow as pa

GROUP_BYTES: Final = 64 << 20
"""The size of a row group in memory. A writer holds one row group."""

UPLOAD_BYTES: Final = 16 << 20
"""The size of one part of an upload. A store accepts 10,000 parts, so a file may have 160 GB."""


def row_groups(batches: "Iterable[pa.RecordBatch]", group_bytes: int) -> "Iterator[pa.Table]":
    """Collect the rows in tables of about `group_bytes`, because Spark's batches of 10,000 rows would make small row
    groups.
    """
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        held.append(batch)
        size_bytes += batch.nbytes
        if size_bytes >= group_bytes:
            yield pa.Table.from_batches(held)
            held, size_bytes = [], 0
    if held:
        yield pa.Table.from_batches(held)


def write_file(
    place: Place, name: str, first: "pa.Table", groups: "Iterator[pa.Table]", full_bytes: int | None = None
) -> Part:
    """Write the row groups `first` and `groups` to the new file `name` in `place`, and return its `Part` for the log.

    With `full_bytes`, writing stops once the file is at least that large; the other row groups stay in `groups`. The
    file is synced to the disk, or uploaded; if this fails, the file does not exist. Raises `FileExistsError`, and the
    storage's errors.
    """
    if not place.is_local:
        with uploading(place, name) as out:
            return write_parquet(out, name, first, _until_full(out, groups, full_bytes))
    path = Path(place.path) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("xb")
    try:
        with file:
            part = write_parquet(file, name, first, _until_full(file, groups, full_bytes))
        sync(path)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    sync_names(path.parent, top=Path(place.path))
    return part


@contextmanager
def uploading(place: Place, name: str) -> Iterator[IO[bytes]]:
    """Open a new object for writing. The object exists after the block has ended, but not if the block raises."""
    file = place.files.open(f"{place.path}/{name}", "wb", block_size=UPLOAD_BYTES)
    try:
        yield file
        file.close()
    except BaseException:
        # Closing would complete the upload of half a file.
        file.closed = True
        with suppress(Exception):  # the store may be unreachable
            file.discard()
        raise


def _until_full(file: IO[bytes], groups: "Iterator[pa.Table]", full_bytes: int | None) -> "Iterator[pa.Table]":
    """Yield the row groups, until the file to which they are written is full."""
    while full_bytes is None or file.tell() < full_bytes:
        group = next(groups, None)
        if group is None:
            return
        yield group


def write_parquet(file: IO[bytes], name: str, first: "pa.Table", groups: "Iterator[pa.Table]") -> Part:
    """Write the row groups `first` and `groups` to `file`, and return its `Part` with the path `name`."""
    from pyarrow import parquet

    footers: list[Any] = []
    with_nan: set[tuple[str, ...]] = set()
    out = parquet.ParquetWriter(file, first.schema, compression="snappy", metadata_collector=footers)
    try:
        group: pa.Table | None = first
        while group is not None:
            with_nan |= nan_columns(group)
            out.write_table(group, row_group_size=group.num_rows)
            group = next(groups, None)
    except BaseException:
        with suppress(Exception):  # the writer's own exit would raise this error, and hide that the disk is full
            out.close()
        raise
    out.close()
    [footer] = footers
    stats = statistics(footer, with_nan)
    return Part(name, file.tell(), time.time_ns() // 1_000_000, footer.num_rows, stats)


def nan_columns(table: "pa.Table") -> set[tuple[str, ...]]:
    """Return the columns, also in structs, that contain NaN."""
    from pyarrow import compute, types

    found = set()

    def look(path: tuple[str, ...], column: Any) -> None:
        if types.is_floating(column.type):
            if compute.any(compute.is_nan(column)).as_py():
                found.add(path)
        elif types.is_struct(column.type):
            for field in column.type:
                look((*path, field.name), compute.struct_field(column, field.name))

    for name in table.column_names:
        look((name,), table.column(name))
    return found
