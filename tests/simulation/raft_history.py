"""A random life of a Raft cluster whose members lose what they had on their disks: what is committed must stay.

The members are the product's own (`testkit.raft.wired`). Faults: links that are cut, delayed, and empty themselves
late; members that stand still, die, and come back with their folder, with a damaged one, or with none. Never more than
a minority has to recover at a time. Checked after every entry that is applied: all members apply the same, in the same
order, and no term has two leaders; at the end: all come to hold the same, and vote again.
"""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

from node.raft.log.log_store import JOURNAL, SNAPSHOT
from node.raft.ports import RaftTiming
from testkit.raft.wired import Wired, World

TIMING = RaftTiming(log_entries=30)


class History:
    """One life. `seed` decides all of it. Raises AssertionError."""

    def __init__(self, folder: Path, seed: int, members: int, steps: int) -> None:
        self.rng = random.Random(seed)
        self.steps = steps
        self.harm = self.rng.choice((1, 3, 9))
        self.world = World(folder, "abcde"[:members], TIMING, seed)
        self.world.on_apply = self._applied
        self.committed: list[bytes] = []
        self.leaders: dict[int, str] = {}
        self.paused: set[str] = set()
        self.losses = 0
        self.proposed = 0

    def run(self) -> None:
        """Live it."""
        with self.world.clock():
            self.world.start()
            self.world.connect_all()
            for _ in range(self.steps):
                self._step()
            self._heal()

    # -- what happens

    def _step(self) -> None:
        actions: list[tuple[float, Callable[[], None]]] = [
            (40, self._tick),
            (60, self._deliver),
            (8, self._propose),
            (0.3 * self.harm, self._cut),
            (3.0, self._connect),
            (0.4 * self.harm, self._pause),
            (1.0, self._wake),
            (0.25 * self.harm, self._crash),
            (1.0 * self.harm, self._restart),
        ]
        weights, does = zip(*actions, strict=True)
        self.rng.choices(does, weights)[0]()
        self._check_leaders()

    def _awake(self) -> list[str]:
        return sorted(set(self.world.running) - self.paused)

    def _pair(self) -> tuple[str, str]:
        one, other = self.rng.sample(self.world.names, 2)
        return one, other

    def _tick(self) -> None:
        self.world.now_s += self.rng.choice((0.001, 0.02, 0.1))
        if awake := self._awake():
            self.world.running[self.rng.choice(awake)].tick()

    def _deliver(self) -> None:
        full = [link for link, queue in sorted(self.world.links.items()) if queue and link[1] not in self.paused]
        if full:
            link = self.rng.choice(full)
            for _ in range(self.rng.choice((1, 1, 5, 50))):
                self.world.deliver(*link)

    def _propose(self) -> None:
        if awake := self._awake():
            self.proposed += 1
            self.world.running[self.rng.choice(awake)].consensus.put(b"%d" % self.proposed)

    def _cut(self) -> None:
        self.world.cut(*self._pair())

    def _connect(self) -> None:
        one, other = self._pair()
        if not self.paused & {one, other} and not (
            self.world.connected(one, other) and self.world.connected(other, one)
        ):
            self.world.connect(one, other)

    def _pause(self) -> None:
        self.paused.add(self.rng.choice(self.world.names))

    def _wake(self) -> None:
        if self.paused:
            self.paused.discard(self.rng.choice(sorted(self.paused)))

    def _crash(self) -> None:
        running = sorted(self.world.running)
        if not running:
            return
        name = self.rng.choice(running)
        recovering = {each for each, member in self.world.running.items() if not member.consensus.recovery.votes}
        recovering |= set(self.world.names) - set(running)
        self.world.crash(name)
        if self.committed and len(recovering | {name}) <= (len(self.world.names) - 1) // 2:
            self._lose(self.world.folder / name)

    def _lose(self, folder: Path) -> None:
        self.losses += 1
        what = self.rng.choice(("journal", "snapshot", "both", "all"))
        if what in ("journal", "both"):
            (folder / JOURNAL).write_bytes(b"")
        if what in ("snapshot", "both") and (folder / SNAPSHOT).exists():
            (folder / SNAPSHOT).write_bytes(b"no snapshot")
        if what == "all":
            shutil.rmtree(folder)

    def _restart(self) -> None:
        if down := sorted(set(self.world.names) - set(self.world.running)):
            name = self.rng.choice(down)
            self.paused.discard(name)
            self.world.start(name)

    # -- what must hold

    def _applied(self, member: Wired) -> None:
        at = len(member.applied) - 1
        if at == len(self.committed):
            self.committed.append(member.applied[at])
        assert member.applied[at] == self.committed[at], f"{member.me} applied another entry at {at}"

    def _check_leaders(self) -> None:
        for name, member in self.world.running.items():
            if member.consensus.is_leader:
                term = member.consensus.raftCurrentTerm
                assert self.leaders.setdefault(term, name) == name, f"two leaders in term {term}"

    def _heal(self) -> None:
        self.paused.clear()
        for name in sorted(set(self.world.names) - set(self.world.running)):
            self.world.start(name)
        self.world.connect_all()
        members = self.world.running.values()

        def well() -> bool:
            self._check_leaders()
            leader = self.world.leader()
            if leader is not None and b"last" not in self.committed:
                leader.consensus.put(b"last")
            whole = all(member.consensus.recovery.votes and member.applied == self.committed for member in members)
            return whole and b"last" in self.committed

        self.world.until(well, 60)
