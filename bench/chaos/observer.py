"""Watches the members all the while: each is asked twice a second, whatever state it is in."""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from bench.chaos.background import Background
from node.cli.local import LocalCluster
from node.client import ApiProblem, Client, Unreachable

LOOK_S: Final = 0.5
PATIENCE_S: Final = 1.0


@dataclass(frozen=True)
class Sight:
    """What one member said at one moment (CLOCK_BOOTTIME). Not `answered`: nothing, and the rest is empty."""

    at_s: float
    node: str
    answered: bool
    leader: str | None = None
    term: int = 0
    quorum: bool = False
    statuses: Mapping[str, str] = field(default_factory=dict)
    ready: bool = False
    """It had caught up, and had a leader and a lease: it could begin what was its own."""


class Observer:
    """A thread for each member, from `start` to `stop`; `sights` grows meanwhile, each member's in order."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.sights: dict[str, list[Sight]] = {name: [] for name in cluster.names}
        self._threads = [
            Background(f"observer of {name}", partial(self._watch, name, cluster.client_of(name, PATIENCE_S)))
            for name in cluster.names
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End."""
        for thread in self._threads:
            thread.over.set()
        for thread in self._threads:
            thread.stop()

    @property
    def found(self) -> list[str]:
        """The threads that ended by an error: nobody saw what they were there for."""
        return [line for thread in self._threads for line in thread.found]

    def _watch(self, name: str, client: Client, over: threading.Event) -> None:
        while not over.wait(LOOK_S):
            self.sights[name].append(look(name, client))


def look(name: str, client: Client) -> Sight:
    """Ask one member."""
    try:
        told = client.get("/v1/cluster")
        ready = _ready(client)
    except (Unreachable, ApiProblem):
        return Sight(now_s(), name, answered=False)
    statuses = {member["id"]: str(member["status"]) for member in told["members"]}
    return Sight(now_s(), name, True, told["leader"], told["term"], told["quorum"], statuses, ready)


def _ready(client: Client) -> bool:
    try:
        client.call("GET", "/readyz")
    except ApiProblem:
        return False
    return True


def now_s() -> float:
    """CLOCK_BOOTTIME, which the work is written down with too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
