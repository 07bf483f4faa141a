"""What a task takes of the cluster's pools: `uses` while a run works, `rate` when one starts, and its `priority`."""

from functools import lru_cache
from typing import Annotated, Final, NamedTuple

import msgpack
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

POOL_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$"
CAPACITY_MAX: Final = 1_000_000
USES_MAX: Final = 16
"""The most pools that one task uses."""

PER_MIN_MAX: Final = 6000
"""The most starts a minute that a rate may allow: 10 ms apart. An entry of the cluster takes about as long."""

PRIORITY_MAX: Final = 100
PRIORITY: Final = 50
"""The priority of a task that names none."""

PoolName = Annotated[str, StringConstraints(pattern=POOL_PATTERN)]
"""A pool's name: 1 to 128 letters, digits, `.`, `_`, `:`, `/` and `-`, of which the first is alphanumeric."""

Uses = Annotated[dict[PoolName, Annotated[int, Field(strict=True, ge=1, le=CAPACITY_MAX)]], Field(max_length=USES_MAX)]


class StartRate(BaseModel):
    """How often runs may start in a pool."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pool: PoolName = Field(description="The pool: all runs that have a rate in it start one after the other")
    per_min: Annotated[int, Field(strict=True, ge=1, le=PER_MIN_MAX)] = Field(
        description="How many may start a minute: after a run of this task, the next start in the pool is allowed "
        "60 s / `per_min` later. A retry and a failover are starts, too"
    )


class StartPace(NamedTuple):
    """A rate: the pool, and how long after a start the next one in the pool is allowed, in microseconds.

    >>> StartPace.of("api", 30)
    StartPace(pool='api', apart_us=2000000)
    """

    pool: str
    apart_us: int

    @classmethod
    def of(cls, pool: str, per_min: int) -> "StartPace":
        """Return the pace of at most `per_min` starts a minute: the time between two is rounded up to a microsecond."""
        return cls(pool, -(-60_000_000 // per_min))


class PoolNeeds(NamedTuple):
    """What a run uses: pairs of a pool and how much of it, sorted; its priority, 0 to 100; and its pace, if any."""

    uses: tuple[tuple[str, int], ...]
    priority: int
    pace: StartPace | None = None

    @property
    def pools(self) -> tuple[str, ...]:
        """The names of all pools that it uses, or in which it has a rate."""
        names = tuple(name for name, _ in self.uses)
        return names if self.pace is None or self.pace.pool in names else (*names, self.pace.pool)


_USES: Final = bytes(msgpack.packb("uses"))
_RATE: Final = bytes(msgpack.packb("rate"))


def pool_needs(packed: bytes) -> PoolNeeds | None:
    """Return what a spec that `Spec.pack` packed takes of pools, without reading the whole spec. None: nothing.

    It costs next to nothing for a spec that takes nothing.

    >>> from tasks.definition.spec import Spec
    >>> pool_needs(Spec(name="a", kind="command", uses={"dumps": 1}, priority=90).pack())
    PoolNeeds(uses=(('dumps', 1),), priority=90, pace=None)
    >>> pool_needs(Spec(name="a", kind="command", rate={"pool": "api", "per_min": 120}).pack())
    PoolNeeds(uses=(), priority=50, pace=StartPace(pool='api', apart_us=500000))
    """
    return _needs(packed) if _USES in packed or _RATE in packed else None


@lru_cache(maxsize=4096)
def _needs(packed: bytes) -> PoolNeeds | None:
    raw = msgpack.unpackb(packed)
    uses, rate = raw.get("uses"), raw.get("rate")
    if not uses and not rate:
        return None
    pace = StartPace.of(rate["pool"], rate["per_min"]) if rate else None
    return PoolNeeds(tuple(sorted((uses or {}).items())), raw.get("priority", PRIORITY), pace)
