"""The cluster: health, settings, members, kinds of task."""

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from node.http.responses.bootstraps import BootstrapView
from node.http.responses.common import Cursor, Time
from node.identity.mismatches import MismatchCode
from node.state.value import DownReason, MemberStatus


class HealthView(TypedDict):
    """The process answers requests."""

    status: Literal["ok"]


class ReadyView(TypedDict):
    """The member has caught up, knows the leader, and holds a lease. `leader`: for those who show the token."""

    status: Literal["ready"]
    leader: NotRequired[str]


class WatchdogSettingView(TypedDict):
    """An outside watcher that the leader pings every `every_s` seconds; `url` may be a reference to a secret."""

    url: str | dict[str, str]
    every_s: float


class PingedView(TypedDict):
    """The last ping to the outside watcher, as the leader knows it: accepted, `withheld` or failed (`error`), and why.

    `node` leads. `at` null: another member was asked, or nothing has been done yet.
    """

    node: str | None
    every_s: float
    at: Time | None
    withheld: str | None
    error: str | None


class SettingsView(TypedDict):
    """The cluster's settings. `balance_slack` null: loads are not balanced. `watchdog` null: nobody is pinged."""

    balance_slack: float | None
    lease_s: float
    window_s: float
    margin_s: float
    refusal_is_death: bool
    history_days: int
    watchdog: WatchdogSettingView | None


class MemberView(TypedDict):
    """A member.

    `reason` says why it is down; `aside` is its own reason for taking on nothing new. `load` is the sum of the weights
    of the tasks that it owns, `running` the number of attempts that it holds. `bootstrap` is how far it has fetched the
    finished runs that it lacks; null: it lacks none, as far as the member that answers knows.
    """

    id: str
    slot: int
    status: MemberStatus
    reason: DownReason | None
    aside: str | None
    incarnation: int
    labels: dict[str, str]
    capacity: int
    kinds: list[str]
    url: str
    since: Time | None
    load: int
    running: int
    bootstrap: BootstrapView | None


class MemberPage(TypedDict):
    """Members, by slot."""

    items: list[MemberView]
    next: Cursor


class MismatchView(TypedDict):
    """A node that `node` has met and that does not fit to it: `detail` says why, and what to do.

    `member` is the name under which it was called or, where `claimed`, what a caller says of itself without having
    shown that it has the members' secret; null: it does not say. `version` is that of its build, as it says; null: not
    known. `address` is where it was called, or where a call came from.
    """

    member: str | None
    address: str
    code: MismatchCode
    claimed: bool
    version: str | None
    detail: str


class ClusterView(TypedDict):
    """The cluster as `node` sees it. `quorum` false: the answer may be stale, and nothing can be changed.

    `waiting_for`: what the node waits for while it belongs to no cluster (`id` is empty then); null once it does.
    `version` is the build of `node`; `mismatches` are nodes that it has met lately, and that do not fit to it.
    """

    id: str
    node: str
    version: str
    leader: str | None
    term: int
    index: int
    epoch: int
    quorum: bool
    waiting_for: str | None
    mismatches: list[MismatchView]
    settings: SettingsView
    watchdog: PingedView | None
    members: list[MemberView]


class FoundingView(TypedDict):
    """A cluster will be founded without the members `without`; `waiting_for` says what is still missing."""

    without: list[str]
    waiting_for: str | None


class KindView(TypedDict):
    """A kind of task: the members that offer it, and the JSON schema of its params.

    `params` is null if no member that has the kind answers.
    """

    kind: str
    members: list[str]
    params: dict[str, Any] | None


class KindPage(TypedDict):
    """Kinds, by name."""

    items: list[KindView]
    next: Cursor


class PutBackView(TypedDict):
    """How many tasks were restored."""

    tasks: int
