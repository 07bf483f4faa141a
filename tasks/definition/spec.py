"""A task's definition, as a user registers it, checked field by field.

The same models check the input, describe it in /openapi.json and in docs/reference/spec.md, and make the packed form
that is replicated. An accepted spec is complete: every default is written out, so that other defaults in a later
version do not change registered tasks.
"""

from collections.abc import Collection
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar

import msgpack
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    TypeAdapter,
    ValidationInfo,
    field_validator,
    model_validator,
)

from tasks.definition.calendars import CalendarRule, rule_of
from tasks.definition.cron import ACCEPTED, Timezone, check_at, check_cron, check_rare
from tasks.definition.deadlines import Deadlines
from tasks.definition.field_errors import raise_at
from tasks.definition.limits import Limits
from tasks.definition.pools import PRIORITY, PRIORITY_MAX, StartRate, Uses
from tasks.definition.template import template_faults
from tasks.definition.written_time import WrittenTime

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"

NODE_LABEL: Final = "node"
"""The label that every member has with its own id as the value: `group: {node: node-1}` binds a task to node-1."""

Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
"""A task's name, or a member's id: 1 to 128 letters, digits, `.`, `_` and `-`, of which the first is alphanumeric."""

USER_PATTERN = r"^[A-Za-z_][A-Za-z0-9_.@-]{0,127}$"

User = Annotated[str, StringConstraints(pattern=USER_PATTERN)]
"""A user of a machine, by name: 1 to 128 letters, digits, `_`, `.`, `@` and `-`; the first is a letter or `_`."""

Weight = Annotated[int, Field(ge=1, le=1_000_000)]

Overlap = Literal["skip", "queue", "replace", "allow"]
"""The treatment of an occurrence that is due while another run of the task is active."""

CatchUp = Literal["skip", "latest", "all"]
"""Which of several missed occurrences are run."""


T = TypeVar("T")
_DESCRIBES: Final = "describes"
Describes = Annotated[T, _DESCRIBES]
"""The type of a field that only describes a task: it changes nothing about where the task runs, nor how. Its labels may
put it under a blackout."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Cron(_Model):
    """Due at the times of a cron line.

    When the clocks change, a line with a fixed minute and hour follows the wall clock: a time that the clocks skip is
    due at the first minute after the change, a time that occurs twice is due once. Other lines follow elapsed time.
    """

    cron: str = Field(
        max_length=200,
        description="Five fields (minute, hour, day of the month, month, day of the week), six with seconds first, or "
        "a name such as `@daily`",
        examples=["0 3 * * *"],
    )
    timezone: Timezone = "UTC"

    @model_validator(mode="after")
    def _fires(self, info: ValidationInfo) -> "Cron":
        if info.context is not ACCEPTED:
            check_cron(self.cron, self.timezone)
        return self


class Every(_Model):
    """Due at a fixed interval, counted from the registration, the last change or the resumption of the task."""

    every_s: Annotated[float, Field(ge=0.1, le=366 * 86_400, description="The interval in seconds")]


class At(_Model):
    """Due once."""

    at: WrittenTime = Field(
        description="The time, RFC 3339 with an offset, before the year 9999", examples=["2026-11-21T03:00:00Z"]
    )

    @field_validator("at")
    @classmethod
    def _in_the_calendar(cls, value: datetime, info: ValidationInfo) -> datetime:
        if info.context is not ACCEPTED:
            check_at(value)
        return value


class Continuous(_Model):
    """Always due: the next run begins when a run has ended. After a failed run it waits for `retry.backoff_s`.

    When the task's owner changes, the running attempt is asked to save a checkpoint and to stop; the new owner resumes.
    """

    continuous: Literal[True] = Field(description="true")


Schedule = Cron | Every | At | Continuous

PARENTS_MAX: Final = 32
"""The most tasks after which one task may be due."""

WAIT_S: Final = 86_400.0
"""How long a task with `after` and `schedule` waits by default: as a run does for a service (`retry.away_s`)."""


class After(_Model):
    """A task after whose run another one is due."""

    task: Name = Field(description="The task's name")
    on: Literal["succeeded", "failed", "ended"] = Field(
        default="succeeded",
        description="How it has to end: `failed` is for alarms, `ended` (succeeded or failed) for clean-up. A run that "
        "was skipped, missed or cancelled has neither succeeded nor failed",
    )


def _after(value: Any) -> Any:
    return {"task": value} if isinstance(value, str) else value


def _parents(value: Any) -> Any:
    return [value] if isinstance(value, str | dict) else value


_Parent = Annotated[After, BeforeValidator(_after, json_schema_input_type=After | Name)]


class Retry(_Model):
    """When a failed attempt is retried: the n-th time after `backoff_s * factor ** (n - 1)` s, at most `max_s`."""

    attempts: Annotated[int, Field(ge=1, le=1000, description="The most attempts at a run, counting the first one")] = 3
    backoff_s: Annotated[float, Field(ge=0, le=86_400, description="The pause before the first retry, in seconds")] = 10
    factor: Annotated[float, Field(ge=1, le=100, description="The pause is multiplied by this after each failure")] = 2
    max_s: Annotated[float, Field(ge=0, le=86_400, description="The longest pause, in seconds")] = 900
    away_s: Annotated[float, Field(ge=0, le=31_622_400)] = Field(
        default=86_400,
        description="How long a run waits for something that does not answer, such as a database, in seconds: it tries "
        "again after 5 s, then after twice as long each time, at most 900 s, and these attempts do not count. Then it "
        "fails. 0: they count as others do",
    )


class Failover(_Model):
    """What happens to a run whose member was lost (it is down, or was restarted). Lost attempts are not failures."""

    grace_s: Annotated[
        float, Field(ge=0, le=86_400, description="How long to wait before another member takes over, in seconds")
    ] = 0
    resume: Literal["checkpoint", "restart", "abandon"] = Field(
        default="checkpoint",
        description="`checkpoint`: the next attempt gets the last checkpoint; `restart`: it gets none; `abandon`: the "
        "run is abandoned",
    )
    max: Annotated[
        int, Field(ge=0, le=1000, description="The number of lost attempts after which the run is abandoned")
    ] = 3


EXAMPLE: Final[dict[str, JsonValue]] = {
    "name": "hello",
    "kind": "command",
    "params": {"argv": ["echo", "hello"]},
    "schedule": {"every_s": 60},
}
"""The example in /docs, which can be sent as it is."""


def _labels(value: Any) -> Any:
    return {} if value is None else value


_EMPTY: Final[dict[str, JsonValue]] = {"default": {}}
"""What the schema says of a field whose default is made by `dict`. Given as a value, it would be copied deeply for each
task, which takes longer than all other defaults together."""

_LabelsOfTask = Annotated[dict[str, str], Field(max_length=100)]


class Spec(_Model):
    """A task's definition."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    name: Name = Field(
        description="The task's name: letters, digits, `.`, `_` and `-`, 128 at most, beginning with a letter or digit"
    )
    kind: Name = Field(description="The kind of task, which must be offered by a member (`rota kinds`)")
    params: dict[str, JsonValue] = Field(
        default_factory=dict,
        json_schema_extra=_EMPTY,
        description="What the kind needs; each kind checks its own params",
    )
    schedule: Schedule | None = Field(default=None, description="When the task is due; null: only when run by hand")
    key: Annotated[str, Field(min_length=1, max_length=512)] | None = Field(
        default=None,
        description="The text that is hashed to find the owner; null: the name. Tasks with the same key and group "
        "prefer the same members",
    )
    group: Annotated[dict[str, str], BeforeValidator(_labels, json_schema_input_type=dict[str, str] | None)] = Field(
        default_factory=dict,
        json_schema_extra=_EMPTY,
        description="Labels that a member must have to run the task; `{node: ID}` binds it to one member",
        examples=[{"zone": "a"}],
    )
    labels: Describes[
        Annotated[_LabelsOfTask, BeforeValidator(_labels, json_schema_input_type=_LabelsOfTask | None)]
    ] = Field(
        default_factory=dict,
        json_schema_extra=_EMPTY,
        description="For people, and for channels and blackouts, which may be for tasks with some labels only "
        "(`rota notify`, `rota blackout`)",
        examples=[{"team": "bi"}],
    )
    pin: Name | None = Field(
        default=None, description="The member that is preferred while it is eligible, even if it has no room"
    )
    sticky: bool = Field(
        default=False,
        description="Prefer the member that made the last claim. True by default for continuous tasks",
    )
    weight: Weight = Field(default=1, description="The task's share of a member's capacity")
    standbys: Annotated[int, Field(ge=0, le=100)] = Field(
        default=0,
        description="The number of members to name as standbys, in different zones if possible. While a run works, "
        "each has a process ready to take it over, where its kind prepares processes",
    )
    overlap: Overlap = Field(
        default="skip",
        description="What happens to an occurrence that is due while a run is active. `skip`: it is recorded as "
        "skipped; `queue`: it waits, 100 at most; `replace`: the active run is cancelled; `allow`: both run",
    )
    catch_up: CatchUp = Field(
        default="latest",
        description="What happens to occurrences that could not run in time, for example without a quorum. `latest`: "
        "the latest one runs; `skip`: the latest one runs if it is late by 10 s at most; `all`: each runs, up to "
        "100, one after the other, also behind a run that was active before (with `overlap: allow` beside one another, "
        "with `replace` the latest only). What falls due in time while they run is treated as `overlap` says",
    )
    timeout_s: Annotated[float, Field(gt=0, le=366 * 86_400)] | None = Field(
        default=None, description="How long an attempt may take, in seconds; null: no limit"
    )
    retry: Retry = Field(default=Retry(), description="Whether and when a failed attempt is retried")
    failover: Failover = Field(default=Failover(), description="What happens to a run whose member was lost")
    enabled: bool = Field(default=True, description="false: the task is registered, and not due")
    set: Describes[Name | None] = Field(
        default=None,
        description="The set of files that the task is kept in: `rota apply --prune` deletes the tasks of a set that "
        "its files no longer have. It changes nothing about when or where the task runs",
    )
    deadlines: Deadlines = Field(
        default=Deadlines(), description="By when its runs must have begun, and succeeded; missed ones are told"
    )
    limits: Limits = Field(default=Limits(), description="What one attempt may use of its machine")
    after: Annotated[tuple[_Parent, ...], Field(max_length=PARENTS_MAX), BeforeValidator(_parents)] = Field(
        default=(),
        description="The tasks after whose runs this one is due, by name or as `{task, on}`: once for each occurrence "
        "of theirs, in the moment in which the last of them ends. With a `schedule` too: once for each time of its "
        "own, as soon as the latest occurrence of each of them, at that time or before it, has ended",
        examples=[["ingest-orders", {"task": "ingest-lines", "on": "ended"}]],
    )
    wait_s: Annotated[float, Field(ge=1, le=31_622_400, strict=True)] = Field(
        default=WAIT_S,
        description="With `after` and `schedule`: how long an occurrence waits for the tasks before it, in seconds. "
        "Then it ends `upstream_late`, and does not run",
    )
    uses: Uses = Field(
        default_factory=dict,
        json_schema_extra=_EMPTY,
        description="How much of the cluster's pools a run uses while it works (`rota pools`): together, runs never "
        "use more than there is. A run that lacks something of a pool waits. `{db:orders: 1}` of a pool of 1 is a lock",
        examples=[{"dumps": 1}],
    )
    rate: StartRate | None = Field(
        default=None,
        description="How often runs start in one of the cluster's pools; null: as soon as they are due. Whichever task "
        "a run is of, the next run with a rate there starts 60 s / `per_min` later at the earliest; until then it "
        "waits",
        examples=[{"pool": "api", "per_min": 30}],
    )
    priority: Annotated[int, Field(ge=0, le=PRIORITY_MAX, strict=True)] = Field(
        default=PRIORITY,
        description="Who goes first among those that wait for a pool, 100 before 0. Waiting for a minute is worth one "
        "more",
    )
    calendar: CalendarRule | None = Field(
        default=None,
        description="On which days it is due, for a cron line or `at`; null: on all. On other days it has no "
        "occurrence that could be missed",
        examples=[{"skip": ["holidays/DE-BY"], "on_skip": "next"}],
    )
    run_as: User | None = Field(
        default=None,
        description="The user of the machine that attempts run as, which `ROTA_RUN_AS` of the member must name; null: "
        "the node's own",
        examples=["deploy"],
    )
    each: bool = Field(
        default=False,
        strict=True,
        description="Whether each occurrence runs on each member that has the labels of `group` and offers the kind "
        "(without a group: on each member), instead of on one of them. Each member's runs count for themselves: for "
        "`overlap`, failures and deadlines. The tasks after it wait for all of them",
    )
    template: bool = Field(
        default=False,
        strict=True,
        description="Whether `{{ ... }}` in the texts of `params` is replaced for each occurrence: `nominal` (its "
        "time), `window_start` and `window_end` (from the time before to its own), each with an offset, a zone and a "
        "format, as in `{{ nominal - 1d in UTC | date }}`; and `after.TASK.FIELD` (a field of the result of a task in "
        "`after`)",
    )

    @model_validator(mode="before")
    @classmethod
    def _continuous_is_sticky(cls, value: Any) -> Any:
        if isinstance(value, dict) and "sticky" not in value:
            schedule = value.get("schedule")
            if isinstance(schedule, dict) and schedule.get("continuous") is True:
                return {**value, "sticky": True}
        return value

    @model_validator(mode="after")
    def _is_consistent(self, info: ValidationInfo) -> "Spec":
        """Check the fields against each other: one validator, since each of them costs every task a call."""
        if self.deadlines.success_every_s is not None:
            self._can_be_met(self.deadlines.success_every_s)
        if self.after or self.wait_s != WAIT_S:
            self._after_others()
        if self.uses or self.rate is not None:
            self._gives_back()
        if self.each:
            self._on_each()
        if self.calendar is not None:
            self._on_days(self.calendar, info)
        if self.template and info.context is not ACCEPTED:
            self._can_be_replaced()
        return self

    def _can_be_met(self, every_s: float) -> None:
        if isinstance(self.schedule, Every) and every_s <= self.schedule.every_s:
            raise ValueError(
                f"deadlines.success_every_s ({every_s:g}) must be more than schedule.every_s "
                f"({self.schedule.every_s:g}): the next run is not due earlier"
            )

    def _after_others(self) -> None:
        names = [one.task for one in self.after]
        if len(set(names)) < len(names):
            raise ValueError("after names a task twice")
        if self.name in names:
            raise ValueError("after names the task itself")
        if names and self.continuous:
            raise ValueError("a continuous task is always due, so it cannot come after others: remove `after`")
        if self.wait_s != WAIT_S and not (names and self.schedule is not None):
            raise ValueError("wait_s is for tasks with both `after` and `schedule`: remove it, or add what is missing")

    def _gives_back(self) -> None:
        if self.uses and self.continuous:
            raise ValueError("a continuous task works all the time, so it would never give back what it uses of a pool")
        if self.rate is not None and self.continuous:
            raise ValueError(
                "rate is for tasks whose runs start anew; a continuous task goes on, and pauses for `retry.backoff_s` "
                "after a failure: remove `rate`"
            )

    def _on_each(self) -> None:
        if self.continuous:
            raise ValueError("each: a continuous task works on one member: make a task for each one, with a group")
        fields = type(self).model_fields
        if given := [name for name in _NOT_WITH_EACH if getattr(self, name) != fields[name].default]:
            raise ValueError(f"each: it runs on all members of its group, so {', '.join(given)} cannot be given, too")

    def _on_days(self, calendar: CalendarRule, info: ValidationInfo) -> None:
        if not isinstance(self.schedule, Cron | At):
            raise ValueError(  # noqa: TRY004 - pydantic wants a ValueError
                "calendar is for schedules with `cron` or `at`, whose times belong to days: remove it"
            )
        if calendar.on_skip != "skip" and isinstance(self.schedule, Cron) and info.context is not ACCEPTED:
            check_rare(self.schedule.cron, self.schedule.timezone)

    def _can_be_replaced(self) -> None:
        if self.continuous:
            raise ValueError("a continuous task has no occurrences that its params could depend on: remove `template`")
        windows = bool(self.after) if self.schedule is None else isinstance(self.schedule, Cron | Every)
        parents = tuple(one.task for one in self.after)
        wrong = template_faults(self.params, parents, windows=windows)
        raise_at("Spec", [(("params", *path), said) for path, said in wrong])

    @property
    def bound(self) -> bool:
        """Whether the task may run on one member only. A `pin` is only a preference, and does not bind the task."""
        return NODE_LABEL in self.group

    @property
    def continuous(self) -> bool:
        """Whether the task is always due."""
        return isinstance(self.schedule, Continuous)

    def pack(self) -> bytes:
        """Return the spec as msgpack, with every default written out. Compare two packed specs by `same_spec`.

        `params`, `group` and `labels` keep the author's order, which may help readers. A later field (`_LATER`) is left
        out at its default. So a task that is older than the field stays the same when it is registered again, and
        `tasks.definition.deadlines.deadlines_of` is cheap.
        """
        exclude = {name for name, default in _LATER.items() if getattr(self, name) == default}
        plain = self.model_dump(mode="json", exclude=exclude)
        return bytes(msgpack.packb(_sorted(plain) | {name: plain[name] for name in _AS_WRITTEN if name in plain}))


_NOT_WITH_EACH: Final = ("key", "pin", "sticky", "weight", "standbys")
"""The fields that a task with `each` cannot have: those about which one member runs it."""

DESCRIBING: Final = frozenset(name for name, of in Spec.model_fields.items() if _DESCRIBES in of.metadata)
"""The fields that only describe a task."""

_WRITTEN_OUT: Final = (
    *("name", "kind", "params", "schedule", "key", "group", "pin", "sticky", "weight", "standbys", "overlap"),
    *("catch_up", "timeout_s", "retry", "failover", "enabled", "set"),
)
_LATER: Final = {
    name: of.get_default(call_default_factory=True)
    for name, of in Spec.model_fields.items()
    if name not in _WRITTEN_OUT
}
"""The fields that were added later, with their defaults. A field is left out of the packed form while it has its
default, so these defaults never change."""


_AS_WRITTEN: Final = ("params", "group", "labels")
"""The fields whose keys the task's author or a kind has chosen: `Spec.pack` keeps their order."""


def has_later_fields(fields: Collection[str]) -> bool:
    """Whether an unpacked spec has fields that were added later, such as `after`, `uses`, `each` and `calendar`.

    >>> has_later_fields(msgpack.unpackb(Spec(name="a", kind="command").pack()))
    False
    >>> has_later_fields(msgpack.unpackb(Spec(name="a", kind="command", after=["b"]).pack()))
    True
    """
    return not _LATER.keys().isdisjoint(fields)


def same_spec(one: Any, other: Any) -> bool:
    """Whether two unpacked specs are the same, except for the order of their fields.

    >>> same_spec({"a": 1, "b": 2}, {"b": 2, "a": 1}), same_spec({"a": 1}, {"a": True}), same_spec([1, 2], [2, 1])
    (True, False, False)
    """
    # The first comparison is quick, but in Python 1 equals True and 1.0, so the second one compares the types too.
    return bool(one == other) and msgpack.packb(_sorted(one)) == msgpack.packb(_sorted(other))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def accepted(plain: Any) -> Spec:
    """Make a spec from the plain values of an accepted one. Raises `ValueError` (pydantic's) if they are no spec.

    The result is the same on every member, because time zones and cron lines are not checked again.
    """
    return Spec.model_validate(plain, context=ACCEPTED)


def read_spec(packed: bytes) -> Spec:
    """Read a spec that `Spec.pack` packed. Raises `ValueError` (pydantic's or msgpack's) if `packed` is no spec."""
    return accepted(msgpack.unpackb(packed))


@lru_cache(maxsize=1024)
def cached_spec(packed: bytes) -> Spec:
    """Like `read_spec`, but cached, for specs that are needed again. Do not read a long list through this cache: a spec
    has about twenty objects, and the garbage collector would have to visit all of them (node/runtime/gc_tuning.py).
    """
    return read_spec(packed)


_SET: Final = bytes(msgpack.packb("set"))
_NO_SET: Final = _SET + bytes(msgpack.packb(None))


def set_of(packed: bytes) -> str | None:
    """Return the set of a spec that `Spec.pack` packed, at a tenth of the cost of `cached_spec`.

    >>> set_of(Spec(name="a", kind="command", set="site").pack())
    'site'
    """
    if _SET not in packed.replace(_NO_SET, b""):
        return None  # most specs have no set, and this test takes a tenth of the time of unpacking
    found: str | None = msgpack.unpackb(packed).get("set")
    return found


def labels_of(packed: bytes) -> dict[str, str]:
    """Return the labels of a spec that `Spec.pack` packed, without reading the whole spec (see `set_of`).

    >>> labels_of(Spec(name="a", kind="command", labels={"team": "bi"}).pack())
    {'team': 'bi'}
    """
    found: dict[str, str] = msgpack.unpackb(packed).get("labels", {}) if b"labels" in packed else {}
    return found


def run_as_of(packed: bytes) -> str | None:
    """Return the field `run_as` of a spec that `Spec.pack` packed, without reading the whole spec (see `set_of`).

    >>> run_as_of(Spec(name="a", kind="command", run_as="deploy").pack())
    'deploy'
    """
    found: str | None = msgpack.unpackb(packed).get("run_as") if b"run_as" in packed else None
    return found


_AFTER: Final = bytes(msgpack.packb("after"))


def comes_after(packed: bytes) -> bool:
    """Whether a packed spec may have the field `after`: False is certain, and the answer costs next to nothing."""
    return _AFTER in packed


def after_of(packed: bytes) -> tuple[After, ...]:
    """Return the field `after` of a spec that `Spec.pack` packed, without reading the whole spec (see `set_of`).

    >>> after_of(Spec(name="a", kind="command", after=["b"]).pack())
    (After(task='b', on='succeeded'),)
    """
    return _family(packed)[0] if _AFTER in packed else ()


def waits_at_times(packed: bytes) -> bool:
    """Whether a task comes after others, and has a schedule: it waits for them at times of its own. As cheap.

    >>> waits_at_times(Spec(name="a", kind="command", after=["b"]).pack())
    False
    >>> waits_at_times(Spec(name="a", kind="command", after=["b"], schedule={"every_s": 60}).pack())
    True
    """
    return _AFTER in packed and _family(packed)[1]


@lru_cache(maxsize=4096)
def _family(packed: bytes) -> tuple[tuple[After, ...], bool]:
    raw = msgpack.unpackb(packed)
    after = tuple(_parent(one["task"], one["on"]) for one in raw.get("after", ()))
    return after, bool(after) and raw.get("schedule") is not None


@lru_cache(maxsize=4096)
def _parent(task: str, on: Literal["succeeded", "failed", "ended"]) -> After:
    return After(task=task, on=on)


_EACH: Final = bytes(msgpack.packb("each"))


def runs_on_each(packed: bytes) -> bool:
    """Return the field `each` of a spec that `Spec.pack` packed, at next to no cost for one that has it not.

    >>> runs_on_each(Spec(name="a", kind="command", each=True).pack()), runs_on_each(Spec(name="a", kind="b").pack())
    (True, False)
    """
    return _EACH in packed and _each(packed)


@lru_cache(maxsize=4096)
def _each(packed: bytes) -> bool:
    return msgpack.unpackb(packed).get("each", False) is True


class TaskTiming(NamedTuple):
    """The fields of a spec that determine its due times."""

    schedule: Schedule | None
    retry: Retry
    enabled: bool
    calendar: CalendarRule | None = None

    @property
    def continuous(self) -> bool:
        """Whether the task is always due."""
        return isinstance(self.schedule, Continuous)


@lru_cache(maxsize=1024)
def timing(packed: bytes) -> TaskTiming:
    """Return the timing of a spec that `Spec.pack` packed, at a tenth of the cost of `cached_spec`.

    A starting member reads the timing of every task, and nothing else of most tasks. Raises the same errors as
    `cached_spec`.

    >>> timing(Spec(name="a", kind="command", schedule={"every_s": 5}).pack()).schedule
    Every(every_s=5.0)
    """
    raw = msgpack.unpackb(packed)
    schedule, retry = raw.get("schedule"), raw.get("retry", {})
    return TaskTiming(
        None if schedule is None else _schedule(tuple(schedule.items())),
        _retry(tuple(retry.items())),
        raw.get("enabled", True),
        None if (calendar := raw.get("calendar")) is None else rule_of(calendar),
    )


_CALENDAR: Final = bytes(msgpack.packb("calendar"))


def calendar_of(packed: bytes) -> CalendarRule | None:
    """Return the field `calendar` of a spec that `Spec.pack` packed. Costs next to nothing if it has none.

    >>> calendar_of(Spec(name="a", kind="command", schedule={"cron": "@daily"}, calendar={"skip": "closing"}).pack())
    CalendarRule(skip=('closing',), only=(), on_skip='skip')
    """
    return timing(packed).calendar if _CALENDAR in packed else None


_SCHEDULES: Final = TypeAdapter[Schedule](Schedule)


@lru_cache(maxsize=4096)
def _schedule(items: tuple[tuple[str, Any], ...]) -> Schedule:
    return _SCHEDULES.validate_python(dict(items), context=ACCEPTED)


@lru_cache(maxsize=256)
def _retry(items: tuple[tuple[str, Any], ...]) -> Retry:
    return Retry.model_validate(dict(items))
