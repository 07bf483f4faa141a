"""`list`, `set`, `dict` and `sorted` in chunks, between which other threads can run.

A single call such as `list(map(...))` over 100,000 tasks holds the interpreter's lock for tens of milliseconds, and
delays the event loop and the heartbeats for as long.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import chain, islice
from typing import Any, Final, TypeVar

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

CHUNK: Final = 8192
SAMPLED: Final = 32
"""The number of values sampled from each chunk. The samples decide where all chunks are split."""


def list_in_chunks(items: Iterable[T], chunk: int = CHUNK) -> list[T]:
    """Like `list(items)`, but takes `chunk` items at a time."""
    made: list[T] = []
    rest = iter(items)
    while piece := list(islice(rest, chunk)):
        made += piece
    return made


def set_in_chunks(items: Iterable[T], chunk: int = CHUNK) -> set[T]:
    """Like `set(items)`, but takes `chunk` items at a time."""
    made: set[T] = set()
    rest = iter(items)
    while piece := list(islice(rest, chunk)):
        made.update(piece)
    return made


def dict_in_chunks(items: Iterable[tuple[K, V]], chunk: int = CHUNK) -> dict[K, V]:
    """Like `dict(items)`, but takes `chunk` items at a time."""
    made: dict[K, V] = {}
    rest = iter(items)
    while piece := list(islice(rest, chunk)):
        made.update(piece)
    return made


def sorted_in_chunks(
    items: Iterable[T],
    key: Callable[[T], Any] | None = None,
    chunk: int = CHUNK,
    sampled: int = SAMPLED,
    on_range: Callable[[int], object] = lambda _length: None,
) -> list[T]:
    """Like `sorted`, by sample sort: split sorted chunks at the same values, and sort each range on its own.

    `sampled` is the number of samples from each chunk; `on_range` is called with the length of each sorted range.

    Frazer and McKellar 1970, "Samplesort: A Sampling Approach to Minimal Storage Tree Sorting". Merging all chunks in
    one call, as `sorted` does, took 50 ms for 100,000 items.

    >>> sorted_in_chunks("cab"), sorted_in_chunks([(1, "b"), (0, "c")], key=lambda pair: pair[0])
    (['a', 'b', 'c'], [(0, 'c'), (1, 'b')])
    """
    pieces: list[list[T]] = []
    rest = iter(items)
    while piece := list(islice(rest, chunk)):
        piece.sort(key=key)
        pieces.append(piece)
    keyed = key or _itself
    sample = sorted(keyed(item) for piece in pieces for item in piece[:: chunk // sampled])
    made: list[T] = []
    begun = [0] * len(pieces)
    for cut in sample[sampled::sampled]:
        ends = [bisect_left(piece, cut, lo, key=key) for piece, lo in zip(pieces, begun, strict=True)]
        made += (part := _together(pieces, begun, ends, key))
        on_range(len(part))
        begun = ends
    part = _together(pieces, begun, [len(piece) for piece in pieces], key)
    on_range(len(part))
    return made + part


def _together(pieces: list[list[T]], begun: list[int], ends: list[int], key: Callable[[T], Any] | None) -> list[T]:
    """Sort the items from `begun` to `ends` of all chunks. Stable: equal items keep the order of the chunks."""
    made = list(chain.from_iterable(piece[lo:hi] for piece, lo, hi in zip(pieces, begun, ends, strict=True)))
    made.sort(key=key)
    return made


def _itself(item: Any) -> Any:
    return item
