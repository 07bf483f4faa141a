"""A checksum of rows that does not depend on their order, or on how they are distributed over files.

It is the sum, modulo 2**64, of a 64-bit hash of each row. The hash of a row is computed from the hashes of its values,
in the order of the columns, by pyarrow's own functions on whole columns. A value is hashed by its bytes, so NaN,
negative zero and all digits of a decimal make a difference. The checksum is the same in each process and on each
machine, and uses no secret: it detects damage, not forgery.

Source: Steele, Lea, Flood: Fast splittable pseudorandom number generators (the function that mixes bits).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

PIECE_ROWS: Final = 16_384
PIECE_BYTES: Final = 1 << 20
"""The most rows, and the most bytes of rows, that are hashed at once. Hashing a byte of text needs about 40 bytes of
memory.
"""

_BITS: Final = (1 << 64) - 1
_BASE: Final = 0x9E3779B97F4A7C15
"""The base of the polynomial in which the hashes of the elements of a text or list are summed: odd, so it has an
inverse.
"""

_INVERSE: Final = pow(_BASE, -1, 1 << 64)
_NULL: Final = 0x6A09E667F3BCC909


@dataclass(frozen=True)
class RowSum:
    """The number of rows, and the sum of their hashes modulo 2**64."""

    rows: int = 0
    total: int = 0

    def __add__(self, other: "RowSum") -> "RowSum":
        """Return the sum of both sets of rows."""
        return RowSum(self.rows + other.rows, (self.total + other.total) & _BITS)

    @property
    def shown(self) -> str:
        """The sum of the hashes in hexadecimal digits."""
        return f"{self.total:016x}"


class RowSummer:
    """Counts and hashes the rows of a stream. `progress` is called after each piece, and may raise to stop."""

    def __init__(self, progress: Callable[[], None] = lambda: None) -> None:
        self.sum = RowSum()
        self._progress = progress

    def passing(self, batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        """Yield the same batches, after adding each one to `sum`. Raises `TypeError` for a type without a hash."""
        for batch in batches:
            for piece in _pieces(batch):
                self.sum += RowSum(piece.num_rows, _total(piece))
                self._progress()
            yield batch


def row_sum(batches: "Iterable[pa.RecordBatch]", progress: Callable[[], None] = lambda: None) -> RowSum:
    """Return the sum of the rows. `progress` is called as in `RowSummer`. Raises `TypeError`."""
    summer = RowSummer(progress)
    for _ in summer.passing(batches):
        pass
    return summer.sum


def _pieces(batch: "pa.RecordBatch") -> "Iterator[pa.RecordBatch]":
    fitting = PIECE_BYTES * batch.num_rows // max(1, batch.nbytes)
    step = max(1, min(PIECE_ROWS, fitting))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def _total(piece: "pa.RecordBatch") -> int:
    from pyarrow import compute

    return int(compute.sum(_hashes(piece.columns, piece.num_rows)).as_py() or 0) & _BITS


def _number(value: int) -> "pa.Scalar":
    import pyarrow as pa

    return pa.scalar(value, pa.uint64())


def _mixed(values: "pa.Array") -> "pa.Array":
    """Mix the bits of the numbers, so that each bit depends on all bits."""
    from pyarrow import compute

    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        values = compute.multiply(
            compute.bit_wise_xor(values, compute.shift_right(values, _number(shift))), _number(factor)
        )
    return compute.bit_wise_xor(values, compute.shift_right(values, _number(31)))


def _hashes(columns: "Iterable[pa.Array]", rows: int) -> "pa.Array":
    """Return the hash of each row of these columns."""
    import pyarrow as pa
    from pyarrow import compute

    found = pa.repeat(_number(1), rows)
    for column in columns:
        found = _mixed(compute.add(compute.multiply(found, _number(_BASE)), _column(column)))
    return found


def _column(array: "pa.Array") -> "pa.Array":
    """Return the hash of each value, as `uint64` without nulls."""
    from pyarrow import compute

    found = compute.if_else(array.is_valid(), _values(array), _number(_NULL))
    return found if found.null_count == 0 else compute.fill_null(found, _number(_NULL))


def _values(array: "pa.Array") -> "pa.Array":
    """Hash as `_column` does, except that the hashes of nulls are arbitrary."""
    import pyarrow as pa
    from pyarrow import types

    kind = array.type
    if types.is_dictionary(kind):
        return _values(array.dictionary_decode())
    if types.is_null(kind):
        return pa.repeat(_number(0), len(array))
    if types.is_boolean(kind):
        return _mixed(array.cast(pa.uint64()))
    if types.is_struct(kind):
        return _hashes(array.flatten(), len(array))
    if types.is_map(kind):
        return _lists(array, array.keys, array.items)
    if types.is_list(kind) or types.is_large_list(kind):
        return _lists(array, array.values)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind):
        return _texts(array.cast(pa.large_binary()))
    if types.is_fixed_size_binary(kind):
        return _texts(array.cast(pa.binary()).cast(pa.large_binary()))
    if types.is_decimal(kind):
        return _texts(array.view(pa.binary(kind.bit_width // 8)).cast(pa.binary()).cast(pa.large_binary()))
    if types.is_primitive(kind) and kind.bit_width in _UNSIGNED:
        return _mixed(array.view(_UNSIGNED[kind.bit_width]()).cast(pa.uint64()))
    raise TypeError(f"rows with a column of type {kind} cannot be compared")


def _uint(width: int) -> "Callable[[], pa.DataType]":
    def made() -> "pa.DataType":
        import pyarrow as pa

        return {8: pa.uint8, 16: pa.uint16, 32: pa.uint32, 64: pa.uint64}[width]()

    return made


_UNSIGNED: Final = {width: _uint(width) for width in (8, 16, 32, 64)}


def _lists(array: "pa.Array", *inner: "pa.Array") -> "pa.Array":
    """Return the hash of each list. `inner` are the arrays of its elements, or of the elements' parts (keys and
    values).
    """
    import pyarrow as pa
    from pyarrow import compute

    offsets = array.offsets.cast(pa.int64())
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    elements = _hashes([part.slice(first, last - first) for part in inner], last - first)
    return _sequences(elements, compute.subtract(offsets, offsets[0]))


def _texts(array: "pa.Array") -> "pa.Array":
    """Return the hash of each value of an array of `large_binary`."""
    import pyarrow as pa
    from pyarrow import compute

    if len(array) == 0:
        return pa.array([], pa.uint64())
    _, starts, data = array.buffers()
    offsets = pa.Array.from_buffers(pa.int64(), len(array) + 1, [None, starts], offset=array.offset)
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    if first == last:
        return _sequences(pa.array([], pa.uint64()), compute.subtract(offsets, offsets[0]))
    content = pa.Array.from_buffers(pa.uint8(), last, [None, data]).slice(first)
    if last - first > 2 * PIECE_BYTES:
        return pa.array([_long_text(one) for one in _each(content, offsets, first)], pa.uint64())
    return _sequences(_byte_hashes().take(content), compute.subtract(offsets, offsets[0]))


def _each(content: "pa.Array", offsets: "pa.Array", first: int) -> "Iterator[pa.Array]":
    ends = offsets.to_pylist()
    for index in range(len(ends) - 1):
        yield content.slice(ends[index] - first, ends[index + 1] - ends[index])


def _long_text(content: "pa.Array") -> int:
    """Return the hash of one value, computed a piece at a time. It equals the hash that `_sequences` would return."""
    from pyarrow import compute

    total = 0
    for start in range(0, len(content), PIECE_BYTES):
        elements = _byte_hashes().take(content.slice(start, PIECE_BYTES))
        part = compute.sum(compute.multiply(elements, _powers(_BASE, PIECE_BYTES).slice(0, len(elements)))).as_py()
        total = (total + part * pow(_BASE, start, 1 << 64)) & _BITS
    return int(_finished(_one(total), _one(len(content)))[0].as_py())


def _one(value: int) -> "pa.Array":
    import pyarrow as pa

    return pa.array([value], pa.uint64())


def _sequences(elements: "pa.Array", offsets: "pa.Array") -> "pa.Array":
    """Return the hash of each sequence, from the hashes of its elements: a polynomial in `_BASE`, computed by running
    sums.
    """
    import pyarrow as pa
    from pyarrow import compute

    size = len(elements)
    terms = compute.multiply(elements, _powers(_BASE, _rounded(size)).slice(0, size))
    sums = pa.concat_arrays([_one(0), compute.cumulative_sum(terms)])
    starts, ends = offsets.slice(0, len(offsets) - 1), offsets.slice(1)
    within = compute.subtract(sums.take(ends), sums.take(starts))
    powers = _powers(_INVERSE, _rounded(size + 1))
    lengths = compute.subtract(ends, starts).cast(pa.uint64())
    return _finished(compute.multiply(within, powers.take(starts)), lengths)


def _finished(polynomial: "pa.Array", lengths: "pa.Array") -> "pa.Array":
    from pyarrow import compute

    return _mixed(compute.add(_mixed(polynomial), lengths))


def _rounded(size: int) -> int:
    """Return the size of the table of powers for this many elements. There are only a few sizes, so that few tables are
    made.
    """
    return max(PIECE_BYTES, 1 << max(0, size - 1).bit_length())


@lru_cache(maxsize=4)
def _powers(base: int, size: int) -> Any:
    """Return the first `size` powers of `base`: 1, `base` and so on."""
    import pyarrow as pa
    from pyarrow import compute

    return pa.concat_arrays([_one(1), compute.cumulative_prod(pa.repeat(_number(base), size - 1))])


@cache
def _byte_hashes() -> Any:
    """Return the hashes of the 256 values of a byte."""
    import pyarrow as pa

    return _mixed(pa.array([(value + 1) * _BASE & _BITS for value in range(256)], pa.uint64()))
