"""Cuts files, or values made of files, into portions by their bytes and their number. Pure."""

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar


class Sized(Protocol):
    """Something that has a size."""

    @property
    def size_bytes(self) -> int:
        """The size, in bytes."""
        ...


S = TypeVar("S", bound=Sized)


def packed(items: Iterable[S], bytes_max: int, items_max: int | None = None) -> Iterator[tuple[S, ...]]:
    """Pack the items, in their order, into as few portions as both limits allow.

    An item of more than `bytes_max` is a portion of its own. The end of a portion depends only on its own items and the
    next item, so packing can start again after any portion, with the same result for the other items.
    """
    held: list[S] = []
    size_bytes = 0
    for item in items:
        if held and (len(held) == items_max or size_bytes + item.size_bytes > bytes_max):
            yield tuple(held)
            held, size_bytes = [], 0
        held.append(item)
        size_bytes += item.size_bytes
    if held:
        yield tuple(held)
