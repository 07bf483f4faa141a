"""A calendar of the cluster: days, under a name. A value."""

from dataclasses import dataclass, field
from typing import Final

from immutables import Map

from tasks.definition.calendars import CalendarDays, NamedDays
from tasks.definition.spec import TaskTiming

AHEAD_DAYS: Final = 400
"""How far ahead the days of public holidays are committed, and how far back they are kept."""


@dataclass(frozen=True, slots=True)
class Calendar:
    """A calendar of the cluster. Days are counted as `datetime.date.toordinal` does."""

    #: Its days, in order.
    days: tuple[int, ...] = ()
    #: The last day up to which they are known; 0: these are all.
    until: int = 0
    #: The tasks whose definitions name it.
    tasks: Map[str, bool] = field(default_factory=Map)
    #: The set of files that made it (`node.state.set_owned`); "": none did.
    of_set: str = ""


Calendars = Map[str, Calendar]


def days_of(calendars: Calendars, timing: TaskTiming) -> CalendarDays | None:
    """Return the days on which a task may be due; None: its definition names no calendar."""
    rule = timing.calendar
    if rule is None:
        return None
    known = {name: NamedDays(name, one.days, one.until) for name in rule.names if (one := calendars.get(name))}
    return CalendarDays(
        skip=tuple(known[name] for name in rule.skip if name in known),
        only=tuple(known[name] for name in rule.only if name in known),
        on_skip=rule.on_skip,
        until=min((one.until for one in known.values() if one.until), default=0),
        missing=tuple(name for name in rule.names if name not in known),
    )
