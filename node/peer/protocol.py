"""The values that members send one another over HTTP: headers, rosters, progress, and errors."""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from node.duty.hold import Hold
from node.peer.vitals import MemberVitals, read_vitals
from node.state.entries import Seed
from node.state.value import State

CLUSTER: Final = "Rota-Cluster"
"""The header of requests and responses with the id of the sender's cluster."""

MEMBER: Final = "Rota-Member"
"""The request header with the id of the sender."""


class PeerAway(Exception):
    """A member does not answer, or its answer is invalid. `member` is its id."""

    def __init__(self, member: str, why: str) -> None:
        super().__init__(f"{member} does not answer: {why}")
        self.member = member


class NoSuchLog(Exception):
    """The member that ran the attempt has no log of it, or has deleted the log."""


@dataclass(frozen=True, slots=True)
class Roster:
    """The members, as one of them knows them at `index`. `cluster_id` is empty before the cluster is founded.

    `vitals` are the vitals of the member that answered; None if it sent none.
    """

    cluster_id: str
    index: int
    members: tuple[Seed, ...]
    vitals: MemberVitals | None = None


def roster_of(state: State) -> Roster:
    """Return the members of a state, by slot."""
    rows = [state.members[name] for name in state.slots if name is not None]
    seeds = tuple(Seed(row.id, row.host, row.raft_port, row.http_port) for row in rows)
    return Roster(state.cluster_id, state.index, seeds)


def read_roster(answer: Any) -> Roster:
    """Read a roster from JSON. Raises `KeyError`, `TypeError` or `ValueError`."""
    seeds = [
        Seed(str(one["id"]), str(one["host"]), int(one["raft_port"]), int(one["http_port"]))
        for one in answer["members"]
    ]
    return Roster(str(answer["cluster_id"]), int(answer["index"]), tuple(seeds), read_vitals(answer))


class RunProgress(NamedTuple):
    """The progress of an attempt, by the member that runs it: the latest figures, and since when it is frozen.

    `done` None: it has reported none; `total` None: unknown. An attempt is frozen while its member holds no lease.
    """

    done: float | None = None
    total: float | None = None
    unit: str = ""
    frozen_since_us: int | None = None


def read_progress(answer: Any) -> tuple[dict[str, RunProgress], dict[str, Hold]]:
    """Read the progress of runs, and what holds tasks, from JSON.

    Raises `KeyError`, `TypeError`, `ValueError` or `AttributeError`.

    >>> read_progress({"progress": {}, "frozen": {"a~1": 7}, "holds": {}})
    ({'a~1': RunProgress(done=None, total=None, unit='', frozen_since_us=7)}, {})
    """
    progress = {run: RunProgress(**reported) for run, reported in answer["progress"].items()}
    for run, since_us in answer["frozen"].items():
        progress[run] = progress.get(run, RunProgress())._replace(frozen_since_us=int(since_us))
    holds = {
        task: Hold(str(told["code"]), str(told["detail"]), tuple(map(str, told["runs"])))
        for task, told in answer["holds"].items()
    }
    return progress, holds


def url_of(host: str, port: int) -> str:
    """Return the URL of a member's API.

    >>> url_of("::1", 8101)
    'http://[::1]:8101'
    """
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
