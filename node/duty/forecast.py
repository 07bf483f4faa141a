"""Forecasts the occurrences that each member begins within a span: counts by steps, and names if they are few. Pure."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

from node.duty.held_times import HeldTime
from node.duty.timetable import TimeSpan, UpcomingTask

STEPS: Final = 72
"""The number of steps into which a span is divided. If the span is a day, a step is twenty minutes."""

NAMED_MAX: Final = 100
"""The most occurrences of a member that are named one by one."""

OwnerOf = Callable[[str], str | None]


class PlannedRun(NamedTuple):
    """A future occurrence."""

    #: When it is due, in microseconds since the epoch.
    at_us: int
    #: The name of the task.
    task: str
    #: The member that would begin it; None: no member.
    owner: str | None
    #: The task's present owner, which differs if a supposition changes owners; None: no owner.
    source: str | None
    #: How long the task's last run took, in microseconds; None: not known.
    took_us: int | None = None
    #: Whether the task runs all the time.
    continuous: bool = False
    #: The blackout that it is in, if it is in one, and what becomes of it.
    held: HeldTime | None = None

    @property
    def moved(self) -> bool:
        """Whether the member that would begin it differs from the present owner."""
        return self.owner != self.source


@dataclass(frozen=True, slots=True)
class MemberForecast:
    """The occurrences within a span that one member is due to begin, or that no member may begin."""

    #: How many occurrences the member begins.
    count: int
    #: How many it begins in each of `STEPS` steps.
    starts: tuple[int, ...]
    #: How many of these, in each step, another member would begin according to the present owners.
    moved_starts: tuple[int, ...]
    #: The occurrences that it begins, by time; empty if there are more than `NAMED_MAX`.
    runs: tuple[PlannedRun, ...] = ()
    #: The occurrences that it would lose: it begins them only according to the present owners. Empty if more than
    #: `NAMED_MAX`.
    gone: tuple[PlannedRun, ...] = ()

    @property
    def named(self) -> bool:
        """Whether all occurrences are named."""
        return len(self.runs) == self.count


@dataclass(frozen=True, slots=True)
class Forecast:
    """The occurrences that are due within a span, by the member that begins them."""

    #: The span.
    span: TimeSpan
    #: The occurrences of each member; None: those that no member may begin.
    members: dict[str | None, MemberForecast]
    #: How many tasks are due more often than was computed (`node.duty.timetable` has the limits).
    cut: int = 0
    #: How many tasks run all the time; each counts as one occurrence.
    continuous: int = 0
    #: How many occurrences are in blackouts: they are counted at the times at which they are due.
    held: int = 0

    @property
    def count(self) -> int:
        """The number of occurrences; each task that runs all the time counts as one."""
        return sum(one.count for one in self.members.values())

    @property
    def due(self) -> int:
        """The number of occurrences, without the tasks that run all the time."""
        return self.count - self.continuous

    @property
    def unnamed(self) -> int:
        """The number of occurrences that are counted but not named."""
        return sum(one.count for one in self.members.values() if not one.named)

    def starts_at_us(self, step: int) -> int:
        """Return when a step begins, in microseconds since the epoch."""
        return self.span.from_us + (self.span.until_us - self.span.from_us) * step // STEPS


def forecast(
    upcoming: Iterable[UpcomingTask],
    span: TimeSpan,
    now: OwnerOf,
    then: OwnerOf,
    on_each: Mapping[str, Sequence[tuple[str | None, str | None]]] = MappingProxyType({}),
    held_of: Callable[[str, int], HeldTime | None] = lambda _task, _at_us: None,
) -> Forecast:
    """Count the occurrences by the member that begins them. `now` gives present owners, `then` the supposed ones.

    `on_each`: of each task that several members begin, these members, as pairs of the supposed and the present one.
    `held_of` returns which blackout holds the occurrence of a task at a time; it is asked for those that are named.
    """
    tasks: dict[tuple[str | None, str | None], list[UpcomingTask]] = defaultdict(list)
    cut = continuous = held = 0
    for one in upcoming:
        for pair in on_each.get(one.task) or ((then(one.task), now(one.task)),):
            tasks[pair].append(one)
            held += one.held
        cut += one.cut
        continuous += one.continuous
    counts: Counter[str | None] = Counter()
    gone: Counter[str | None] = Counter()
    for (owner, source), found in tasks.items():
        number = sum(len(one.times) for one in found)
        counts[owner] += number
        if owner != source:
            gone[source] += number
    starts = {pair: starts_of(found, span, STEPS) for pair, found in tasks.items()}
    members = {}
    for member in {*counts, *gone}:
        own = [pair for pair in tasks if pair[0] == member]
        moved = [pair for pair in own if pair[1] != member]
        left = [pair for pair in tasks if pair[1] == member and pair[0] != member]
        members[member] = MemberForecast(
            counts[member],
            _sum([starts[pair] for pair in own]),
            _sum([starts[pair] for pair in moved]),
            _named(tasks, own, held_of) if counts[member] <= NAMED_MAX else (),
            _named(tasks, left, held_of) if gone[member] <= NAMED_MAX else (),
        )
    return Forecast(span=span, members=members, cut=cut, continuous=continuous, held=held)


def _named(
    tasks: dict[tuple[str | None, str | None], list[UpcomingTask]],
    pairs: list[tuple[str | None, str | None]],
    held_of: Callable[[str, int], HeldTime | None],
) -> tuple[PlannedRun, ...]:
    found = [
        PlannedRun(
            at_us=at_us,
            task=one.task,
            owner=owner,
            source=source,
            took_us=one.took_us,
            continuous=one.continuous,
            held=held_of(one.task, at_us) if one.held else None,
        )
        for owner, source in pairs
        for one in tasks[owner, source]
        for at_us in one.times
    ]
    return tuple(sorted(found, key=lambda run: (run.at_us, run.task)))


def _sum(columns: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*columns, strict=True))) if columns else (0,) * STEPS


def starts_of(tasks: Iterable[UpcomingTask], span: TimeSpan, steps: int) -> list[int]:
    """Count the occurrences of `tasks` in each of `steps` equal parts of `span`."""
    starts = [0] * steps
    length_us = span.until_us - span.from_us + 1
    lines: dict[int, tuple[Sequence[int], int]] = {}
    phases: dict[int, list[int]] = defaultdict(list)
    for one in tasks:
        times = one.times
        if isinstance(times, range) and len(times) > steps and times.start - span.from_us <= times.step:
            phases[times.step].append(times.start - span.from_us)
        elif len(times) > 1 and isinstance(times, tuple):
            # All tasks with the same cron line share this tuple. Its id is the key, as its hash would be computed for
            # each.
            lines[id(times)] = (times, lines.get(id(times), (times, 0))[1] + 1)
        else:
            for at_us in times:
                starts[(at_us - span.from_us) * steps // length_us] += 1
    for times, number in lines.values():
        for at_us in times:
            starts[(at_us - span.from_us) * steps // length_us] += number
    for every_us, found in phases.items():
        _add_intervals(starts, every_us, sorted(found), length_us)
    return starts


def _add_intervals(starts: list[int], every_us: int, phases: list[int], length_us: int) -> None:
    """Add times at equal intervals to the counts of `starts`, without iterating over the times.

    `phases` are the first due times of the tasks, greater than 0 and at most `every_us`.
    """
    before = 0
    latest, steps = len(phases) - bisect_left(phases, every_us), len(starts)
    for step in range(steps):
        end_us = -(-(step + 1) * length_us // steps)  # the first microsecond of the next step
        whole, rest_us = divmod(end_us, every_us)
        through = whole * len(phases) + (bisect_left(phases, rest_us) if rest_us else -latest)
        starts[step] += through - before
        before = through
