"""On which days tasks are due, and what blackouts hold, written out from what the definitions say.

Worked out anew here, day by day, without `tasks.definition.calendars` and `node.state.blackout`.
"""

from collections import Counter
from datetime import date
from typing import Final

from node.state.apply import Applied
from node.state.calendar import Calendar
from node.state.claims import Claim
from node.state.entries import Proposal, ProposalId
from node.state.value import State, TaskRow
from tasks.definition.spec import Cron, Spec
from tests.simulation.world import BEGUN_US, World

ZONE: Final = "Etc/GMT+8"
"""The time zone in whose first minute of a day a history begins."""

TODAY: Final = date(2027, 1, 15).toordinal()
KNOWN_AHEAD: Final = 370
_DAY_US: Final = 86_400_000_000
_AROUND: Final = 33


def due_times(state: State, row: TaskRow, after_us: int, until_us: int) -> list[int] | None:
    """The times of a task with a calendar in a span of some minutes; None: it has none, or no such line."""
    spec = row.spec
    if spec.calendar is None or not isinstance(spec.schedule, Cron) or spec.schedule.timezone != ZONE:
        return None
    seconds, minute, hour, _, _, weekday = spec.schedule.cron.split()
    assert (minute, hour, seconds[:2]) == ("0", "0", "*/")
    found: set[int] = set()
    first, last = ((at_us - BEGUN_US) // _DAY_US + TODAY for at_us in (after_us, until_us))
    for day in range(first - _AROUND, last + _AROUND + 1):
        if weekday == "*" or date.fromordinal(day).isoweekday() % 7 == int(weekday):
            to = _home(state, spec, day)
            if to is not None:
                begins_us = BEGUN_US + (to - TODAY) * _DAY_US
                found.update(begins_us + second * 1_000_000 for second in range(0, 60, int(seconds[2:])))
    return sorted(at_us for at_us in found if after_us < at_us <= until_us)


def _home(state: State, spec: Spec, day: int) -> int | None:
    """The day to which an occurrence of a day goes."""
    rule = spec.calendar
    assert rule is not None
    step = {"skip": 0, "next": 1, "previous": -1}[rule.on_skip]
    for number in range(32 if step else 1):
        one = day + step * number
        skipped = any(one in _days(state, name) for name in rule.skip)
        if not skipped and (not rule.only or any(one in _days(state, name) for name in rule.only)):
            return one
    return None


def _days(state: State, name: str) -> tuple[int, ...]:
    return state.calendars.get(name, Calendar()).days


def is_held(state: State, row: TaskRow, at_us: int) -> bool:
    """Whether a blackout holds new work of a task at a time."""
    return any(
        one.from_us <= at_us < one.until_us and all(row.spec.labels.get(name) == value for name, value in one.labels)
        for one in state.blackouts.values()
    )


class Days:
    """Watches what is claimed in blackouts, and what is refused because of them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._seen: set[ProposalId] = set()
        self.counts: Counter[str] = Counter()

    def watch(self, before: State, proposal: Proposal, applied: Applied) -> None:
        """An entry, accepted or not."""
        entry, result = proposal.entry, applied.result
        if not isinstance(entry, Claim) or proposal.id in self._seen:
            return
        self._seen.add(proposal.id)  # a repeated one is answered as it was at first
        row, run = before.tasks.get(entry.task), before.runs.get(entry.run_id or "")
        if row is None:
            return
        goes_on = run.state == "orphaned" or bool(run.action) if run is not None else False
        held = is_held(before, row, entry.at_us) and not goes_on and not row.spec.continuous
        if result.ok and held:
            self._world.wrong(f"{entry.task} is claimed in a blackout: {entry}")
        if result.code == "blackout":
            self.counts["held by a blackout"] += 1
            if not held:
                self._world.wrong(f"a claim is refused for a blackout, and there is none: {entry}")
        if result.ok and entry.run_id is None and row.spec.calendar is not None:
            self.counts["due by a calendar"] += 1


def stale_calendar(state: State) -> str | None:
    """Say which public holidays the leader should have added; None: none."""
    for name, one in sorted(state.calendars.items()):
        if name.startswith("holidays/") and one.until < TODAY + KNOWN_AHEAD:
            return f"the days of {name} are known until {date.fromordinal(one.until)} only"
    return None
