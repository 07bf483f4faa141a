"""What a user registers: the task's definition, checked field by field (DESIGN.md, section 8).

The same models check the input, describe it in /openapi.json and give the packed form that is
replicated. A spec that was accepted is complete: every default is written out, so that a later
version's defaults do not change what is already registered.
"""

from datetime import datetime
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgpack
from pydantic import (
    AwareDatetime,
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

from tasks.cron import check_at, check_cron, check_timezone

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"

NODE_LABEL: Final = "node"
"""The label that every member bears with its own id as the value: `group: {node: node-1}` binds a task to node-1."""

Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
"""A task's name, or a member's id: letters, digits, `.`, `_` and `-`, 128 at most, no slash."""

Weight = Annotated[int, Field(ge=1, le=1_000_000)]


_ACCEPTED: Final = {"accepted": True}
"""The context in which a packed spec is read. Its cron line, time zone and `at` were checked when it came in; they are
not checked again, since what is replicated must not depend on the time zones that one machine happens to know, nor
become unreadable where an earlier version took more."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Cron(_Model):
    """Due by a cron line of five fields, or six with seconds first or an `@daily`-like name."""

    cron: str = Field(max_length=200, examples=["0 3 * * *"])
    timezone: str = "UTC"

    @field_validator("timezone")
    @classmethod
    def _known_timezone(cls, value: str, info: ValidationInfo) -> str:
        if info.context is not _ACCEPTED:
            check_timezone(value)
        return value

    @model_validator(mode="after")
    def _fires(self, info: ValidationInfo) -> "Cron":
        if info.context is not _ACCEPTED:
            check_cron(self.cron, self.timezone)
        return self


class Every(_Model):
    """Due every so many seconds, counted from the registration, the last change or the resumption."""

    every_s: Annotated[float, Field(ge=0.1, le=366 * 86_400)]


class At(_Model):
    """Due once."""

    at: AwareDatetime

    @field_validator("at")
    @classmethod
    def _in_the_calendar(cls, value: datetime, info: ValidationInfo) -> datetime:
        if info.context is not _ACCEPTED:
            check_at(value)
        return value


class Continuous(_Model):
    """Always due: when a run has ended, the next one begins."""

    continuous: Literal[True]


Schedule = Cron | Every | At | Continuous


class Retry(_Model):
    """After a failed attempt: up to `attempts` in all, `backoff_s * factor**n` seconds apart, `max_s` at most."""

    attempts: Annotated[int, Field(ge=1, le=1000)] = 3
    backoff_s: Annotated[float, Field(ge=0, le=86_400)] = 10
    factor: Annotated[float, Field(ge=1, le=100)] = 2
    max_s: Annotated[float, Field(ge=0, le=86_400)] = 900


class Failover(_Model):
    """After the member of an attempt was lost: wait, resume how, and how often at most."""

    grace_s: Annotated[float, Field(ge=0, le=86_400)] = 0
    resume: Literal["checkpoint", "restart", "abandon"] = "checkpoint"
    max: Annotated[int, Field(ge=0, le=1000)] = 3


EXAMPLE: Final[dict[str, JsonValue]] = {
    "name": "hello",
    "kind": "command",
    "params": {"argv": ["echo", "hello"]},
    "schedule": {"every_s": 60},
}
"""What /docs fills in, to be tried as it is."""


def _labels(value: Any) -> Any:
    return {} if value is None else value


class Spec(_Model):
    """A task's definition."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    name: Name
    kind: Name
    params: dict[str, JsonValue] = {}
    schedule: Schedule | None = None
    key: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    group: Annotated[dict[str, str], BeforeValidator(_labels)] = {}
    pin: Name | None = None
    sticky: bool = Field(default=False, description="True by default for continuous tasks")
    weight: Weight = 1
    standbys: Annotated[int, Field(ge=0, le=100)] = 0
    overlap: Literal["skip", "queue", "replace", "allow"] = "skip"
    catch_up: Literal["skip", "latest", "all"] = "latest"
    timeout_s: Annotated[float, Field(gt=0, le=366 * 86_400)] | None = None
    retry: Retry = Retry()
    failover: Failover = Failover()
    enabled: bool = True

    @model_validator(mode="before")
    @classmethod
    def _continuous_is_sticky(cls, value: Any) -> Any:
        if isinstance(value, dict) and "sticky" not in value:
            schedule = value.get("schedule")
            if isinstance(schedule, dict) and schedule.get("continuous") is True:
                return {**value, "sticky": True}
        return value

    @property
    def bound(self) -> bool:
        """Whether the task may run on one member only. A `pin` is a preference, and binds nothing."""
        return NODE_LABEL in self.group

    @property
    def continuous(self) -> bool:
        """Whether the task is always due."""
        return isinstance(self.schedule, Continuous)

    def pack(self) -> bytes:
        """The spec as msgpack, every default written out; equal specs give equal bytes."""
        return bytes(msgpack.packb(_sorted(self.model_dump(mode="json"))))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def accepted(plain: Any) -> Spec:
    """The spec that was packed as these plain values. Raises `ValueError` (pydantic's) for what is none.

    The same on every member: an unknown time zone, or a cron line that never fires, is not looked for.
    """
    return Spec.model_validate(plain, context=_ACCEPTED)


def read(packed: bytes) -> Spec:
    """The spec that `Spec.pack` packed. Raises as `accepted`, or msgpack's `ValueError`."""
    return accepted(msgpack.unpackb(packed))


@lru_cache(maxsize=1024)
def unpack(packed: bytes) -> Spec:
    """As `read`, and remembered. For what is asked for again: a spec is a score of objects, and a list of a thousand
    that passes through here leaves the collector of garbage (node/runtime/gc_tuning.py) all of them to look at.
    """
    return read(packed)


class TaskTiming(NamedTuple):
    """What of a spec says when it is due."""

    schedule: Schedule | None
    retry: Retry
    enabled: bool

    @property
    def continuous(self) -> bool:
        """Whether the task is always due."""
        return isinstance(self.schedule, Continuous)


@lru_cache(maxsize=1024)
def timing(packed: bytes) -> TaskTiming:
    """The timing of a spec that `Spec.pack` packed: the same as `unpack` has, for a tenth of its price.

    A member that starts looks at all tasks there are, and of most of them at nothing else. Raises as `unpack` does.

    >>> timing(Spec(name="a", kind="command", schedule={"every_s": 5}).pack()).schedule
    Every(every_s=5.0)
    """
    raw = msgpack.unpackb(packed)
    schedule, retry = raw.get("schedule"), raw.get("retry", {})
    return TaskTiming(
        None if schedule is None else _schedule(tuple(schedule.items())),
        _retry(tuple(retry.items())),
        raw.get("enabled", True),
    )


_SCHEDULES: Final = TypeAdapter[Schedule](Schedule)


@lru_cache(maxsize=4096)
def _schedule(items: tuple[tuple[str, Any], ...]) -> Schedule:
    return _SCHEDULES.validate_python(dict(items), context=_ACCEPTED)


@lru_cache(maxsize=256)
def _retry(items: tuple[tuple[str, Any], ...]) -> Retry:
    return Retry.model_validate(dict(items))
