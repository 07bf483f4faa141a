"""One seeded history of 60 s: faults over a cluster of real leases and detectors, judged by invariant 4.

Replay one:  .venv/bin/python -m tests.simulation.history --seed 7 --members 3 [--without echo]
"""

import argparse
import random
from collections.abc import Callable
from dataclasses import dataclass

from node.liveness.detector import Detector
from node.liveness.message import Beat
from node.liveness.view import View
from tests.simulation.member_model import Cluster, MemberModel, Rules
from tests.simulation.raft_model import Disk
from tests.simulation.work_model import Bench, TwoAtOnceError
from tests.simulation.world import Lane, World

LENGTH_S = 60.0
LANES: tuple[Lane, ...] = ("raft", "beat", "duty")


class ByArrival(Detector):
    """Broken: a heartbeat's arrival, not its echo, is the evidence of a majority."""

    def _evidence_s(self, beat: Beat, now_s: float) -> float | None:
        return now_s


class WithoutElectionWait(Detector):
    """Broken: a new leader takes whom it has not heard for silent at once."""

    def look(self, view: View, now_s: float) -> None:
        before = self._view
        super().look(view, now_s)
        if view.leading and (before is None or not before.leading or before.term != view.term):
            self._elected_s -= 1e6
            for watch in self._watches.values():
                watch.heard_s -= 1e6


class WithoutLead(Detector):
    """Broken: a new leader grants and judges before its own lead entry is applied."""

    def _lead_applied(self, view: View) -> bool:
        return True


BROKEN = {
    "echo": Rules(detector=ByArrival),
    "election-wait": Rules(detector=WithoutElectionWait),
    "lead": Rules(detector=WithoutLead, check_lead=False),
    "period": Rules(check_period=False),
    "join": Rules(check_join=False),
}


@dataclass(frozen=True)
class Told:
    """How a history went."""

    seed: int
    members: int
    violation: str | None
    starts: int
    freezes: int
    thaws: int
    verdicts: int
    gone: int
    given_back: int


def tell(seed: int, members: int, rules: Rules | None = None) -> Told:
    """Runs one history."""
    rng = random.Random(seed * 10 + members)
    names = [f"n{number}" for number in range(members)]
    world = World(rng, names)
    bench = Bench(world)
    cluster = Cluster(world, rules or Rules(), bench, names, [str(number) for number in range(2 * members)])
    disks = {name: Disk() for name in names}

    def start(name: str) -> None:
        bench.swept(name)
        world.machines[name].boot += 1
        world.machines[name].running = True
        world.machines[name].stopped_until_s.clear()
        MemberModel(cluster, name, disks[name])

    for name in names:
        start(name)
    faults = Faults(cluster, start)
    world.at(4.0, faults.strike)
    violation = None
    try:
        world.run(LENGTH_S)
    except TwoAtOnceError as broken:
        violation = str(broken)
    counts = (bench.starts, bench.freezes, bench.thaws, bench.verdicts, bench.gone, bench.given_back)
    return Told(seed, members, violation, *counts)


class Faults:
    """What befalls a cluster: one fault after another, often several at once."""

    def __init__(self, cluster: Cluster, start: Callable[[str], None]) -> None:
        self._cluster, self._world, self._start = cluster, cluster.world, start
        self._pace_s = self._world.rng.choice([0.7, 1.5, 3.0])

    def strike(self) -> None:
        """One fault, and the time of the next."""
        rng = self._world.rng
        kinds = [
            self._partition,
            self._one_way,
            self._pause,
            self._crash,
            self._stall,
            self._apart,
            self._slow,
            self._slow,
        ]
        rng.choice(kinds)(
            rng.choice(self._cluster.names), rng.choice([0.3, 1.0, 2.0, 3.0, 4.0, 6.0]) * rng.uniform(0.8, 1.2)
        )
        self._world.at(self._world.now_s + rng.expovariate(1 / self._pace_s), self.strike)

    def _partition(self, _name: str, for_s: float) -> None:
        """Two sides that do not reach each other."""
        names = self._world.rng.sample(self._cluster.names, len(self._cluster.names))
        side = self._world.rng.randrange(1, len(names))
        for one in names[:side]:
            for other in names[side:]:
                self._world.cut(one, other, for_s)
                self._world.cut(other, one, for_s)

    def _one_way(self, name: str, for_s: float) -> None:
        """What the member says, or what it is told, gets lost."""
        outward = self._world.rng.random() < 0.5
        for other in self._cluster.names:
            if other != name:
                self._world.cut(*((name, other) if outward else (other, name)), for_s)

    def _apart(self, name: str, for_s: float) -> None:
        """Two members do not reach each other; the others reach both."""
        other = self._world.rng.choice([other for other in self._cluster.names if other != name])
        self._world.cut(name, other, for_s)
        self._world.cut(other, name, for_s)

    def _pause(self, name: str, for_s: float) -> None:
        """SIGSTOP; its supervisors are other processes."""
        self._world.stop(name, LANES, for_s)

    def _stall(self, name: str, for_s: float) -> None:
        """One thread waits, for the disk or for the interpreter, and the others go on."""
        self._world.stop(name, (self._world.rng.choice(LANES),), for_s)

    def _slow(self, name: str, for_s: float) -> None:
        """What goes to and from the member is under way for long: all of it, or one kind."""
        rng, lanes = self._world.rng, LANES
        by_s = rng.uniform(0.3, 4.0)
        for lane in rng.choice([lanes, *((lane,) for lane in lanes)]):
            for other in self._cluster.names:
                if other != name:
                    self._world.slow_down(name, other, lane, by_s, for_s)
                    self._world.slow_down(other, name, lane, by_s, for_s)

    def _crash(self, name: str, for_s: float) -> None:
        """kill -9, also of one that is paused, and a start later."""
        world, cluster = self._world, self._cluster
        machine = world.machines[name]
        if not machine.running:
            return
        machine.running = False
        link = cluster.members[name].link
        cluster.bench.orphaned(name)
        for other in cluster.names:
            if other != name:
                self._tell_end(name, other, link)
        world.at(world.now_s + for_s, lambda: self._start(name))

    def _tell_end(self, name: str, other: str, link: int) -> None:
        world, members = self._world, self._cluster.members
        world.send(name, other, "beat", lambda: members[other].evidence.ended(link, world.clock_s(other)))


def replay(told: Told, without: str | None = None) -> str:
    """The one command that tells it again."""
    rule = f" --without {without}" if without else ""
    return f".venv/bin/python -m tests.simulation.history --seed {told.seed} --members {told.members}{rule}"


def main() -> None:
    """One history, or many, from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--members", type=int, choices=(3, 5), default=3)
    parser.add_argument("--count", type=int, default=1, help="this many seeds, from --seed on")
    parser.add_argument("--without", choices=sorted(BROKEN))
    asked = parser.parse_args()
    rules = BROKEN[asked.without] if asked.without else Rules()
    for seed in range(asked.seed, asked.seed + asked.count):
        told = tell(seed, asked.members, rules)
        if told.violation or asked.count == 1:
            print(told)


if __name__ == "__main__":
    main()
