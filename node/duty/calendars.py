"""Which calendars of public holidays the leader extends, so that their days are known 400 days ahead. Pure."""

from datetime import date
from typing import Final, NamedTuple

from node.state.calendar import AHEAD_DAYS
from node.state.value import State
from tasks.definition.public_holidays import region_of

EXTENDED_AT_DAYS: Final = 370
"""A calendar is extended once fewer days than this are known ahead."""

AGAIN_US: Final = 3_600_000_000
"""The pause before the next try, if the days could not be worked out or committed, in microseconds."""

LOOK_US: Final = 3_600_000_000
"""How often the calendars are looked at, in microseconds."""

_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_DAY_US: Final = 86_400_000_000


class WantedDays(NamedTuple):
    """The public holidays that are to be committed: of a region, from one day to another."""

    calendar: str
    region: str
    first: int
    last: int


def wanted_days(calendar: str, region: str, now_us: int) -> WantedDays:
    """Return the days of a calendar that are committed now: for some time ahead, and as long back."""
    today = _EPOCH_DAY + now_us // _DAY_US
    return WantedDays(calendar, region, today - AHEAD_DAYS, today + AHEAD_DAYS)


class CalendarKeeper:
    """Says when calendars are to be extended. For each leadership a new keeper is made."""

    def __init__(self) -> None:
        self._tried_us: dict[str, int] = {}

    def step(self, state: State, now_us: int) -> tuple[list[WantedDays], int | None]:
        """Return the days to work out and propose, and when to step again; None: once there are such calendars."""
        wanted: list[WantedDays] = []
        found = False
        for name in sorted(state.calendars):
            if (region := region_of(name)) is None:
                continue
            found = True
            days = wanted_days(name, region, now_us)
            near = state.calendars[name].until < days.last - AHEAD_DAYS + EXTENDED_AT_DAYS
            tried_us = self._tried_us.get(name)
            if near and (tried_us is None or not tried_us <= now_us < tried_us + AGAIN_US):
                self._tried_us[name] = now_us
                wanted.append(days)
        return wanted, now_us + LOOK_US if found else None
