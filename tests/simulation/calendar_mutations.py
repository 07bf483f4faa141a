"""The rules about calendars and blackouts, switched off (`tests.simulation.mutants`)."""

from typing import Any, Final

from node.control import leader_watch
from node.duty import decide, duty
from node.duty.calendars import CalendarKeeper, WantedDays
from node.state import calendars, claims
from node.state.calendars import SetCalendar
from node.state.copying import replace
from node.state.draft import Draft
from node.state.value import Result, Run, State
from tests.simulation.rules import Rules, handler, instead

_NEEDS: Final = decide.needs


def any_day(*_: Any) -> None:
    """The owner of a task does not look at its calendars."""


def touches_nobody(draft: Draft, entry: SetCalendar) -> Result:
    """Owners are not told that a calendar has other days."""
    result = calendars.set_calendar(draft, entry)
    draft.retimed.clear()
    return result


class AddsNoDays(CalendarKeeper):
    """The leader adds no public holidays."""

    def step(self, state: State, now_us: int) -> tuple[list[WantedDays], int | None]:
        """Nothing to do."""
        return [], None


def no_blackout(*_: Any) -> None:
    """There is no blackout."""


def only_actions(run: Run) -> bool:
    """In a blackout, no lost run is taken over."""
    return bool(run.action)


def waits_for_the_end_that_was_said(*args: Any, **more: Any) -> Any:
    """A task that is held is not decided on anew when its blackout is ended early."""
    return replace(_NEEDS(*args, **more), held=False)


CALENDAR_MUTANTS: Final[dict[str, Rules]] = {
    "calendar-days": instead(decide, "days_of", any_day),
    "calendar-told": handler(SetCalendar, touches_nobody),
    "calendar-extended": instead(leader_watch, "CalendarKeeper", AddsNoDays),
    "blackout-claims": instead(claims, "blackout_of", no_blackout),
    "blackout-decided": instead(decide, "blackout_of", no_blackout),
    "blackout-failover": instead(claims, "is_exempt", only_actions),
    "blackout-ended": instead(duty, "needs", waits_for_the_end_that_was_said),
}
"""By name."""

CALENDARS_SHOWN_BY: Final[dict[str, int]] = {
    "calendar-days": 85,
    "calendar-told": 85,
    "calendar-extended": 5,
    "blackout-claims": 35,
    "blackout-decided": 35,
    "blackout-failover": 5,
    "blackout-ended": 95,
}
"""A seed whose history shows it (`tests.simulation.mutants`)."""
