"""Members that fetch the finished runs that they lack."""

from typing import Literal

from typing_extensions import TypedDict

from node.http.responses.common import Cursor, Time
from node.http.responses.runs import ProgressView


class BootstrapView(TypedDict):
    """How far a member is with fetching the finished runs that it lacks.

    `feeder` is the member that sends them now, `fed` how many each feeder has sent. `progress` counts indexes of the
    log, of which any number of runs may have ended; `index` is the last index of the latest portion. `waiting` is a
    sentence while nobody sends any. `runs_per_s` does not count the time of waiting.
    """

    state: Literal["fetching", "waiting", "done"]
    feeder: str | None
    runs: int
    fed: dict[str, int]
    index: int
    progress: ProgressView
    runs_per_s: float
    started_at: Time
    finished_at: Time | None
    waiting: str | None


class BootstrapTaskView(TypedDict):
    """The bootstrap of a member, which is assigned like a task: `owner` feeds it, then the next of `preference`.

    `latest` is the latest one that is known to the member that answers; null: none since that one started.
    """

    task: str
    member: str
    owner: str | None
    preference: list[str]
    latest: BootstrapView | None


class BootstrapPage(TypedDict):
    """The bootstraps of all members, by slot."""

    items: list[BootstrapTaskView]
    next: Cursor
