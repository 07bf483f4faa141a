"""The entry that sets the days of a calendar, and which tasks use it. Due times are worked out by owners, not here.

The days of public holidays come in entries, too, which the leader proposes (`node.duty.calendars`): so all members
decide by the same ones, whatever version of the rules each has.
"""

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from immutables import Map

from node.state.calendar import Calendar, Calendars
from node.state.copying import replace
from node.state.draft import Draft, refused
from node.state.entries import Entry, applies
from node.state.set_owned import owner_after, owner_fault, prune_fault
from node.state.value import Result, State, TaskRow
from tasks.definition.calendars import CALENDAR_PATTERN, FIRST_DAY, HOLIDAYS, LAST_DAY
from tasks.definition.spec import calendar_of

CALENDARS_MAX: Final = 200
CALENDAR_DAYS_MAX: Final = 2000
RULES_CALENDARS: Final = 10
"""From these rules on (`Lead.rules`), there are calendars, and blackouts."""

_FIRST: Final = FIRST_DAY.toordinal()
_LAST: Final = LAST_DAY.toordinal()


@dataclass(frozen=True, slots=True)
class SetCalendar(Entry):
    """Make a calendar, or change its days; or remove it.

    It counts for occurrences that are not decided yet, past ones included. Result: `{"change"}`: created, changed,
    unchanged or removed.
    """

    #: Its name.
    name: str
    #: Its days, in order; None: it is removed.
    days: tuple[int, ...] | None
    #: The last day up to which they are known; 0: these are all.
    until: int = 0
    #: The set of files that it is of if this makes it; a set removes its own only. "": none, or any.
    by_set: str = ""
    #: Whether it becomes that of `by_set` though another set made it.
    adopt: bool = False


@applies(SetCalendar, code=35)
def set_calendar(draft: Draft, entry: SetCalendar) -> Result:
    """Make, change or remove a calendar. Those that use it are decided on anew. Result: `{"change"}`."""
    if draft.lead.rules < RULES_CALENDARS:
        return refused("invalid", "calendars need a leader of this version")
    if (fault := owner_fault(draft.lead.rules, entry.by_set)) is not None:
        return refused("invalid", fault)
    known = draft.calendars.get(entry.name)
    if entry.days is None:
        if known is None:
            return refused("invalid", f"there is no calendar {entry.name!r}")
        if (fault := prune_fault(f"the calendar {entry.name}", known.of_set, entry.by_set)) is not None:
            return refused("invalid", fault)
        if (used := len(known.tasks)) > 0:
            those = f"{used} {'task uses' if used == 1 else 'tasks use'} it, as {min(known.tasks)}"
            return refused("exists", f"{those}: change them first")
        draft.calendars = draft.calendars.delete(entry.name)
        return Result("ok", {"change": "removed"})
    if (fault := calendar_fault(entry.name, entry.days, entry.until)) is not None:
        return refused("invalid", fault)
    if known is None and len(draft.calendars) >= CALENDARS_MAX:
        return refused("full", f"a cluster has {CALENDARS_MAX} calendars at most: remove some")
    of_set = owner_after(known is not None, known.of_set if known else "", entry.by_set, adopt=entry.adopt)
    same_days = known is not None and (known.days, known.until) == (entry.days, entry.until)
    if known is not None and same_days and known.of_set == of_set:
        return Result("ok", {"change": "unchanged"})
    after = replace(known or Calendar(), days=entry.days, until=entry.until, of_set=of_set)
    draft.calendars = draft.calendars.set(entry.name, after)
    if not same_days:
        draft.retimed.update(after.tasks)  # their rows and runs stay as they are
    return Result("ok", {"change": "created" if known is None else "changed"})


def calendar_fault(name: str, days: tuple[int, ...], until: int) -> str | None:
    """Describe the fault of a calendar in a sentence; None if it is valid."""
    if re.fullmatch(CALENDAR_PATTERN, name) is None:
        return f"{name[:200]!r} is no name of a calendar: letters, digits and . _ / - are, 128 at most"
    if len(days) > CALENDAR_DAYS_MAX:
        return f"a calendar has {CALENDAR_DAYS_MAX} days at most, and {name} would have {len(days)}"
    if any(one >= other for one, other in pairwise(days)):
        return f"the days of the calendar {name} are not in order, or one is in it twice"
    if any(not _FIRST <= day <= _LAST for day in days) or not (until == 0 or _FIRST <= until <= _LAST):
        return f"the calendar {name} has days from 1970 to 9998"
    if name.startswith(HOLIDAYS) and not until:
        return f"{HOLIDAYS} is kept for public holidays, which are worked out when a task uses them: take another name"
    return None


def calendars_fault(draft: Draft, task: str, packed: bytes, row: TaskRow | None = None) -> str | None:
    """Describe why a task may not be due by the calendars that its definition names; None: it may.

    `row`: the task as it is registered.
    """
    rule = calendar_of(packed)
    if rule is None or (row is not None and calendar_of(row.spec_packed) == rule):
        return None
    if draft.lead.rules < RULES_CALENDARS:
        return f"{task}: `calendar` needs a leader of this version"
    for name in rule.names:
        if name not in draft.calendars:
            return f"{task} uses the calendar {name}, which is not there: make it first (rota calendar set {name} ...)"
    return None


def follow_calendars(draft: Draft, before: State) -> None:
    """Note which calendars the tasks use that this entry has changed."""
    if not draft.calendars:
        return
    for task in sorted(draft.touched):
        was, row = before.tasks.get(task), draft.tasks.get(task)
        had, has = (() if one is None else _names(one.spec_packed) for one in (was, row))
        if had != has:
            draft.calendars = _without(draft.calendars, task, had)
            draft.calendars = _with(draft.calendars, task, has)


def _names(packed: bytes) -> tuple[str, ...]:
    rule = calendar_of(packed)
    return () if rule is None else rule.names


def _without(calendars: Calendars, task: str, names: tuple[str, ...]) -> Calendars:
    for name in names:
        if (one := calendars.get(name)) is not None and task in one.tasks:
            calendars = calendars.set(name, replace(one, tasks=one.tasks.delete(task)))
    return calendars


def _with(calendars: Calendars, task: str, names: tuple[str, ...]) -> Calendars:
    for name in names:
        if (one := calendars.get(name)) is not None:
            calendars = calendars.set(name, replace(one, tasks=one.tasks.set(task, True)))
    return calendars


def restored_calendars(known: dict[str, Calendar], rows: dict[str, TaskRow]) -> Calendars:
    """Note anew which tasks use each calendar."""
    if not known:
        return Map()
    users: dict[str, dict[str, bool]] = {name: {} for name in known}
    for task, row in rows.items():
        for name in _names(row.spec_packed):
            if name in users:
                users[name][task] = True
    return Map({name: replace(one, tasks=Map(users[name])) for name, one in known.items()})
