"""The days on which a task is due, as its definition has them (`calendar`), and the days of the calendars it names.

A calendar is a list of days that the cluster keeps under a name. One whose name begins with `holidays/` holds the
public holidays of a region: it is known up to a day only, since laws change, and the leader extends it. Days are
counted as `datetime.date.toordinal` does.
"""

from bisect import bisect_left
from datetime import date
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator

CALENDAR_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}$"
NAMED_MAX: Final = 16
"""The most calendars in `skip`, and in `only`."""

MOVED_DAYS_MAX: Final = 31
"""The most days by which an occurrence is moved. If its calendars allow none of these days, it is skipped."""

HOLIDAYS: Final = "holidays/"
"""How the names of calendars of public holidays begin. The region follows, as `DE-BY` or `US`."""

FIRST_DAY: Final = date(1970, 1, 1)
LAST_DAY: Final = date(9998, 12, 31)
"""The first and the last day that a calendar may have."""

CalendarName = Annotated[str, StringConstraints(pattern=CALENDAR_PATTERN)]
"""A calendar's name: 1 to 128 letters, digits, `.`, `_`, `/` and `-`, of which the first is alphanumeric."""

OnSkip = Literal["skip", "next", "previous"]


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


_Names = Annotated[
    tuple[CalendarName, ...],
    Field(max_length=NAMED_MAX),
    BeforeValidator(_listed),
]


class CalendarRule(BaseModel):
    """On which days a task with a cron line or `at` is due: the days are those of the schedule's time zone."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    skip: _Names = Field(
        default=(),
        description="The calendars on whose days it is not due: names of the cluster's (`rota calendar`), or "
        "`holidays/REGION` for public holidays, such as `holidays/DE-BY`",
        examples=[["holidays/DE-BY", "closing"]],
    )
    only: _Names = Field(
        default=(), description="The calendars on whose days alone it is due: one of them must have the day"
    )
    on_skip: OnSkip = Field(
        default="skip",
        description="What becomes of an occurrence on another day. `skip`: there is none; `next` and `previous`: it is "
        "due at the same time of day on the next or previous day that will do, within 31 days, and only once if "
        "another one is due at that time",
    )

    @model_validator(mode="after")
    def _names_some(self) -> "CalendarRule":
        if not (self.skip or self.only):
            raise ValueError("names no calendar: give `skip` or `only`, or leave `calendar` out")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all its calendars, each once."""
        return tuple(dict.fromkeys((*self.skip, *self.only)))


def rule_of(raw: dict[str, Any]) -> CalendarRule:
    """Return the rule of an accepted definition, from its unpacked form."""
    return _rule(tuple(raw.get("skip", ())), tuple(raw.get("only", ())), raw.get("on_skip", "skip"))


@lru_cache(maxsize=1024)
def _rule(skip: tuple[str, ...], only: tuple[str, ...], on_skip: OnSkip) -> CalendarRule:
    return CalendarRule(skip=skip, only=only, on_skip=on_skip)


class NamedDays(NamedTuple):
    """The days of a calendar, in order. `until`: the last day up to which they are known; 0: they are all."""

    name: str
    days: tuple[int, ...]
    until: int = 0

    def has(self, day: int) -> bool:
        """Whether the calendar has a day."""
        at = bisect_left(self.days, day)
        return at < len(self.days) and self.days[at] == day


class CalendarDays(NamedTuple):
    """The calendars of a rule, with their days."""

    #: On whose days nothing is due.
    skip: tuple[NamedDays, ...]
    #: On whose days alone something is due; empty: on all others.
    only: tuple[NamedDays, ...] = ()
    #: Where an occurrence on another day goes.
    on_skip: OnSkip = "skip"
    #: The last day up to which all of them are known; 0: there is no such day.
    until: int = 0
    #: The calendars that the rule names and that are not there. While there are any, nothing is due.
    missing: tuple[str, ...] = ()

    def allows(self, day: int) -> bool:
        """Whether something may be due on a day."""
        return not any(one.has(day) for one in self.skip) and (not self.only or any(one.has(day) for one in self.only))

    def against(self, day: int) -> tuple[str, ...]:
        """Return the calendars because of which nothing is due on a day."""
        skipping = tuple(one.name for one in self.skip if one.has(day))
        return skipping or (() if self.allows(day) else tuple(one.name for one in self.only))

    def knows(self, day: int) -> bool:
        """Whether it is known what is due on a day."""
        return not self.missing and not 0 < self.until < day

    def home(self, day: int) -> int | None:
        """Return the day on which an occurrence of this day is due: this one, or another one. None: it falls out."""
        if self.allows(day):
            return day
        if self.on_skip != "skip":
            step = 1 if self.on_skip == "next" else -1
            for other in range(day + step, day + step * (MOVED_DAYS_MAX + 1), step):
                if not self.knows(other):
                    return None
                if self.allows(other):
                    return other
        return None

    def takes_in(self, day: int) -> bool:
        """Whether occurrences of other days may be moved to this one, on which something may be due."""
        return self.on_skip != "skip" and not self.allows(day - 1 if self.on_skip == "next" else day + 1)

    def first_from(self, day: int) -> int:
        """Return the first day whose occurrences may be due on `day`, or later."""
        first = day
        while self.on_skip == "next" and day - first < MOVED_DAYS_MAX and not self.allows(first - 1):
            first -= 1
        return first

    def next_home(self, day: int) -> int | None:
        """Return the first day from `day` on whose occurrences do not fall out; None: there is none."""
        found = self._next_allowed(day)
        return max(day, found - MOVED_DAYS_MAX) if found is not None and self.on_skip == "next" else found

    def _next_allowed(self, day: int) -> int | None:
        while True:
            if self.only:
                of_each = [one.days[at] for one in self.only if (at := bisect_left(one.days, day)) < len(one.days)]
                if not of_each:
                    return None
                day = min(of_each)
            if self.allows(day):
                return day
            day += 1
