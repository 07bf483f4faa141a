"""Query parameters and bodies: these models validate them, and /openapi.json describes them."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    field_validator,
    model_validator,
)

from node.peer.bootstrap import Bootstrap
from node.state.restoring import COUNT_MAX
from node.state.settings import HISTORY_DAYS_MAX, SECONDS, SLACK_MILLI_MAX
from node.state.shape import LATEST_US
from node.state.times import EPOCH
from node.state.value import Settings
from node.state.watchdog import WatchdogBody
from tasks.definition.cron import LAST_FIRE_US, check_at
from tasks.definition.limits import thousandths
from tasks.definition.run import RunState
from tasks.definition.spec import EXAMPLE, Name, Spec

After = Annotated[str | None, Field(max_length=1000, description="`next` of the page before")]
Limit = Annotated[int, Field(ge=1, le=1000, description="How many at most")]


Count = Annotated[int, Field(ge=0, lt=COUNT_MAX)]
Due = Annotated[int, Field(ge=0, le=LAST_FIRE_US)]
Moment = Annotated[int, Field(ge=0, le=LATEST_US)]
"""Counters, the times from which schedules continue, and other times, in microseconds: bounded so that sums fit."""


class _RequestModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FoundBody(_RequestModel):
    """The members without which a cluster is founded."""

    without: list[Name] = Field(min_length=1, description="Members of ROTA_MEMBERS that are lost and stay off")


class PageQuery(_RequestModel):
    """A page of a list."""

    limit: Limit = 100
    after: After = None


class TasksQuery(PageQuery):
    """A filter of tasks."""

    kind: str | None = None
    owner: str | None = Field(default=None, description="Only those that this member owns")
    set: str | None = Field(default=None, description="Only those of this set of files")
    late: bool | None = Field(default=None, description="Only those that have a breached deadline; false: the others")


class PutQuery(_RequestModel):
    """Options of registering tasks."""

    dry_run: bool = Field(
        default=False, description="Validate them and return what would change, without changing anything"
    )


class TaskRunsQuery(PageQuery):
    """A filter of a task's runs."""

    state: RunState | None = None


class RunsQuery(TaskRunsQuery):
    """A filter of runs."""

    node: str | None = Field(default=None, description="Only those whose present or latest attempt is on this member")
    task: str | None = None


class OwnerQuery(_RequestModel):
    """A question about a supposed placement: as if some members were down."""

    without: str | None = Field(default=None, description="As if this member were down (or these, comma-separated)")


class WhyQuery(_RequestModel):
    """Which of a task's runs the question is about."""

    run_id: str | None = Field(default=None, description="Of this active run; default: of what waits first")


class PlanQuery(_RequestModel):
    """A question about a supposed placement: as if some members were down."""

    without: str = Field(description="As if this member were down (or these, comma-separated)")


class WhatIfQuery(_RequestModel):
    """What is supposed, and how far ahead to look."""

    without: str | None = Field(default=None, description="As if this member were down (or these, comma-separated)")
    back: str | None = Field(default=None, description="As if this member, drained or down now, were up (or these)")
    ahead_s: Annotated[int, Field(ge=60, le=7 * 86_400)] = Field(
        default=86_400, description="How far ahead, in seconds"
    )
    limit: Annotated[int, Field(ge=0, le=10_000)] = Field(default=1000, description="How many items a list has at most")


TailBytes = Annotated[int | None, Field(ge=1, le=2**40)]


class EventsQuery(PageQuery):
    """A filter of the events that the node has kept."""

    event: Literal["member", "owner", "run", "deadline"] | None = Field(default=None, description="Only of this sort")
    task: str | None = Field(default=None, description="Only of tasks with this in their names")
    node: str | None = Field(default=None, description="Only what this member is named in")


class LogQuery(_RequestModel):
    """Which log to read."""

    attempt: Annotated[int, Field(ge=1)] | None = Field(default=None, description="Default: the latest")
    follow: bool = Field(default=False, description="Stream until the attempt has ended")
    tail_bytes: TailBytes = Field(default=None, description="Only this much of its end, from the next whole line")


class PeerLogQuery(_RequestModel):
    """Which of this member's logs to read. The pattern keeps the run's id, a folder's name, from leaving its parent."""

    run_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._~-]{0,254}$")]
    attempt: Annotated[int, Field(ge=1)]
    follow: bool = False
    tail_bytes: TailBytes = None


class PeerHistoryQuery(_RequestModel):
    """Which finished runs to send: those that ended under the indexes after < i <= through."""

    after: Count
    through: Count


class PeerBootstrapBody(_RequestModel):
    """How far a member is that fetches finished runs; the fields are those of `node.peer.bootstrap.Bootstrap`."""

    member: Name
    started_us: Moment
    indexes_total: Count
    indexes: Count
    index: Count
    feeder: Name | None
    fed: Annotated[list[tuple[Name, Count]], Field(max_length=1000)]
    fetching_s: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    waiting: Annotated[str | None, Field(max_length=10_000)]
    finished_us: Moment | None

    def value(self) -> Bootstrap:
        """The value that was sent."""
        return Bootstrap(**{**dict(self), "fed": tuple(self.fed)})


class PeerProgressBody(_RequestModel):
    """Which runs' progress, and which tasks' reasons for waiting, to send."""

    runs: Annotated[list[str], Field(max_length=1000)] = []
    tasks: Annotated[list[str], Field(max_length=1000)] = []


class PeerCheckBody(_RequestModel):
    """Params to be checked by a kind that is installed on this member."""

    kind: str
    params: list[dict[str, JsonValue]]
    bound: list[bool] = Field(description="For each: whether its task is bound to one member")

    @model_validator(mode="after")
    def _for_each(self) -> "PeerCheckBody":
        if len(self.bound) != len(self.params):
            raise ValueError("`bound` must have as many values as `params`")
        return self


def _in_the_calendar(at: datetime) -> datetime:
    check_at(at)
    if at < EPOCH:
        raise ValueError("must not be earlier than 1970")
    return at


class StartBody(_RequestModel):
    """Options of a manual run. `params` replaces all of the task's params for this run."""

    params: dict[str, JsonValue] | None = None
    fire_at: Annotated[AwareDatetime, AfterValidator(_in_the_calendar)] | None = Field(
        default=None, description="The time that the run stands for; default: now"
    )


class ActionBody(_RequestModel):
    """What an action of a kind is given. `params` replaces all of the task's params for it."""

    args: dict[str, JsonValue] = Field(default={}, description="What the action takes, by name")
    params: dict[str, JsonValue] | None = None


def _resolvable(host: str) -> str:
    # Connecting encodes it so, too, and fails with another error than the OSError of an unknown name.
    try:
        host.encode("idna")
    except UnicodeError:
        raise ValueError("is not a valid host name: each part between dots has 1 to 63 characters") from None
    return host


class MemberBody(_RequestModel):
    """A new member."""

    id: Name
    host: Annotated[str, Field(pattern=r"^[A-Za-z0-9._:-]{1,253}$"), AfterValidator(_resolvable)]
    raft_port: Annotated[int, Field(ge=1, le=65_535)]
    http_port: Annotated[int, Field(ge=1, le=65_535)]


class SettingsBody(_RequestModel):
    """Settings to change; the others stay. `balance_slack` null turns load balancing off, `watchdog` null the pings to
    an outside watcher.
    """

    balance_slack: Annotated[float | None, Field(ge=0, le=SLACK_MILLI_MAX // 1000), AfterValidator(thousandths)] = 0
    lease_s: Annotated[float, Field(ge=SECONDS["lease_s"][0], le=SECONDS["lease_s"][1])] = 2.0
    window_s: Annotated[float, Field(ge=SECONDS["window_s"][0], le=SECONDS["window_s"][1])] = 1.0
    margin_s: Annotated[float, Field(ge=SECONDS["margin_s"][0], le=SECONDS["margin_s"][1])] = 0.5
    refusal_is_death: bool = True
    history_days: Annotated[int, Field(ge=1, le=HISTORY_DAYS_MAX)] = 30
    watchdog: WatchdogBody | None = None

    @field_validator("*", mode="before")
    @classmethod
    def _no_strings(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError("must not be a string")  # noqa: TRY004 - pydantic wants a ValueError
        return value

    def changed(self) -> dict[str, Any]:
        """The given settings, by the names in `node.state.value.Settings`."""
        given = self.model_dump(exclude_unset=True)
        if self.watchdog is not None:
            given["watchdog"] = self.watchdog.model_dump(mode="json")
        if "balance_slack" in given:
            slack = given.pop("balance_slack")
            given["balance_slack_milli"] = None if slack is None else round(slack * 1000)
        assert given.keys() <= set(Settings.__dataclass_fields__)
        return given


class OutcomeBody(_RequestModel):
    """How a task's last run ended."""

    run_id: str
    state: RunState
    fire_at_us: Moment
    finished_at_us: Moment
    error: str | None = None
    took_us: Count | None = None


class SavedTask(_RequestModel):
    """A task as in `GET /v1/cluster/saved`."""

    task: dict[str, JsonValue]
    order: Annotated[Count, Field(ge=1)]
    version: Annotated[Count, Field(ge=1)]
    registered_at_us: Moment
    since_us: Due
    through_us: Due
    paused: bool = False
    incumbent: str | None = None
    skipped: Count = 0
    missed: Count = 0
    last: OutcomeBody | None = None
    requests: list[tuple[str, str]] = []
    succeeded_at_us: Moment | None = None


class PutBackBody(_RequestModel):
    """A part of a saved cluster state. The parts are sent in order, with `settings` in the first."""

    beside: Annotated[
        Count,
        Field(description="How many of the saved tasks are restored already; the cluster may have no other tasks"),
    ]
    token: Count
    orders: Count
    settings: SettingsBody | None = None
    tasks: list[SavedTask]


def _name_may_be_left_out(schema: dict[str, Any]) -> None:
    schema["examples"] = [EXAMPLE]
    schema["required"] = [name for name in schema["required"] if name != "name"]


class NamedSpec(Spec):
    """A task's definition. Its name is in the path, and may be left out."""

    model_config = ConfigDict(json_schema_extra=_name_may_be_left_out)


SpecList = list[Spec]
