"""A fault, and the draw of whom it strikes."""

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from bench.chaos.cluster import HarmedCluster
from node.cli.local import wait_for

Act = Callable[[HarmedCluster], None]

STOP_S: Final = 15.0
"""A node that is asked to do something has done so after this."""

LEADER: Final = "(leader)"
"""Behind the name of a victim that led when it was struck."""


class DidNotStop(Exception):
    """A node that was asked to stop in good order did not."""


@dataclass(frozen=True)
class Fault:
    """`strike` begins it, `mend` ends it `hold_s` later; then all nodes run again. `victims` are those it strikes.

    Both raise `DidNotStop`, and `NotInTime` where the cluster does not do as it is asked.
    """

    kind: str
    said: str
    victims: tuple[str, ...]
    hold_s: float
    strike: Act
    mend: Act


@dataclass(frozen=True)
class Draw:
    """What a fault is drawn from: the nodes that it may strike, the leader (perhaps not one of them), and a source
    of chance of its own, so that a round's faults do not depend on what the rounds before it drew.
    """

    rng: random.Random
    names: tuple[str, ...]
    leader: str

    def victim(self) -> str:
        """Somebody; the leader more often than the others."""
        chance, other = self.rng.random(), self.rng.choice(self.names)
        return self.leader if chance < 0.35 and self.leader in self.names else other

    def two(self) -> tuple[str, str]:
        """Two of them."""
        one = self.victim()
        return one, self.rng.choice([name for name in self.names if name != one])

    def hold_s(self) -> float:
        """A while: often short, as elections and leases are, and sometimes longer than both."""
        return self.rng.choice((self.rng.uniform(0.2, 2.0), self.rng.uniform(2.0, 8.0)))

    def called(self, *names: str) -> str:
        """The nodes' names, the leader marked."""
        return " and ".join(f"{name} {LEADER}" if name == self.leader else name for name in names)


def nothing(_: HarmedCluster) -> None:
    """What there is to mend where the strike was all of it."""


def ask(cluster: HarmedCluster, method: str, target: str, body: Any = None) -> None:
    """Have it done, however often it takes, by whichever node can: some may be cut off. Raises `NotInTime`."""
    turns = itertools.cycle(cluster.names)
    wait_for(
        f"{method} {target}", lambda: cluster.client_of(next(turns), 5).call(method, target, body=body), 2 * STOP_S
    )
