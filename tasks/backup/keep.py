"""Decides which backups are kept (pure): the newest, and the newest of each hour, day, week, month and year."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Final
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tasks.backup.chain import needed_by
from tasks.backup.manifest import Manifest
from tasks.definition.cron import Timezone

_UNITS: Final = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
SPAN: Final = r"([1-9][0-9]{0,4})([hdw])"
"""The pattern of a length of time in hours, days or weeks, such as 14d."""


_PERIODS: Final[Mapping[str, Callable[[datetime], str]]] = {
    "hourly": lambda at: f"{at:%Y-%m-%d %H:00%z}",
    "daily": lambda at: f"{at:%Y-%m-%d}",
    "weekly": lambda at: f"{at:%G-W%V}",
    "monthly": lambda at: f"{at:%Y-%m}",
    "yearly": lambda at: f"{at:%Y}",
}
"""For each rule that counts periods, a function that names the period of a time. Weeks are those of ISO 8601. An hour
that daylight saving repeats counts as two periods."""

Count = Annotated[int | None, Field(ge=1, le=10_000)]


class KeepRules(BaseModel):
    """Which backups to keep. A backup stays if any of these rules keeps it; the one just made always stays.

    A rule for periods counts periods with a backup, so that backups do not go because none were made for a while.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    last: Count = Field(default=None, description="How many of the newest")
    hourly: Count = Field(default=None, description="The newest of each hour, for this many hours with a backup")
    daily: Count = Field(default=None, description="The newest of each day, for this many days with a backup")
    weekly: Count = Field(default=None, description="The newest of each week, for this many weeks with a backup")
    monthly: Count = Field(default=None, description="The newest of each month, for this many months with a backup")
    yearly: Count = Field(default=None, description="The newest of each year, for this many years with a backup")
    within: str | None = Field(
        default=None,
        pattern=rf"^{SPAN}$",
        description="All that were made at most this long before the newest: hours (h), days (d) or weeks (w)",
        examples=["14d"],
    )
    minimum: Count = Field(
        default=None, description="Of the newest, this many stay whatever the other rules say; by itself it is no rule"
    )
    timezone: Timezone = Field(
        default="UTC", description="The time zone by whose clocks days, weeks, months and years begin"
    )

    @model_validator(mode="after")
    def _some(self) -> "KeepRules":
        if all(getattr(self, name) is None for name in ("last", "within", *_PERIODS)):
            raise ValueError("no rule is given: set one of last, hourly, daily, weekly, monthly, yearly and within")
        return self


def why_kept(backups: Sequence[Manifest], rules: KeepRules) -> dict[str, list[str]]:
    """Return, by URL, why each backup stays: a sentence for each rule, and which incremental backups need it.

    Backups that go are left out.
    """
    newest_first = sorted(backups, key=lambda backup: (backup.created, backup.token), reverse=True)
    why: dict[str, list[str]] = {}
    for number, backup in enumerate(newest_first[: rules.last or 0], 1):
        why.setdefault(backup.url, []).append(f"last: {number} of {rules.last}")
    zone = ZoneInfo(rules.timezone)
    for name, period_of in _PERIODS.items():
        wanted = getattr(rules, name)
        seen: list[str] = []
        for backup in newest_first if wanted else ():
            period = period_of(backup.created.astimezone(zone))
            if period in seen:
                continue
            if len(seen) == wanted:
                break
            seen.append(period)
            why.setdefault(backup.url, []).append(f"{name}: {period}, {len(seen)} of {wanted}")
    if rules.within is not None and newest_first:
        since = newest_first[0].created - span(rules.within)
        for backup in newest_first:
            if backup.created >= since:
                why.setdefault(backup.url, []).append(f"within: {rules.within} before the newest")
    for number, backup in enumerate(newest_first[: rules.minimum or 0], 1):
        if backup.url not in why:
            why[backup.url] = [f"minimum: {number} of {rules.minimum}"]
    for name, needing in needed_by({backup.name for backup in backups if backup.url in why}, backups).items():
        others = f" and {len(needing) - 1} more" if len(needing) > 1 else ""
        for url in (backup.url for backup in backups if backup.name == name):
            why.setdefault(url, []).append(f"needed by {max(needing)}{others}")
    return why


def span(text: str) -> timedelta:
    """Return the length of time that `within` names. Raises `ValueError`.

    >>> span("36h"), span("2w")
    (datetime.timedelta(days=1, seconds=43200), datetime.timedelta(days=14))
    """
    match = re.fullmatch(SPAN, text)
    if match is None:
        raise ValueError(f"{text!r} is no length of time: write such as 36h, 14d or 8w")
    return int(match[1]) * _UNITS[match[2]]


def rules_of(keep: "int | KeepRules | None") -> KeepRules | None:
    """Return the rules that the param `keep` stands for; None: all stay."""
    return KeepRules(last=keep) if isinstance(keep, int) else keep
