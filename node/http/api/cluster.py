"""The cluster as a whole, and its settings."""

from typing import Annotated, Any, cast

from aiohttp import web
from pydantic import AfterValidator, Field, field_validator
from typing_extensions import TypedDict

from node.http.api.members import MemberView, members_view
from node.http.api.set_queries import OwnQuery
from node.http.api.shapes import RequestModel, Time
from node.http.door.endpoint import Endpoints, ResponseSpec
from node.http.door.problems import Problem
from node.http.door.request_context import RequestContext
from node.identity.mismatches import Mismatch, MismatchCode
from node.raft.errors import RaftStopped
from node.state.settings import HISTORY_DAYS_MAX, SECONDS, SLACK_MILLI_MAX, ChangeSettings
from node.state.times import rfc3339
from node.state.value import Settings
from node.state.watchdog import WatchdogBody
from tasks.definition.limits import thousandths
from tasks.definition.pools import CAPACITY_MAX, PoolName
from tasks.definition.spec import Name
from tasks.version import version


class WatchdogSettingView(TypedDict):
    """An outside watcher that the leader pings every `every_s` seconds; `url` may be a reference to a secret."""

    url: str | dict[str, str]
    every_s: float


class PingedView(TypedDict):
    """The last ping to the outside watcher, as the leader knows it: accepted, `withheld` or failed (`error`), and why.

    `node` is the leader. `at` null: the answering member does not lead, or has not tried to ping yet.
    """

    node: str | None
    every_s: float
    at: Time | None
    withheld: str | None
    error: str | None


class SettingsView(TypedDict):
    """The cluster's settings. `balance_slack` null: loads are not balanced. `watchdog` null: no watcher is pinged.

    `pools` says how much there is of each pool.
    """

    balance_slack: float | None
    lease_s: float
    window_s: float
    margin_s: float
    refusal_is_death: bool
    history_days: int
    watchdog: WatchdogSettingView | None
    pools: dict[str, int]


class MismatchView(TypedDict):
    """A node that called or was called by the answering node, and is incompatible with it; `detail` says why.

    `member` is the node's id. `claimed`: a caller gave this id without proof that it has the members' secret; null: it
    gave no id. `version` is the build that the node reports; null: unknown. `address` is where the node was called, or
    where its call came from.
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
    `version` is the build of `node`; `mismatches` are incompatible nodes that `node` has recently been in contact with.
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


class FoundBody(RequestModel):
    """The members without which a cluster is founded."""

    without: list[Name] = Field(min_length=1, description="Members of ROTA_MEMBERS that are lost and stay off")


class SettingsBody(RequestModel):
    """Settings to change; the others stay. `balance_slack` null turns load balancing off, `watchdog` null the pings to
    an outside watcher. `pools` has the pools to change, and how much there is of each; null removes one.
    """

    balance_slack: Annotated[float | None, Field(ge=0, le=SLACK_MILLI_MAX // 1000), AfterValidator(thousandths)] = 0
    lease_s: Annotated[float, Field(ge=SECONDS["lease_s"][0], le=SECONDS["lease_s"][1])] = 2.0
    window_s: Annotated[float, Field(ge=SECONDS["window_s"][0], le=SECONDS["window_s"][1])] = 1.0
    margin_s: Annotated[float, Field(ge=SECONDS["margin_s"][0], le=SECONDS["margin_s"][1])] = 0.5
    refusal_is_death: bool = True
    history_days: Annotated[int, Field(ge=1, le=HISTORY_DAYS_MAX)] = 30
    watchdog: WatchdogBody | None = None
    pools: dict[PoolName, Annotated[int, Field(strict=True, ge=0, le=CAPACITY_MAX)] | None] = Field(default={})

    @field_validator("*", mode="before")
    @classmethod
    def _no_strings(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError("must not be a string")  # noqa: TRY004 - pydantic wants a ValueError
        return value

    def changed(self) -> dict[str, Any]:
        """Return the given settings, keyed by the names of the fields of `node.state.value.Settings`."""
        given = self.model_dump(exclude_unset=True)
        if self.watchdog is not None:
            given["watchdog"] = self.watchdog.model_dump(mode="json")
        if "balance_slack" in given:
            slack = given.pop("balance_slack")
            given["balance_slack_milli"] = None if slack is None else round(slack * 1000)
        assert given.keys() <= set(Settings.__dataclass_fields__)
        return given


endpoints = Endpoints("cluster")


@endpoints.add("GET", "/v1/cluster", {200: ResponseSpec("The cluster", ClusterView)})
async def cluster(context: RequestContext) -> web.Response:
    """Show the cluster as this member sees it.

    `quorum` false: the answer may be stale, and nothing can be changed until a quorum is back.
    """
    ownership = await context.ownership()
    state, role, outlook = context.state, context.node.role, context.node.outlook
    view: ClusterView = {
        "id": state.cluster_id,
        "node": context.node.settings.node,
        "version": version(),
        "leader": role.leader,
        "term": role.term,
        "index": state.index,
        "epoch": state.epoch,
        "quorum": role.has_quorum,
        "waiting_for": None if outlook is None else str(outlook),
        "mismatches": [mismatch_view(one, context.node.settings.node) for one in context.node.mismatches],
        "settings": settings_view(state.settings),
        "watchdog": _pinged(context),
        "members": members_view(state, ownership, context.node.bootstraps.known(state)),
    }
    return context.answer(view)


def _pinged(context: RequestContext) -> PingedView | None:
    watchdog, last = context.state.settings.watchdog, context.node.pinged
    if watchdog is None:
        return None
    return {
        "node": context.node.role.leader,
        "every_s": watchdog.every_s,
        "at": None if last is None else rfc3339(last.at_us),
        "withheld": None if last is None else last.withheld,
        "error": None if last is None else last.error,
    }


@endpoints.add(
    "POST",
    "/v1/cluster/found",
    {202: ResponseSpec("The cluster will be founded without them, once the others accept it", FoundingView)},
    ("invalid", "conflict", "not-ready"),
    body=FoundBody,
)
async def found(context: RequestContext) -> web.Response:
    """Found a cluster without members that are lost. Send the request to a node that waits for the founding.

    The other waiting nodes accept the founding by themselves, unless they hear from one of the members left out. The
    node refuses if it knows a cluster. Make sure first that the lost members are off and have never been in a cluster.
    """
    without = frozenset((await context.model(FoundBody)).without)
    try:
        refused = await context.node.leave_out(without, context.server.limits.write_s)
    except (TimeoutError, RaftStopped) as error:
        raise Problem("not-ready", "this node is stopping, or its disk does not answer: try again") from error
    if refused is not None:
        raise Problem("conflict", refused)
    outlook = context.node.outlook
    view: FoundingView = {"without": sorted(without), "waiting_for": None if outlook is None else str(outlook)}
    return context.answer(view, status=202)


@endpoints.add("GET", "/v1/settings", {200: ResponseSpec("The settings", SettingsView)})
async def settings(context: RequestContext) -> web.Response:
    """Show the cluster's settings."""
    return context.answer(settings_view(context.state.settings))


@endpoints.add(
    "PATCH",
    "/v1/settings",
    {200: ResponseSpec("The changed settings", SettingsView)},
    ("invalid", "conflict", "no-quorum", "outcome-unknown"),
    body=SettingsBody,
)
async def change_settings(context: RequestContext, query: OwnQuery) -> web.Response:
    """Change settings; the others stay as they are. With `set`, pools that this makes are of that set of files."""
    changed = (await context.model(SettingsBody)).changed()
    if changed:
        await context.propose(ChangeSettings(context.server.now_us(), changed, query.by_set(context), query.adopt))
    return context.answer(settings_view(context.state.settings))


def settings_view(settings: Settings) -> SettingsView:
    """Return the settings, as the API shows them."""
    milli = settings.balance_slack_milli
    return {
        "balance_slack": None if milli is None else milli / 1000,
        "lease_s": settings.lease_s,
        "window_s": settings.window_s,
        "margin_s": settings.margin_s,
        "refusal_is_death": settings.refusal_is_death,
        "history_days": settings.history_days,
        "watchdog": None if settings.watchdog is None else cast(WatchdogSettingView, settings.watchdog.plain()),
        "pools": dict(settings.pools),
    }


def mismatch_view(mismatch: Mismatch, me: str) -> MismatchView:
    """Return a node that is incompatible with the node `me`, as the API shows it."""
    return {
        "member": mismatch.member or None,
        "address": mismatch.address,
        "code": mismatch.code,
        "claimed": mismatch.claimed,
        "version": mismatch.version or None,
        "detail": mismatch.sentence(me, version()),
    }
