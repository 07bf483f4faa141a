"""The definition of a channel: where notices go, and which notices. Pure.

The same model checks the input, describes it in /openapi.json and in docs/reference, and gives the packed form that is
replicated.
"""

import re
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, get_args
from urllib.parse import urlsplit

import msgpack
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationInfo, field_validator, model_validator

from tasks.definition.cron import ACCEPTED, Timezone
from tasks.secret import Reference

Severity = Literal["info", "warning", "error", "critical"]
"""How bad an event is, from the least bad to the worst."""

TaskEvent = Literal[
    "run_failed",
    "run_recovered",
    "run_succeeded",
    "run_degraded",
    "run_unusual",
    "backfill_ended",
    "backfill_paused",
    "deadline_breached",
    "deadline_met",
    "deadline_dropped",
]
ClusterEvent = Literal["member_down", "member_up", "member_impaired", "member_fit", "majority_at_risk", "majority_safe"]
EventName = Literal[TaskEvent, ClusterEvent]

SEVERITIES: Final[tuple[Severity, ...]] = get_args(Severity)
TASK_EVENTS: Final[frozenset[str]] = frozenset(get_args(TaskEvent))
EVENTS: Final[tuple[str, ...]] = (*get_args(TaskEvent), *get_args(ClusterEvent))
BY_NAME_ONLY: Final = frozenset({"run_succeeded"})
"""The events that are told only on channels that name them: they are many, and say that nothing is wrong."""

MEANING: Final[dict[str, str]] = {
    "run_failed": "a run failed, timed out or was abandoned, after its last retry",
    "run_recovered": "the first success of a task after `run_failed`, or the first without a rest after `run_degraded`",
    "run_succeeded": "a run succeeded, told only where `events` names this; not the runs of backfills",
    "run_degraded": "a run succeeded, and left a part undone, such as a copy of a backup at a further destination",
    "run_unusual": "a run succeeded, and something about it is unusual, such as a backup of half the usual size",
    "backfill_ended": "a backfill ended: all of its occurrences did, or it was cancelled; a warning if some failed",
    "backfill_paused": "a backfill was paused by itself, as after five failures in a row",
    "deadline_breached": "a task is late: a deadline of it has passed",
    "deadline_met": "a deadline that was breached is met again",
    "deadline_dropped": "a deadline is not breached any more, but was not met: the late occurrence was skipped, "
    "missed or cancelled, or the task was paused, changed or deleted",
    "member_down": "a member is down; info if it stopped in good order, else a warning",
    "member_up": "a member is back",
    "member_impaired": "a member takes on nothing new, because its disk is nearly full or it cannot start attempts",
    "member_fit": "a member takes on work again after `member_impaired`",
    "majority_at_risk": "the loss of one more member would end the quorum; critical, and a warning if all members that "
    "are down stopped in good order",
    "majority_safe": "the quorum survives the loss of one more member again",
}
"""When each event is reported."""

SEVERITY_MAX: Final[dict[str, Severity]] = {
    "run_failed": "error",
    "run_recovered": "info",
    "run_succeeded": "info",
    "run_degraded": "warning",
    "run_unusual": "warning",
    "backfill_ended": "warning",
    "backfill_paused": "error",
    "deadline_breached": "error",
    "deadline_met": "info",
    "deadline_dropped": "info",
    "member_down": "warning",
    "member_up": "info",
    "member_impaired": "error",
    "member_fit": "info",
    "majority_at_risk": "critical",
    "majority_safe": "info",
}
"""The highest severity that each event can have (`node.state.facts` makes the events)."""

URL_CHARS_MAX: Final = 2000
_TIME: Final = r"^([01][0-9]|2[0-3]):[0-5][0-9]$"

TimeOfDay = Annotated[str, StringConstraints(pattern=_TIME)]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Quiet(_Model):
    """The hours in which only critical notices are sent. The others are sent when the hours end."""

    from_: TimeOfDay = Field(alias="from", description="When they begin, each day", examples=["22:00"])
    to: TimeOfDay = Field(description="When they end; earlier than `from`: on the next day", examples=["07:00"])
    timezone: Timezone = "UTC"

    @model_validator(mode="after")
    def _some_hours(self) -> "Quiet":
        if self.from_ == self.to:
            raise ValueError("quiet hours begin and end at different times: a channel that is never to tell is deleted")
        return self


class DailyDigest(_Model):
    """A message a day that says what ran, succeeded, failed, is late, was missed and is paused."""

    at: TimeOfDay = Field(description="When it is made, each day", examples=["07:00"])
    timezone: Timezone = "UTC"
    by: Annotated[str, StringConstraints(min_length=1, max_length=128)] | None = Field(
        default=None, description="The label by whose values the figures are given; null: all tasks together"
    )
    only: bool = Field(default=False, description="Whether nothing else is told on the channel")


class Channel(_Model):
    """Where notices are sent, and which notices."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"kind": "webhook", "url": "https://hooks.example/rota", "secret": {"secret": "hook"}}]
        }
    )

    kind: Literal["webhook", "apprise"] = Field(
        description="`webhook`: a POST with JSON; `apprise`: mail, Slack, Teams and others, by Apprise "
        "(`pip install rota[notify]` on every node)"
    )
    url: Reference | Annotated[str, StringConstraints(min_length=1, max_length=URL_CHARS_MAX)] = Field(
        description="Where to send: `https://...`, or a reference to a secret that holds it. Apprise's URLs hold "
        "passwords, and are references always"
    )
    secret: Reference | None = Field(
        default=None, description="The secret that a webhook's messages are signed with (HMAC-SHA256); null: unsigned"
    )
    events: tuple[EventName, ...] = Field(
        default=(), description="The events that are told; none given: all but `run_succeeded`"
    )
    min_severity: Severity = Field(default="info", description="Events of less severity are not told")
    labels: Annotated[dict[str, str], Field(max_length=100)] = Field(
        default={}, description="Only tasks that have these labels are told of, and nothing about members"
    )
    quiet: Quiet | None = Field(default=None, description="The hours in which only critical notices are sent")
    digest: DailyDigest | None = Field(
        default=None, description="The daily digest, of the tasks that have `labels`; null: none is sent"
    )
    group_s: Annotated[float, Field(ge=0, le=3600)] = Field(
        default=5, description="How long a notice waits for others, in seconds: they are sent in one message"
    )
    enabled: bool = Field(
        default=True,
        description="false: nothing is told, and new events are not kept; waiting notices are sent once it is "
        "true again",
    )

    @field_validator("events")
    @classmethod
    def _each_once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(event for event in EVENTS if event in value)

    @model_validator(mode="after")
    def _consistent(self) -> "Channel":
        if self.kind == "apprise" and isinstance(self.url, str):
            raise ValueError('the url of an apprise channel is a reference, such as {"secret": "mail_url"}')
        if self.kind == "apprise" and self.secret is not None:
            raise ValueError("only a webhook's messages are signed: leave `secret` out")
        if self.digest is not None and self.digest.only and self.events:
            raise ValueError("with `only: true` the digest is all that is told: leave `events` out")
        if isinstance(self.url, str) and (why := url_fault(self.url)) is not None:
            raise ValueError(f"url: {why}")
        if self.labels and (about_members := sorted(set(self.events) - TASK_EVENTS)):
            raise ValueError(f"labels choose tasks, and {', '.join(about_members)} is about members")
        return self

    @model_validator(mode="after")
    def _tells_something(self, info: ValidationInfo) -> "Channel":
        # Only input is checked for this: earlier versions accepted such channels, and have packed them.
        if (
            info.context is not ACCEPTED
            and self.digest is None
            and not any(self._may_tell(event, SEVERITY_MAX[event], about_task=event in TASK_EVENTS) for event in EVENTS)
        ):
            chosen = ", ".join(self.events) or ("events of tasks" if self.labels else "all events")
            raise ValueError(f"it would tell nothing: none of {chosen} is ever of severity {self.min_severity}")
        return self

    def pack(self) -> bytes:
        """Pack the channel as msgpack. Equal channels give equal bytes."""
        plain = self.plain()
        if self.digest is None:  # as in versions that know no digests
            del plain["digest"]
        return bytes(msgpack.packb(plain))

    def plain(self) -> dict[str, Any]:
        """Return the channel as JSON values."""
        return self.model_dump(mode="json", by_alias=True)

    def wants(self, event: str, severity: str, labels: dict[str, str] | None) -> bool:
        """Whether a fact is sent on this channel. `labels`: its task's labels; None if the fact concerns no task."""
        if not self.enabled or not self._may_tell(event, severity, about_task=labels is not None):
            return False
        return not self.labels or (labels is not None and self.labels.items() <= labels.items())

    def _may_tell(self, event: str, severity: str, *, about_task: bool) -> bool:
        """Whether this channel's filters let the event pass for at least some tasks or members."""
        if self.digest is not None and self.digest.only:
            return False
        if SEVERITIES.index(severity) < SEVERITIES.index(self.min_severity) or (self.labels and not about_task):
            return False
        return event in self.events if self.events else event not in BY_NAME_ONLY


def url_fault(url: str) -> str | None:
    """Describe the fault of a webhook's URL, without quoting the URL; None if it is valid.

    >>> url_fault("https://hooks.example/x"), url_fault("ftp://hooks.example")
    (None, 'a webhook is at http:// or https://, with a host')
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return "it is no URL"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "a webhook is at http:// or https://, with a host"
    if parts.username is not None or parts.password is not None:
        return "a webhook's URL holds no user: use a secret in its path, by reference"
    return "it has spaces or control characters in it" if re.search(r"[\s\x00-\x1f]", url) else None


def accepted_channel(plain: Any) -> Channel:
    """Make a channel from the plain values that were packed. Raises pydantic's `ValueError` if they are not a channel.

    The checks for input are left out, so that the result is the same on every member and in every version.
    """
    return Channel.model_validate(plain, context=ACCEPTED)


@lru_cache(maxsize=256)
def channel_of(packed: bytes) -> Channel:
    """The inverse of `Channel.pack`. Raises the errors of `accepted_channel`, or msgpack's `ValueError`."""
    return accepted_channel(msgpack.unpackb(packed))
