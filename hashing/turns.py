"""Long work of the interpreter's own, cut into pieces: between two of them other threads have their turn.

A call such as `list(map(...))` over 100,000 tasks holds the interpreter's lock for tens of milliseconds, whoever waits
for it: the event loop, the heartbeats.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final, TypeVar

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

PIECE: Final = 8192


def list_in_turns(items: Iterable[T]) -> list[T]:
    """As `list`."""
    made: list[T] = []
    rest = iter(items)
    while piece := list(islice(rest, PIECE)):
        made += piece
    return made


def set_in_turns(items: Iterable[T]) -> set[T]:
    """As `set`."""
    made: set[T] = set()
    rest = iter(items)
    while piece := list(islice(rest, PIECE)):
        made.update(piece)
    return made


def dict_in_turns(items: Iterable[tuple[K, V]]) -> dict[K, V]:
    """As `dict`."""
    made: dict[K, V] = {}
    rest = iter(items)
    while piece := list(islice(rest, PIECE)):
        made.update(piece)
    return made


def sorted_in_turns(items: Iterable[T], key: Callable[[T], Any] | None = None) -> list[T]:
    """As `sorted`: what is left to the end is the merging of sorted pieces.

    >>> sorted_in_turns("cab"), sorted_in_turns([(1, "b"), (0, "c")], key=lambda pair: pair[0])
    (['a', 'b', 'c'], [(0, 'c'), (1, 'b')])
    """
    made: list[T] = []
    rest = iter(items)
    while piece := list(islice(rest, PIECE)):
        piece.sort(key=key)
        made += piece
    if len(made) > PIECE:
        made.sort(key=key)
    return made
