"""Writes the rows of a bin (see `layout`) into new files, and compares them with the old rows before a commit.

The rows pass in small batches: the rows of the old files are summed as they are read (`row_sums`) and then written.
Then the new files are read from storage again, and summed. Nothing refers to the new files until a commit names them.
"""

import errno
import posixpath
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow as pa

from spark_tasks.maintain.errors import NoRoom, RewriteDiffers
from spark_tasks.maintain.layout import Bin
from spark_tasks.maintain.reading import read_rows
from spark_tasks.maintain.row_sums import RowSum, RowSummer, row_sum
from spark_tasks.maintain.sorting import RowSorter
from spark_tasks.storage.errors import store_errors
from spark_tasks.table.parquet_writer import GROUP_BYTES, row_groups, write_file
from spark_tasks.table.part import Part
from tasks.places.place import Place

SHARE: Final = 8
"""The memory is divided by this number to get the size of a row group, or of the rows that a sort holds at once,
because there are several copies of these rows while they are sorted, encoded and uploaded.
"""


@dataclass(frozen=True)
class WrittenBin:
    """The new files of a bin, and the sum of their rows, which equals the sum of the old files' rows."""

    parts: tuple[Part, ...]
    sum: RowSum


@dataclass(frozen=True)
class BinWriter:
    """Rewrites bins of a table."""

    #: The table's place.
    place: Place
    #: The columns that the table's files hold.
    schema: pa.Schema
    #: The columns by which the table is partitioned.
    by: tuple[str, ...]
    #: The folder in `place` for new files.
    folder: str
    #: The folder for rows that are sorted on disk.
    scratch: Path
    #: How much memory sorting may use.
    memory_bytes: int
    #: The size of a new file.
    target_bytes: int
    #: Called after each portion of rows; may raise to stop.
    progress: Callable[[], None]

    @property
    def _group_bytes(self) -> int:
        """The size of a row group in memory. A file has several row groups, each about a third as large on the disk."""
        return min(GROUP_BYTES, self.memory_bytes // SHARE, self.target_bytes)

    def write(self, one: Bin, number: int, columns: list[str], mark: str) -> WrittenBin:
        """Write the rows of a bin, sorted by `columns` if the bin is to be clustered. `number` is the bin's number.

        If this fails, the new files are removed, unless the storage fails, too. Raises `FileGone`, `FileUnreadable`,
        `NoBucket`, `NoPermission`, `NoRoom`, `RewriteDiffers`, `StoreAway`, and the errors of `progress`.
        """
        summer = RowSummer(self.progress)
        rows = self._clustered(one, columns, summer) if one.how == "cluster" else summer.passing(self._read(one))
        name = f"{self.folder}/bin-{number:05d}-{mark}" if one.how == "cluster" else f"{self.folder}/bin-{number:05d}"
        parts: list[Part] = []
        try:
            self._write(rows, name, one, parts)
            self._compare(one, summer.sum, parts)
        except BaseException:
            with suppress(Exception):  # the storage may have failed; a vacuum with `full` finds files that remain
                self.remove(parts)
            raise
        return WrittenBin(tuple(parts), summer.sum)

    def remove(self, parts: "list[Part] | tuple[Part, ...]") -> None:
        """Remove new files that were not committed, and never will be."""
        for part in parts:
            with store_errors(self.place):
                self.place.remove(part.path)

    def _read(self, one: Bin, schema: pa.Schema | None = None) -> Iterator[pa.RecordBatch]:
        for file in one.files:
            yield from read_rows(self.place, file.path, schema or self.schema)

    def _clustered(self, one: Bin, columns: list[str], summer: RowSummer) -> Iterator[pa.RecordBatch]:
        sorter = RowSorter(self.schema, columns, self.scratch, self.memory_bytes // SHARE, self._group_bytes)

        def read(schema: pa.Schema) -> Iterator[pa.RecordBatch]:
            for batch in self._read(one, schema):
                self.progress()
                yield batch

        return sorter.sorted(read, summer.passing)

    def _write(self, rows: Iterator[pa.RecordBatch], name: str, one: Bin, parts: list[Part]) -> None:
        """Write the rows of a bin into files, and append each file to `parts`."""
        groups = row_groups(rows, self._group_bytes)
        full_bytes = self.target_bytes if one.how == "cluster" else None
        texts = dict(zip(self.by, one.partition, strict=True))
        with _room_errors(self.place), store_errors(self.place):
            while (first := next(groups, None)) is not None:
                path = f"{name}-{len(parts):05d}.snappy.parquet"
                parts.append(replace(write_file(self.place, path, first, groups, full_bytes), partition_values=texts))

    def _compare(self, one: Bin, went_in: RowSum, parts: list[Part]) -> None:
        came_out = RowSum()
        for part in parts:
            came_out += row_sum(read_rows(self.place, part.path, self.schema), self.progress)
        if went_in != came_out:
            raise RewriteDiffers(
                f"{len(one.files)} files of {posixpath.dirname(one.files[0].path) or 'the table'} were rewritten "
                f"wrongly: {went_in.rows} rows with the sum {went_in.shown} went in, and {came_out.rows} with "
                f"{came_out.shown} came out. Nothing was committed: look for a cause, such as a damaged disk"
            )


@contextmanager
def _room_errors(place: Place) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise NoRoom(
            f"there is no room for new files ({error}): the table {place.path} needs room for the files that are "
            "rewritten at once, about `target_bytes`; to sort, table and scratch folder need room for a whole partition"
        ) from error
