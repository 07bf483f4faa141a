"""What members answer to one another."""

from typing_extensions import TypedDict

from node.http.responses.common import FieldProblem
from node.http.responses.runs import ProgressView


class PeerHoldView(TypedDict):
    """What holds a task on its owner: a code, a sentence, and the runs that have the places."""

    code: str
    detail: str
    runs: list[str]


class PeerProgressView(TypedDict):
    """The known progress of runs, since when they are frozen (microseconds since the epoch), and what holds tasks.

    `waiting` has the sentences of `holds`: members of earlier versions send and read only these.
    """

    progress: dict[str, ProgressView]
    frozen: dict[str, int]
    waiting: dict[str, str]
    holds: dict[str, PeerHoldView]


class PeerSeedView(TypedDict):
    """A member's addresses."""

    id: str
    host: str
    raft_port: int
    http_port: int


class PeerVitalsView(TypedDict):
    """What this member alone knows of itself (`node.peer.vitals`)."""

    version: str
    lease_held: bool
    disk_total_bytes: int | None
    disk_free_bytes: int | None
    clock_off_us: int | None
    unoffered: dict[str, str]
    not_kept: list[str]


class PeerMembersView(TypedDict):
    """The members, by slot, as of the index applied here, and what this one knows of itself."""

    cluster_id: str
    index: int
    members: list[PeerSeedView]
    vitals: PeerVitalsView | None


class PeerOfferView(TypedDict):
    """Why this member does not offer a kind (a sentence); null if it does."""

    why_not: str | None


class PeerCheckView(TypedDict):
    """The errors of each of the params, in order."""

    errors: list[list[FieldProblem]]
