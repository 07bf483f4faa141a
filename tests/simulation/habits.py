"""What may be asked of a Raft, and how it may behave within its contract."""

from typing import Protocol

from tests.simulation.disk import Entry
from tests.simulation.world import World


class Above(Protocol):
    """What Raft calls, in its thread, with what has been decided."""

    def applied(self, index: int, entry: Entry) -> None:
        """An entry is committed."""

    def restored(self, index: int) -> None:
        """The state is that of a snapshot up to `index`."""

    def new_term(self) -> None:
        """The term that was is left. Told before anything is sent in the new one."""

    def turned(self) -> None:
        """Raft's thread has gone round once."""


class Habits:
    """How this history's Raft behaves within its contract. `fallback_s`: a leader unheard for so long steps down."""

    def __init__(self, world: World) -> None:
        rng = world.rng
        self.prevote = rng.random() < 0.7
        self.fallback_s = rng.choice([1.0, 1.0, 10.0])
        self.snapshot_every = rng.choice([15, 40, 100])
        self.entries_at_once = rng.choice([3, 10, 100])
