"""Cron lines and their due times. Times are microseconds since the Unix epoch, UTC.

cronsim reads the lines, and follows Debian's cron when the clocks change:

- A line of five fields at fixed times (neither minute nor hour begins with `*`) follows the wall clock. A time that the
  clocks skip is due at the first minute after the change; a time that occurs twice is due only the first time.
- Any other line (`*/5 * * * *`, `0 * * * *`, six fields) follows elapsed time: nothing is due in an hour that does not
  exist, and an hour that occurs twice has its due times twice.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from importlib import resources
from itertools import islice
from typing import Annotated, Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from pydantic import AfterValidator, Field, ValidationInfo

NAMED: Final[dict[str, str]] = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
"""cron's names for common lines (crontab(5)). `@reboot` is not among them: it has no meaning in a cluster."""

LAST_FIRE_US: Final = 253_370_764_800_000_000
"""The beginning of the year 9999. A later run could have no second attempt, as the calendar ends with that year."""

MOVED_A_DAY_MAX: Final = 24
"""The most due times a day that calendars may move to other days."""

_DAY_US: Final = 86_400_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_CHECKED_FROM_US: Final = 946_684_800_000_000
"""2000-01-01, from which lines are checked. If a line has no due time in the following fifty years (cronsim's horizon),
it never has one: even a 29 February on a given day of the week occurs every 28 years, or after 40 years around a
century that is not a leap year."""


def at_us_of(at: datetime) -> int:
    """Convert `at` (aware) to microseconds since the epoch."""
    return (at - _EPOCH) // _MICROSECOND


def check_at(at: datetime) -> None:
    """Raise `ValueError`, with a message for users, if `at` is too late to be a due time.

    >>> check_at(datetime(9999, 1, 1, 0, 0, 1, tzinfo=UTC))
    Traceback (most recent call last):
    ValueError: must not be later than the beginning of the year 9999 (UTC), where the calendar ends
    """
    if at_us_of(at) > LAST_FIRE_US:
        raise ValueError("must not be later than the beginning of the year 9999 (UTC), where the calendar ends")


def check_timezone(name: str) -> None:
    """Raise `ValueError`, with a message for users, unless `name` is a time zone of the IANA database."""
    _zone(name)


@lru_cache(maxsize=4096)
def check_cron(line: str, timezone: str) -> None:
    """Raise `ValueError`, with a message for users, unless `line` parses and has a due time.

    >>> check_cron("0 0 30 2 *", "UTC")
    Traceback (most recent call last):
    ValueError: the cron line '0 0 30 2 *' never fires: no month that it names has such a day
    """
    expression = _expression(line)
    zone = _zone(timezone)
    try:
        CronSim(expression, _aware(_CHECKED_FROM_US, zone))
    except CronSimError as error:
        raise ValueError(_complaint(line, expression)) from error
    if next(cron_times(line, timezone, _CHECKED_FROM_US), None) is None:
        raise ValueError(f"the cron line {line!r} never fires: there is no such day in fifty years")


@lru_cache(maxsize=4096)
def check_rare(line: str, timezone: str) -> None:
    """Raise `ValueError` if a cron line is due too often for its times to be moved to other days.

    >>> check_rare("*/5 * * * *", "UTC")
    Traceback (most recent call last):
    ValueError: '*/5 * * * *' is due more than 24 times a day, too often for `on_skip: next` or `previous`
    """
    times = list(islice(cron_times(line, timezone, _CHECKED_FROM_US), MOVED_A_DAY_MAX + 1))
    if len(times) > MOVED_A_DAY_MAX and times[-1] - times[0] < _DAY_US:
        raise ValueError(
            f"{line!r} is due more than {MOVED_A_DAY_MAX} times a day, too often for `on_skip: next` or `previous`"
        )


@lru_cache(maxsize=4096)
def unreadable_line(line: str, timezone: str) -> str | None:
    """Say why `line` cannot be read on this machine; None if it can be read."""
    try:
        CronSim(_expression(line), _aware(_CHECKED_FROM_US, _zone(timezone)))
    except (ValueError, CronSimError) as error:
        return str(error)
    return None


class CronLine:
    """A cron line that caches the last interval between two due times. `times` gives those later than a time.

    All times in this interval have the same next due time, so ten thousand tasks with one line cost one search.
    """

    def __init__(self, times: Callable[[int], Iterator[int]]) -> None:
        self._times = times
        self._gap: tuple[int, int] | None = None

    def next_us(self, after_us: int) -> int | None:
        """Return the first due time later than `after_us`; None if there is none."""
        gap = self._gap
        if gap is not None and gap[0] <= after_us < gap[1]:
            return gap[1]
        due_us = next(self._times(after_us), None)
        if due_us is not None:
            self._gap = (after_us, due_us)
        return due_us


@lru_cache(maxsize=4096)
def cron_line(line: str, timezone: str) -> CronLine:
    """Return the shared `CronLine` of all tasks with this line and time zone."""
    return CronLine(partial(cron_times, line, timezone))


def cron_times(line: str, timezone: str, after_us: int) -> Iterator[int]:
    """Due times of a cron line later than `after_us`, in order; none if this machine cannot read the line.

    Another member, with other time zones, may have checked the line when the task was registered.
    """
    try:
        times = CronSim(_expression(line), _aware(after_us, _zone(timezone)))
    except (ValueError, CronSimError, OverflowError):
        return
    try:
        last_us = after_us
        for due in times:
            due_us = (due.astimezone(UTC) - _EPOCH) // _MICROSECOND
            # In the second pass of an hour that occurs twice, cronsim first yields times of the first pass.
            if due_us > last_us:
                yield due_us
                last_us = due_us
    except OverflowError:
        return  # the calendar ends with the year 9999


def _aware(at_us: int, zone: ZoneInfo) -> datetime:
    moment = _EPOCH + timedelta(microseconds=at_us)
    # cronsim skips its daylight-saving rules only for the UTC object itself.
    return moment if zone.key == "UTC" else moment.astimezone(zone)


def _expression(line: str) -> str:
    word = line.strip().lower()
    if word == "@reboot":
        raise ValueError("@reboot has no meaning in a cluster, which does not start at one moment: give times instead")
    if word.startswith("@"):
        if word not in NAMED:
            raise ValueError(f"{line!r} is not a name that cron knows: use one of {', '.join(NAMED)}, or five fields")
        return NAMED[word]
    return line


def _complaint(line: str, expression: str) -> str:
    """Return a sentence for users about a line that cronsim refused."""
    fields = expression.upper().split()
    if len(fields) not in (5, 6):
        return (
            f"a cron line has five fields (minute hour day-of-month month day-of-week), or six with seconds first; "
            f"{line!r} has {len(fields)}"
        )
    return _bad_field(line, fields)


def _bad_field(line: str, fields: list[str]) -> str:
    names = ["second", "minute", "hour", "day of the month", "month", "day of the week"][-len(fields) :]
    for position, (name, text) in enumerate(zip(names, fields, strict=True)):
        alone = ["*"] * len(fields)
        alone[position] = text
        try:
            CronSim(" ".join(alone), _EPOCH)
        except CronSimError:
            return f"the cron line {line!r} does not parse: {text!r} is not a valid {name}"
    return f"the cron line {line!r} never fires: no month that it names has such a day"


def known_zone(name: str) -> ZoneInfo | None:
    """Return the time zone of that name; None if this machine does not know it."""
    return _zone(name) if name in _zone_names() else None


@lru_cache(maxsize=512)
def _zone(name: str) -> ZoneInfo:
    """Return the time zone of that name. Raises `ValueError` if there is none."""
    if name not in _zone_names():
        raise ValueError(f"{name!r} is not a time zone of the IANA database, such as Europe/Paris or UTC")
    return ZoneInfo(name)


@lru_cache(maxsize=1)
def _zone_names() -> frozenset[str]:
    """Read the names in the tzdata package, which every member has. A machine may know others, such as "localtime"."""
    return frozenset(resources.files("tzdata").joinpath("zones").read_text("utf-8").split())


ACCEPTED: Final = {"accepted": True}
"""The validation context for a spec that was accepted before. Its time zones, cron line and `at` are not checked again:
the replicated state must not depend on the time zones that one machine knows, and must stay readable even if an earlier
version accepted more."""


def _known(name: str, info: ValidationInfo) -> str:
    if info.context is not ACCEPTED:
        check_timezone(name)
    return name


Timezone = Annotated[
    str, AfterValidator(_known), Field(description="A time zone of the IANA database", examples=["Europe/Paris"])
]
"""The name of a time zone. It is checked, except in the context `ACCEPTED`."""
