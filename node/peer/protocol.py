"""What members say to one another over HTTP, as values: headers, rosters, progress, and what can go wrong."""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from node.state.entries import Seed
from node.state.value import State

CLUSTER: Final = "Rota-Cluster"
"""The header with which a member says which cluster it is of, asking and answering."""

MEMBER: Final = "Rota-Member"
"""The header with which it says who it is, asking."""


class PeerAway(Exception):
    """A member does not answer, or not as it should. `member` is its id."""

    def __init__(self, member: str, why: str) -> None:
        super().__init__(f"{member} does not answer: {why}")
        self.member = member


class NoSuchLog(Exception):
    """The member that ran the attempt has no log of it (any more)."""


@dataclass(frozen=True, slots=True)
class Roster:
    """The members, as one of them knows them at `index`. `cluster_id` is empty where there is no cluster yet."""

    cluster_id: str
    index: int
    members: tuple[Seed, ...]


def roster_of(state: State) -> Roster:
    """The members of a state, by slot."""
    rows = [state.members[name] for name in state.slots if name is not None]
    seeds = tuple(Seed(row.id, row.host, row.raft_port, row.http_port) for row in rows)
    return Roster(state.cluster_id, state.index, seeds)


def read_roster(answer: Any) -> Roster:
    """A roster out of JSON. Raises `KeyError`, `TypeError` or `ValueError`."""
    seeds = [
        Seed(str(one["id"]), str(one["host"]), int(one["raft_port"]), int(one["http_port"]))
        for one in answer["members"]
    ]
    return Roster(str(answer["cluster_id"]), int(answer["index"]), tuple(seeds))


class RunProgress(NamedTuple):
    """What the member that runs an attempt knows of it: how far it is by its last word, and since when it is frozen.

    `done` None: it has not said how far it is; `total` None: it cannot tell. An attempt is frozen while its member has
    no lease.
    """

    done: float | None = None
    total: float | None = None
    unit: str = ""
    frozen_since_us: int | None = None


def url_of(host: str, port: int) -> str:
    """Where a member answers.

    >>> url_of("::1", 8101)
    'http://[::1]:8101'
    """
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
