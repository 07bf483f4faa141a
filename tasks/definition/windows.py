"""The window of an occurrence: from the time at which its schedule was due before, to its own time. Pure."""

from functools import lru_cache

from tasks.definition.calendars import CalendarDays
from tasks.definition.schedule import latest_due_us
from tasks.definition.spec import Cron, Every, Schedule


@lru_cache(maxsize=4096)
def window_start_us(schedule: Schedule | None, days: CalendarDays | None, nominal_us: int) -> int | None:
    """Return when the window of the occurrence at `nominal_us` begins; None: this schedule makes no windows.

    The first occurrence after a registration has a window, too: the schedule is taken to have been there before. By
    calendars (`days`), a window spans the days on which nothing was due.

    >>> window_start_us(Every(every_s=300), None, 600_000_007)
    300000007
    >>> day_us = 86_400_000_000
    >>> window_start_us(Cron(cron="@daily"), None, 20_000 * day_us) == 19_999 * day_us
    True
    """
    match schedule:
        case Cron():
            return latest_due_us(schedule, days, 0, nominal_us - 1)
        case Every(every_s=every_s):
            return max(0, nominal_us - max(1, round(every_s * 1_000_000)))
    return None


def makes_windows(schedule: Schedule | None) -> bool:
    """Whether the occurrences of a schedule have windows: only where times repeat."""
    return isinstance(schedule, Cron | Every)
