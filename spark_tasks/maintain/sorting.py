"""Sorts more rows than fit into memory: divides them into portions of a Z-order curve, one file each, and sorts each
portion.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import compute

from spark_tasks.maintain.errors import NoRoom
from spark_tasks.maintain.z_order import ZOrder, portions, quantiles

SAMPLE_ROWS: Final = 100_000
"""About how many rows are sampled to determine the order."""

PORTIONS_MAX: Final = 256
"""The most portions, each of which is an open file for a while."""

PLACE: Final = "rota~place"
"""The name of a temporary column with a row's position on the curve."""

Read = Callable[[pa.Schema], Iterator[pa.RecordBatch]]
"""Reads the rows to be sorted, with the given columns."""

Pass = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""Yields the given rows unchanged, and may process each of them, for example sum them."""


class RowSorter:
    """Sorts rows by `columns` along a Z-order curve, with about `bound_bytes` of them in memory.

    `schema` are the columns of the rows. Rows that do not fit into memory are written to files in `scratch`. Sorted
    rows are yielded in batches of at most `batch_bytes`.
    """

    def __init__(
        self, schema: pa.Schema, columns: Sequence[str], scratch: Path, bound_bytes: int, batch_bytes: int
    ) -> None:
        self.schema = schema
        self.columns = list(columns)
        self.scratch = scratch
        self.bound_bytes = bound_bytes
        self.batch_bytes = batch_bytes

    def sorted(self, read: Read, passing: Pass) -> Iterator[pa.RecordBatch]:
        """Yield the rows that `read` reads, sorted. `passing` receives each of them once, in the order in which they
        are read.

        Raises `NoRoom`, `OSError`, and the errors of `read` and `passing`.
        """
        sample, rows = self._sample(read)
        order = ZOrder(self.columns, sample)
        size_bytes = self._size_bytes(read, rows)
        self._check_room(size_bytes)
        number = min(PORTIONS_MAX, 1 + int(1.3 * size_bytes / self.bound_bytes))
        places = [order.places(batch) for batch in sample.to_batches()]
        bounds = quantiles(pa.concat_arrays(places), number - 1) if places else pa.array([], pa.int64())
        files = [self.scratch / f"portion-{index:03d}.arrow" for index in range(len(bounds) + 1)]
        try:
            self._spill(passing(read(self.schema)), order, bounds, files)
            for file in files:
                yield from self._sorted(file)
                file.unlink()
        finally:
            for file in files:
                file.unlink(missing_ok=True)

    def _sample(self, read: Read) -> tuple[pa.Table, int]:
        """Return a sample (every n-th row, with the columns to sort by), and the number of all rows."""
        narrow = pa.schema([self.schema.field(name) for name in self.columns])
        sample, step, rows = narrow.empty_table(), 1, 0
        for batch in read(narrow):
            wanted = pa.array(range(-rows % step, batch.num_rows, step), pa.int64())
            sample = pa.concat_tables([sample, pa.Table.from_batches([batch.take(wanted)])])
            rows += batch.num_rows
            while sample.num_rows >= 2 * SAMPLE_ROWS:
                step *= 2
                sample = sample.take(pa.array(range(0, sample.num_rows, 2), pa.int64())).combine_chunks()
        return sample, rows

    def _size_bytes(self, read: Read, rows: int) -> int:
        """Estimate, from the first rows, how many bytes of memory all rows would need."""
        seen = size_bytes = 0
        for batch in read(self.schema):
            seen, size_bytes = seen + batch.num_rows, size_bytes + batch.nbytes
            if seen >= SAMPLE_ROWS or size_bytes >= self.bound_bytes:
                break
        return size_bytes * rows // seen if seen else 0

    def _check_room(self, size_bytes: int) -> None:
        free = shutil.disk_usage(self.scratch).free
        if size_bytes > free:
            raise NoRoom(
                f"sorting needs up to {size_bytes:,} bytes in the scratch folder {self.scratch}, which has {free:,}: "
                "make room, or partition the table, as partitions are sorted one by one"
            )

    def _spill(self, batches: Iterator[pa.RecordBatch], order: ZOrder, bounds: pa.Array, files: Sequence[Path]) -> None:
        """Write the rows into the files of their portions."""
        wider = self.schema.append(pa.field(PLACE, pa.int64()))
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        held: list[list[pa.RecordBatch]] = [[] for _ in files]
        held_bytes = 0
        with ExitStack() as opened:
            out: list[Any] = [
                opened.enter_context(pa.ipc.new_stream(opened.enter_context(file.open("wb")), wider, options=options))
                for file in files
            ]

            def flush() -> None:
                for writer, pieces in zip(out, held, strict=True):
                    if pieces:
                        writer.write_table(pa.Table.from_batches(pieces, wider).combine_chunks())
                        pieces.clear()

            for batch in batches:
                places = order.places(batch)
                placed = pa.RecordBatch.from_arrays([*batch.columns, places], schema=wider)
                for index, piece in _divided(placed, portions(places, bounds)):
                    held[index].append(piece)
                held_bytes += placed.nbytes
                if held_bytes >= self.bound_bytes:
                    flush()
                    held_bytes = 0
            flush()

    def _sorted(self, file: Path) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a portion, sorted; or in several sorted runs if the portion does not fit into memory."""
        with file.open("rb") as opened, pa.ipc.open_stream(opened) as stream:
            held: list[pa.RecordBatch] = []
            held_bytes = 0
            for batch in stream:
                held.append(batch)
                held_bytes += batch.nbytes
                if held_bytes >= self.bound_bytes:
                    yield from self._in_order(held)
                    held, held_bytes = [], 0
            if held:
                yield from self._in_order(held)

    def _in_order(self, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = pa.Table.from_batches(batches).combine_chunks()
        # Rows at the same position on the curve are sorted by the columns themselves.
        keys = [(name, "ascending") for name in (PLACE, *self.columns)]
        order = compute.sort_indices(table.select([PLACE, *self.columns]), sort_keys=keys)
        rows = max(1, self.batch_bytes * table.num_rows // max(1, table.nbytes))
        yield from table.select(self.schema.names).take(order).to_batches(max_chunksize=rows)


def _divided(batch: pa.RecordBatch, numbers: pa.Array) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Group the rows by the numbers of their portions. Yields each number once, with its rows."""
    order = compute.sort_indices(numbers)
    batch, numbers = batch.take(order), numbers.take(order)
    runs = compute.run_end_encode(numbers, run_end_type=pa.int64())
    begin = 0
    for number, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield number, batch.slice(begin, end - begin)
        begin = end
