"""What a task uses of the cluster's pools while a run of it works: `uses` and `priority` in its definition."""

from functools import lru_cache
from typing import Annotated, Final, NamedTuple

import msgpack
from pydantic import Field, StringConstraints

POOL_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$"
CAPACITY_MAX: Final = 1_000_000
USES_MAX: Final = 16
"""The most pools that one task uses."""

PRIORITY_MAX: Final = 100
PRIORITY: Final = 50
"""The priority of a task that names none."""

PoolName = Annotated[str, StringConstraints(pattern=POOL_PATTERN)]
"""A pool's name: 1 to 128 letters, digits, `.`, `_`, `:`, `/` and `-`, of which the first is alphanumeric."""

Uses = Annotated[dict[PoolName, Annotated[int, Field(strict=True, ge=1, le=CAPACITY_MAX)]], Field(max_length=USES_MAX)]


class PoolNeeds(NamedTuple):
    """What a run uses: pairs of a pool and how much of it, sorted; and its priority, from 0 to 100."""

    uses: tuple[tuple[str, int], ...]
    priority: int


_USES: Final = bytes(msgpack.packb("uses"))


def pool_needs(packed: bytes) -> PoolNeeds | None:
    """Return what a spec that `Spec.pack` packed uses of pools, without reading the whole spec. None: nothing.

    It costs next to nothing for a spec that uses none.

    >>> from tasks.definition.spec import Spec
    >>> pool_needs(Spec(name="a", kind="command", uses={"dumps": 1}, priority=90).pack())
    PoolNeeds(uses=(('dumps', 1),), priority=90)
    """
    return _needs(packed) if _USES in packed else None


@lru_cache(maxsize=4096)
def _needs(packed: bytes) -> PoolNeeds | None:
    raw = msgpack.unpackb(packed)
    uses = raw.get("uses")
    return PoolNeeds(tuple(sorted(uses.items())), raw.get("priority", PRIORITY)) if uses else None
