"""Writes a member's log to its disk, which takes a while."""

from collections.abc import Callable

from tests.simulation.disk import Disk
from tests.simulation.world import World


class DiskWriter:
    """Makes durable what `disk` has been given, one sync at a time. `written` is called after each."""

    def __init__(self, me: str, disk: Disk, world: World, written: Callable[[], None]) -> None:
        self._me, self._disk, self._world, self._written = me, disk, world, written
        self._slow_until_s = self._slow_s = 0.0
        self._writing = False

    def slow(self, for_s: float, by_s: float) -> None:
        """What is written from now on takes so much longer to be durable."""
        self._slow_until_s, self._slow_s = self._world.now_s + for_s, by_s

    def write(self) -> None:
        """Have the disk keep what it has been given; entries that come meanwhile share the next sync."""
        disk, world = self._disk, self._world
        if self._writing or disk.durable >= disk.last:
            return
        self._writing = True
        upto, generation = disk.last, disk.generation

        def written() -> None:
            self._writing = False
            if disk.generation == generation:
                disk.durable = max(disk.durable, upto)
                self._written()
            self.write()

        slow_s = self._slow_s if world.now_s < self._slow_until_s else 0.0
        world.within(self._me, "raft", world.rng.uniform(0.0002, 0.003) + slow_s, written)
