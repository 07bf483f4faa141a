"""The order of rows along a Z-order curve, in which rows with similar values in several columns are near each other.

A sample of the rows gives bounds, by which each column's values get ranks, so that about as many rows have each rank.
The bits of the ranks, one bit of each column in turn, are the row's position on the curve (Morton code).
"""

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from pyarrow import compute

BITS_MAX: Final = 12
"""The most bits of a rank. The ranks of all columns share 63 bits."""

_PLACE_MAX: Final = (1 << 63) - 1


class ZOrder:
    """The order of rows by these columns. `sample` has some of the rows; no column is nested."""

    def __init__(self, columns: Sequence[str], sample: pa.Table) -> None:
        self.columns = list(columns)
        self._bits = min(BITS_MAX, 63 // len(self.columns))
        self._bounds = {name: _bounds(sample.column(name), self._bits) for name in self.columns}

    def places(self, rows: pa.RecordBatch) -> pa.Array:
        """Return the position of each row on the curve, an integer."""
        ranks = [_ranks(rows.column(name), self._bounds[name], self._bits) for name in self.columns]
        place = _filled(0, rows.num_rows)
        for bit in reversed(range(self._bits)):
            for rank in ranks:
                one = compute.bit_wise_and(compute.shift_right(rank, _number(bit)), _number(1))
                place = compute.bit_wise_or(compute.shift_left(place, _number(1)), one)
        return place


def portions(places: pa.Array, bounds: pa.Array) -> pa.Array:
    """Return, for each place, the number (from 0) of the portion of the curve that contains it.

    `bounds` are the places where all portions but the first begin, in order.
    """
    bits = len(bounds).bit_length()
    beyond = _filled(_PLACE_MAX, (1 << bits) - 1 - len(bounds))
    return compute.min_element_wise(_ranks(places, pa.concat_arrays([bounds, beyond]), bits), _number(len(bounds)))


def quantiles(values: pa.Array, number: int) -> pa.Array:
    """Return `number` values that divide the sorted values into parts of about the same size; empty if there are no
    values.
    """
    values = values.drop_null()
    ordered = values.take(compute.sort_indices(values))
    size = len(ordered)
    return ordered.take(pa.array([(at + 1) * size // (number + 1) for at in range(number)] if size else [], pa.int64()))


def _bounds(column: Any, bits: int) -> pa.Array:
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(values, pa.ChunkedArray):  # pyarrow leaves an empty column in chunks
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    return quantiles(values, (1 << bits) - 1)


def _ranks(column: pa.Array, bounds: pa.Array, bits: int) -> pa.Array:
    """Return, for each value, the number of bounds that are not greater; 0 for a null. There are 2**bits - 1 bounds."""
    found = _filled(0, len(column))
    if len(bounds) == 0:
        return found
    for bit in reversed(range(bits)):
        step = 1 << bit
        probe = bounds.take(compute.add(found, _number(step - 1)))
        reached = compute.fill_null(compute.greater_equal(column, probe), False)
        found = compute.if_else(reached, compute.add(found, _number(step)), found)
    return found


def _number(value: int) -> pa.Scalar:
    return pa.scalar(value, pa.int64())


def _filled(value: int, size: int) -> pa.Array:
    return pa.repeat(_number(value), size)
