"""A week of the schedules by day and hour, in a time zone: what is due, what is left out, and what collides. Pure.

It goes by the present schedules alone: policies, such as `overlap`, decide when an occurrence is due, and tasks that
only come after others have no times. What is due too often to be listed is summed up, and counts in what collides.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from heapq import nsmallest
from itertools import islice, pairwise, takewhile
from typing import Final, NamedTuple

from node.duty.timetable import TimeSpan
from node.state.blackout import Blackout
from node.state.calendar import days_of
from node.state.parts import takes_part
from node.state.places import for_batch
from node.state.value import State, TaskRow
from tasks.definition.calendars import CalendarDays
from tasks.definition.pools import pool_needs
from tasks.definition.schedule import left_out_days, occurrences
from tasks.definition.spec import Continuous, Cron, Every, Schedule, TaskTiming

DAYS: Final = 7

OFTEN: Final = 42
"""A schedule with more times in the week than this, six a day, is summed up: its times are not listed."""

TIMES_MAX: Final = 100_000
"""The most times that are listed or counted, of all schedules. A schedule for which none are left is only counted as
cut."""

LOADS_MAX: Final = 500_000
"""The most minutes to which what is due often is added, to find what collides."""

MINUTES_MAX: Final = 4
"""The most minutes of an hour that are named."""

NAMED_MAX: Final = 3
"""The most tasks that are named together."""

COLLISIONS_MAX: Final = 40
"""The most collisions that are listed; one that occurs at the same time of day on several days is listed once."""

ZONES_MAX: Final = 20
"""The most time zones of schedules that are named."""

_MINUTE_US: Final = 60_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class DueMinute:
    """How many occurrences are due within a minute, and the first tasks of them, by name. In microseconds."""

    at_us: int
    count: int
    tasks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WeekHour:
    """What is due within an hour of a day. `hour`: from 0 to 23, by the clocks; one that occurs twice is one hour.

    `due` has the first `MINUTES_MAX` minutes in which something is due; `count` all occurrences. `collides`: in one of
    its minutes more is due than there is room for.
    """

    hour: int
    count: int
    due: tuple[DueMinute, ...]
    collides: bool


@dataclass(frozen=True, slots=True)
class DayLeftOut:
    """Tasks that are not due on a day because of calendars, and the day to which they are moved; None: to no day."""

    calendars: tuple[str, ...]
    count: int
    tasks: tuple[str, ...]
    moved_to: date | None


@dataclass(frozen=True, slots=True)
class WeekDay:
    """A day of the week. It has more or fewer than 24 hours if the clocks change."""

    #: The day.
    day: date
    #: When it begins, in microseconds since the epoch.
    begins_us: int
    #: When the next day begins, in microseconds since the epoch.
    ends_us: int
    #: How many occurrences are due, without what is due often.
    count: int
    #: The hours in which something is due, in order.
    hours: tuple[WeekHour, ...]
    #: What calendars leave out.
    left_out: tuple[DayLeftOut, ...]


@dataclass(frozen=True, slots=True)
class OftenDue:
    """Tasks that are due too often to be listed, by one schedule: how many, and the first ones by name."""

    schedule: Schedule
    count: int
    tasks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WeekCollision:
    """A time of day at which more is due within one minute than there is room for."""

    #: The pool that has too little room; "": the members have too few places.
    pool: str
    #: How much room there is: places, or the pool's capacity.
    room: int
    #: The most that is due within one of the minutes: runs, or what they use of the pool.
    most: int
    #: The minutes, in microseconds since the epoch: all at the same time of day. With `always` only the first of all.
    times: tuple[int, ...]
    #: The first tasks that are due then, by name, without those that are due often.
    tasks: tuple[str, ...]
    #: Whether it is so in every minute, because of what is due once a minute or more often.
    always: bool = False


@dataclass(frozen=True, slots=True)
class Week:
    """A week of the schedules."""

    #: The index of the state.
    index: int
    #: The days, in order.
    days: tuple[WeekDay, ...]
    #: What is due too often to be listed, the most frequent first.
    often: tuple[OftenDue, ...]
    #: How many tasks are in `often`.
    often_tasks: int
    #: The blackouts that fall into the week, by their beginning.
    blackouts: tuple[Blackout, ...]
    #: What collides, by time of day.
    collisions: tuple[WeekCollision, ...]
    #: How many collisions more there are than are listed.
    more_collisions: int
    #: How many runs the members that are up begin at once, besides what they keep for other work; None: not known.
    places: int | None
    #: How many tasks are left out because there are too many times.
    cut: int
    #: How many tasks are due often, and left out of what collides because there are too many times.
    uncounted: int
    #: How many tasks have calendars whose days are not known up to the week's end, or that are not there.
    unknown_days: int
    #: Time zones of the schedules, by name: `ZONES_MAX` at most.
    zones: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """How many occurrences are due, without what is due often."""
        return sum(day.count for day in self.days)


Uses = tuple[tuple[str, int], ...]


class _Listed(NamedTuple):
    """A schedule's times, and the tasks that have it: how many, the first ones, and what they use when due."""

    times: Sequence[int]
    number: int
    tasks: tuple[str, ...]
    uses: Counter[Uses]


def week_of(state: State, zone: tzinfo, first: date) -> Week:
    """Return the week that begins with the day `first`, in a time zone. Raises `OverflowError` where time ends."""
    bounds = tuple(_midnight_us(first + timedelta(days=number), zone) for number in range(DAYS + 1))
    return _WeekReader(state, zone, first, bounds).read()


def _midnight_us(day: date, zone: tzinfo) -> int:
    return (datetime.combine(day, time(), zone).astimezone(UTC) - _EPOCH) // _MICROSECOND


class _WeekReader:
    """Goes over all tasks once, schedule by schedule."""

    def __init__(self, state: State, zone: tzinfo, first: date, bounds: tuple[int, ...]) -> None:
        self._state, self._zone, self._first, self._bounds = state, zone, first, bounds
        self._span = TimeSpan(bounds[0] - 1, bounds[-1] - 1)
        self._listed: list[_Listed] = []
        self._often: dict[Schedule, list[str]] = defaultdict(list)
        self._loads = _Loads(self._span)
        self._left_out: dict[tuple[int, tuple[str, ...], int | None], list[str]] = defaultdict(list)
        self._times_left = TIMES_MAX
        self._cut = self._unknown = 0
        self._zones: set[str] = set()

    def read(self) -> Week:
        """Read the state, and make the week."""
        groups: dict[tuple[Schedule, CalendarDays | None, int], list[str]] = defaultdict(list)
        known: dict[object, CalendarDays | None] = {}
        for task, row in self._state.tasks.items():
            timing = row.timing
            if row.paused or not timing.enabled or timing.schedule is None or row.since_us > self._span.until_us:
                continue
            if timing.calendar not in known:
                known[timing.calendar] = days_of(self._state.calendars, timing)
            groups[timing.schedule, known[timing.calendar], _counts_from_us(timing, row, self._span)].append(task)
        for (schedule, days, since_us), tasks in groups.items():
            if isinstance(schedule, Cron):
                self._zones.add(schedule.timezone)
            self._add(schedule, days, since_us, tasks)
        return self._made()

    def _add(self, schedule: Schedule, days: CalendarDays | None, since_us: int, tasks: list[str]) -> None:
        if isinstance(schedule, Continuous):
            self._often[schedule] += tasks
            return
        if days is not None:
            self._leave_out(schedule, days, since_us, tasks)
        after_us = max(self._span.from_us, since_us)
        due = takewhile(self._span.until_us.__ge__, occurrences(schedule, days, since_us, after_us))
        most = min(OFTEN, self._times_left)
        times = tuple(islice(due, most + 1))
        if len(times) <= most:
            self._times_left -= len(times)
            if times:
                self._listed.append(_Listed(times, len(tasks), _first(tasks), self._uses(tasks)))
        elif most < OFTEN:
            self._cut += len(tasks)
        else:
            self._often[schedule] += tasks
            uses = self._uses(tasks)
            if isinstance(schedule, Every):
                self._loads.add_every(max(1, round(schedule.every_s * 1_000_000)), times[0], uses)
            else:
                self._loads.add_times(times, due, uses)

    def _leave_out(self, schedule: Schedule, days: CalendarDays, since_us: int, tasks: list[str]) -> None:
        after_us = max(self._span.from_us, since_us)
        if not days.knows((self._first + timedelta(days=DAYS - 1)).toordinal()):
            self._unknown += len(tasks)
        for one in islice(left_out_days(schedule, days, after_us, self._span.until_us), DAYS + 1):
            day = bisect_right(self._bounds, one.at_us) - 1
            self._left_out[day, one.calendars, one.home] += tasks

    def _uses(self, tasks: Iterable[str]) -> Counter[Uses]:
        """Count the runs that these tasks begin when they are due, by what each uses."""
        found: Counter[Uses] = Counter()
        members = self._state.members.values()
        for task in tasks:
            row = self._state.tasks[task]
            needs = pool_needs(row.spec_packed)
            runs = sum(takes_part(row, one) for one in members) if task in self._state.each else 1
            found[needs.uses if needs is not None else ()] += runs
        return found

    def _made(self) -> Week:
        self._loads.add(self._listed)
        places = _places(self._state)
        found = list(self._colliding(places))
        found.sort(key=lambda one: (one.room / one.most, one.times))
        listed = sorted(found[:COLLISIONS_MAX], key=lambda one: (self._clock(one.times[0]), one.pool))
        often = sorted(self._often.items(), key=lambda item: (_every_us(item[0]), str(item[0])))
        blackouts = [one for one in self._state.blackouts.values() if self._meets(one)]
        return Week(
            index=self._state.index,
            days=tuple(self._days({at_us for one in found if not one.always for at_us in one.times})),
            often=tuple(OftenDue(schedule, len(tasks), _first(tasks)) for schedule, tasks in often),
            often_tasks=sum(map(len, self._often.values())),
            blackouts=tuple(sorted(blackouts, key=lambda one: (one.from_us, one.name))),
            collisions=tuple(listed),
            more_collisions=len(found) - len(listed),
            places=places,
            cut=self._cut,
            uncounted=self._loads.uncounted,
            unknown_days=self._unknown,
            zones=tuple(nsmallest(ZONES_MAX, self._zones)),
        )

    def _meets(self, one: Blackout) -> bool:
        return one.from_us <= self._span.until_us and one.until_us > self._bounds[0]

    def _days(self, colliding: set[int]) -> Iterator[WeekDay]:
        minutes: dict[int, list[_Listed]] = defaultdict(list)
        for one in self._listed:
            for at_us in one.times:
                minutes[at_us - at_us % _MINUTE_US].append(one)
        hours: list[dict[int, list[int]]] = [defaultdict(list) for _ in range(DAYS)]
        for minute_us in sorted(minutes):
            hours[bisect_right(self._bounds, minute_us) - 1][self._local(minute_us).hour].append(minute_us)
        for number, (begins_us, ends_us) in enumerate(pairwise(self._bounds)):
            collides = {self._local(at_us).hour for at_us in colliding if begins_us <= at_us < ends_us}
            made = []
            for hour in sorted({*hours[number], *collides}):
                due = [_due_minute(at_us, minutes[at_us]) for at_us in hours[number].get(hour, ())[:MINUTES_MAX]]
                count = sum(one.number for at_us in hours[number].get(hour, ()) for one in minutes[at_us])
                made.append(WeekHour(hour, count, tuple(due), hour in collides))
            yield WeekDay(
                day=self._first + timedelta(days=number),
                begins_us=begins_us,
                ends_us=ends_us,
                count=sum(one.count for one in made),
                hours=tuple(made),
                left_out=tuple(self._left_out_on(number)),
            )

    def _left_out_on(self, number: int) -> Iterator[DayLeftOut]:
        for (day, calendars, home), tasks in sorted(
            self._left_out.items(), key=lambda item: (-len(item[1]), item[0][1])
        ):
            if day == number:
                yield DayLeftOut(calendars, len(tasks), _first(tasks), None if home is None else date.fromordinal(home))

    def _colliding(self, places: int | None) -> Iterator[WeekCollision]:
        rooms = {name: pool.capacity for name, pool in self._state.pools.items()}
        if places is not None:
            rooms[""] = places
        by_clock: dict[tuple[str, tuple[int, int]], list[tuple[int, int]]] = defaultdict(list)
        for pool, room in rooms.items():
            if (always := self._loads.always(pool)) > room:
                yield WeekCollision(pool, room, always, self._bounds[:1], (), always=True)
                continue
            for minute, load in self._loads.over(pool, room):
                at_us = minute * _MINUTE_US
                by_clock[pool, self._clock(at_us)].append((at_us, load))
        named = self._due_at({at_us for found in by_clock.values() for at_us, _ in found})
        for (pool, _), found in by_clock.items():
            times = tuple(at_us for at_us, _ in found)
            tasks = {task for at_us in times for one in named.get(at_us, ()) for task in self._using(one, pool)}
            yield WeekCollision(pool, rooms[pool], max(load for _, load in found), times, _first(tasks))

    def _due_at(self, minutes: set[int]) -> dict[int, list[_Listed]]:
        found: dict[int, list[_Listed]] = defaultdict(list)
        for one in self._listed if minutes else ():
            for at_us in one.times:
                if (minute_us := at_us - at_us % _MINUTE_US) in minutes:
                    found[minute_us].append(one)
        return found

    def _using(self, listed: _Listed, pool: str) -> Iterator[str]:
        """Yield the named tasks of a schedule that use a pool; all of them for ""."""
        for task in listed.tasks:
            needs = pool_needs(self._state.tasks[task].spec_packed)
            if not pool or (needs is not None and pool in dict(needs.uses)):
                yield task

    def _local(self, at_us: int) -> datetime:
        return (_EPOCH + timedelta(microseconds=at_us)).astimezone(self._zone)

    def _clock(self, at_us: int) -> tuple[int, int]:
        local = self._local(at_us)
        return local.hour, local.minute


class _Loads:
    """How much is due in each minute: runs, and what they use of each pool."""

    def __init__(self, span: TimeSpan) -> None:
        self._first, self._last = (span.from_us + 1) // _MINUTE_US, span.until_us // _MINUTE_US
        self._by_pool: dict[str, Counter[int]] = defaultdict(Counter)
        self._always: Counter[str] = Counter()
        self._left = LOADS_MAX
        self._every: dict[tuple[int, int], Counter[Uses]] = defaultdict(Counter)
        self.uncounted = 0

    def add(self, listed: Iterable[_Listed]) -> None:
        """Add what is listed, and what was collected by `add_every`."""
        for one in listed:
            for pool, units in _units(one.uses).items():
                loads = self._by_pool[pool]
                for at_us in one.times:
                    loads[at_us // _MINUTE_US] += units
        for (every_us, first_us), uses in self._every.items():
            times = range(first_us, (self._last + 1) * _MINUTE_US, every_us)
            self._add_often((at_us // _MINUTE_US for at_us in times), len(times), uses)

    def add_every(self, every_us: int, first_us: int, uses: Counter[Uses]) -> None:
        """Note what is due at equal intervals. What is due within each minute counts once in each."""
        if every_us <= _MINUTE_US:
            self._always.update(_units(uses))
        else:
            # Of intervals of whole minutes, those that begin in one minute are counted together.
            whole = every_us % _MINUTE_US == 0
            self._every[every_us, first_us - first_us % _MINUTE_US if whole else first_us] += uses

    def add_times(self, first: Sequence[int], further: Iterator[int], uses: Counter[Uses]) -> None:
        """Add a cron line that is due often: its first times, and the further ones."""
        minutes = sorted({at_us // _MINUTE_US for at_us in (*first, *islice(further, max(0, self._left)))})
        exhausted = next(further, None) is None
        self._add_often(minutes, len(minutes) if exhausted else self._left + 1, uses)

    def _add_often(self, minutes: Iterable[int], number: int, uses: Counter[Uses]) -> None:
        units = _units(uses)
        if number * len(units) > self._left:
            self.uncounted += sum(uses.values())
            return
        self._left -= number * len(units)
        for minute in minutes:
            for pool, one in units.items():
                self._by_pool[pool][minute] += one

    def over(self, pool: str, room: int) -> Iterator[tuple[int, int]]:
        """Yield the minutes with a load of more than `room`, in order, each with its load."""
        always = self._always[pool]
        minutes = (minute for minute, load in self._by_pool[pool].items() if load + always > room)
        for minute in sorted(minutes):
            if self._first <= minute <= self._last:
                yield minute, self._by_pool[pool][minute] + always

    def always(self, pool: str) -> int:
        """Return the load of every minute."""
        return self._always[pool]


def _units(uses: Counter[Uses]) -> Counter[str]:
    """Return how many runs there are (""), and what they use of each pool."""
    found: Counter[str] = Counter()
    for pools, runs in uses.items():
        found[""] += runs
        for pool, units in pools:
            found[pool] += units * runs
    return found


def _counts_from_us(timing: TaskTiming, row: TaskRow, span: TimeSpan) -> int:
    """Return the time from which a schedule counts; 0 for those before the span, which share their times."""
    if isinstance(timing.schedule, Every):
        return row.since_us
    return row.since_us if row.since_us > span.from_us else 0


def _every_us(schedule: Schedule) -> float:
    return schedule.every_s if isinstance(schedule, Every) else 0 if isinstance(schedule, Continuous) else 60


def _first(tasks: Iterable[str]) -> tuple[str, ...]:
    return tuple(nsmallest(NAMED_MAX, tasks))


def _due_minute(at_us: int, listed: Sequence[_Listed]) -> DueMinute:
    tasks = {task for one in listed for task in one.tasks}
    return DueMinute(at_us, sum(one.number for one in listed), _first(tasks))


def _places(state: State) -> int | None:
    """Return how many runs the members that are up have room for, besides what each keeps for other work."""
    up = [member for member in state.members.values() if member.status == "up"]
    if not up or not all(member.places.runs for member in up):
        return None
    continuous = any(run.spec.continuous for run in state.runs.values())
    return sum(for_batch(member.places.runs, 0, continuous=continuous) for member in up)
