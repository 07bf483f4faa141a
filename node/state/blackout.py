"""A blackout: a time in which nothing new begins. A value."""

from dataclasses import dataclass
from typing import Final

from immutables import Map

from tasks.definition.spec import labels_of


@dataclass(frozen=True, slots=True)
class Blackout:
    """A time in which no new occurrence, retry, child or run by hand begins, of all tasks or of some."""

    #: Its name.
    name: str
    #: When it begins, in microseconds since the epoch.
    from_us: int
    #: When it ends, in microseconds since the epoch.
    until_us: int
    #: The labels that a task must have to be held, as sorted pairs; empty: all tasks are.
    labels: tuple[tuple[str, str], ...] = ()


Blackouts = Map[str, Blackout]
NO_BLACKOUTS: Final[Blackouts] = Map()


def blackout_of(blackouts: Blackouts, packed: bytes, now_us: int) -> Blackout | None:
    """Return the blackout that holds a task with this packed definition now, the one that lasts longest; None: none."""
    found = [one for one in blackouts.values() if one.from_us <= now_us < one.until_us]
    if not found:
        return None
    labels = labels_of(packed).items() if any(one.labels for one in found) else ()
    holding = [one for one in found if set(one.labels) <= set(labels)]
    return max(holding, key=lambda one: (one.until_us, one.name), default=None)
