"""What members answer to one another."""

from typing_extensions import TypedDict

from node.http.responses.common import FieldProblem
from node.http.responses.runs import ProgressView


class PeerProgressView(TypedDict):
    """The known progress of runs, since when they are frozen (microseconds since the epoch), and why tasks wait."""

    progress: dict[str, ProgressView]
    frozen: dict[str, int]
    waiting: dict[str, str]


class PeerSeedView(TypedDict):
    """A member's addresses."""

    id: str
    host: str
    raft_port: int
    http_port: int


class PeerMembersView(TypedDict):
    """The members, by slot, as of the index applied here."""

    cluster_id: str
    index: int
    members: list[PeerSeedView]


class PeerCheckView(TypedDict):
    """The errors of each of the params, in order."""

    errors: list[list[FieldProblem]]
