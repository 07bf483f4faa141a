"""The places of a member: how many attempts it runs at once. Values that its members tell, and what they allow."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Places:
    """How many attempts a member runs at once, in all and of bounded kinds. `runs` 0: it has not told."""

    #: How many in all (`ROTA_MAX_RUNS`).
    runs: int = 0
    #: The bound of each kind that has one, as sorted pairs.
    bounds: Pairs = ()
    #: How many of each bound, as sorted pairs.
    most: tuple[tuple[str, int], ...] = ()

    def bound_of(self, kind: str) -> str:
        """Return the bound of a kind; "": it has none."""
        return dict(self.bounds).get(kind, "")


NO_PLACES = Places()


def kept_places(places: int, *, continuous: bool) -> int:
    """How many of these places are kept for continuous work and failovers: a quarter.

    `continuous`: if there is continuous work that could need one, one at least, unless there is only one.

    >>> [kept_places(places, continuous=False) for places in (0, 1, 2, 4, 8)], kept_places(2, continuous=True)
    ([0, 0, 0, 1, 2], 1)
    """
    return max(places // 4, 1 if continuous and places > 1 else 0)


@lru_cache(maxsize=64)
def kept_in_quiet(places: Places) -> Mapping[str, int]:
    """Return how many places a member keeps while no work is continuous: by bound, and in all for "".

    >>> dict(kept_in_quiet(Places(8, bounds=(("etl", "SPARK"),), most=(("SPARK", 2),))))
    {'': 2, 'SPARK': 0}
    """
    most = {"": places.runs, **dict(places.most)}
    return MappingProxyType({name: kept_places(number, continuous=False) for name, number in most.items()})


def for_batch(places: int, held: int, *, continuous: bool) -> int:
    """How many of these places other work may have, while continuous work holds `held` of them.

    >>> [for_batch(8, held, continuous=True) for held in (0, 1, 3)], for_batch(1, 0, continuous=True)
    ([6, 6, 5], 1)
    """
    return max(0, places - max(kept_places(places, continuous=continuous), held))
