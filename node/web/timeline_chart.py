"""The layout of the timeline: lanes, rows, bars, lines between attempts, and counts of bars not drawn. Pure."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product
from types import MappingProxyType
from typing import Final

from node.duty.forecast import STEPS, Forecast
from node.duty.timetable import TimeSpan
from node.state.value import OccurrenceId
from node.web.timeline_bars import NOBODY, TimeBar, nearest

WIDTH: Final = 1080
TOP: Final = 26
PAD: Final = 7
ROW: Final = 13
BAR: Final = 9
STRIP: Final = 34
LEAST: Final = 40
"""Sizes in pixels: the chart's width; the heights of the axis, a lane's margin, a row, a bar, a strip of counts, and
the lowest lane."""

SHORTEST: Final = 4.0
GAP: Final = 1.5
"""The width of the shortest bar, and the gap after each bar, in pixels."""

ROWS_MAX: Final = 10
PAST_MAX: Final = 120
"""The most rows of a lane, and the most past bars of a lane; if there are more, most are only counted."""

PAST_STEP: Final = 12
"""The width in pixels of a column that counts past bars."""

_TICK_US: Final = tuple(minutes * 60_000_000 for minutes in (5, 10, 15, 30, 60, 120, 180, 360, 720, 1440))
TICKS_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class BarShape:
    """A drawn bar."""

    bar: TimeBar
    x: float
    y: float
    width: float

    @property
    def middle(self) -> float:
        """Its vertical middle."""
        return self.y + BAR / 2


@dataclass(frozen=True, slots=True)
class CountShape:
    """A drawn column, which counts the runs that ended, or are due, within a step of time. Lengths are in pixels."""

    #: Its left side.
    x: float
    #: Its width.
    width: float
    #: Its lower side, from the top of the chart.
    bottom: float
    #: Its height.
    height: float
    #: The height of the part for occurrences that another member owns at present; 0 for ended runs.
    moved_height: float
    #: The description for the reader.
    said: str


@dataclass(frozen=True, slots=True)
class MemberLane:
    """A member's lane. Lengths are in pixels."""

    #: The member, or `NOBODY`.
    member: str
    #: Its upper side.
    y: float
    #: Its height.
    height: float
    #: The bars that are drawn.
    bars: tuple[BarShape, ...]
    #: The columns for bars that are only counted.
    counts: tuple[CountShape, ...]
    #: How many bars are counted and not drawn.
    counted: int
    #: How many bars are neither drawn nor counted.
    left_out: int


@dataclass(frozen=True, slots=True)
class AxisTick:
    """A time on the axis at the top of the chart."""

    x: float
    at_us: int


@dataclass(frozen=True, slots=True)
class ChainLine:
    """The line from a run to the run of a task after it, of the same occurrence, as an SVG path; `chain`: whose."""

    path: str
    chain: int


@dataclass(frozen=True, slots=True)
class TimelineChart:
    """The whole drawing. Lengths are in pixels."""

    #: Its width.
    width: int
    #: Its height.
    height: float
    #: Where the present is, from the left.
    now_x: float
    #: The times on the axis at the top.
    ticks: tuple[AxisTick, ...]
    #: The lanes, from the top.
    lanes: tuple[MemberLane, ...]
    #: The SVG paths from each attempt to the run's next attempt, and whether they lead to another member.
    joins: tuple[tuple[str, bool], ...]
    #: The lines from runs to those of the tasks after them.
    chains: tuple[ChainLine, ...] = ()
    #: The number of the chain that a run is in, from 1, by the run's id; runs that are in none are left out.
    chain_of: Mapping[str, int] = field(default_factory=dict)

    @property
    def drawn(self) -> int:
        """How many bars are drawn."""
        return sum(len(lane.bars) for lane in self.lanes)

    @property
    def not_drawn(self) -> int:
        """How many runs and occurrences are only counted, or left out."""
        return sum(lane.counted + lane.left_out for lane in self.lanes)


@dataclass(frozen=True, slots=True)
class TimeScale:
    """Converts times to pixels."""

    span: TimeSpan

    def x(self, at_us: int) -> float:
        """Return the horizontal position of a time. A time outside the span is moved to the nearest end of the span."""
        inside = min(max(at_us, self.span.from_us), self.span.until_us)
        return round((inside - self.span.from_us) * WIDTH / (self.span.until_us - self.span.from_us), 1)


_NO_PARENTS: Final[Mapping[str, Sequence[str]]] = MappingProxyType({})


def chart_of(
    members: Sequence[str],
    bars: Iterable[TimeBar],
    ahead: Forecast,
    span: TimeSpan,
    now_us: int,
    parents: Mapping[str, Sequence[str]] = _NO_PARENTS,
) -> TimelineChart:
    """Draw `bars`, in a lane for each member, then in lanes for former members, then in the lane `NOBODY`.

    `ahead` has the counts for members that have too many occurrences for bars; `bars` has none of these occurrences.
    `parents` has the tasks before each task: lines join their runs to its own, if they are of one occurrence.
    """
    scale = TimeScale(span)
    by_member: dict[str, list[TimeBar]] = defaultdict(list)
    for bar in bars:
        if bar.ends_us >= span.from_us and bar.begins_us <= span.until_us:
            by_member[bar.member].append(bar)
    counts = {member or NOBODY: one for member, one in ahead.members.items() if one.count and not one.named}
    most = max((max(one.starts) for one in counts.values()), default=1)
    others = sorted({*by_member, *counts} - {*members, NOBODY})
    last = [NOBODY] if NOBODY in by_member or NOBODY in counts else []
    lanes: list[MemberLane] = []
    y = float(TOP)
    for member in [*members, *others, *last]:
        lane = _Lane(scale, scale.x(now_us), y, by_member.get(member, ()))
        if member in counts:
            one = counts[member]
            lane.count_ahead(ahead, one.starts, one.moved_starts, most)
            lane.counted += one.count
        lanes.append(lane.made(member))
        y += lanes[-1].height
    chains, chain_of = _chains(lanes, parents)
    return TimelineChart(
        width=WIDTH,
        height=y,
        now_x=scale.x(now_us),
        ticks=tuple(_ticks(scale)),
        lanes=tuple(lanes),
        joins=tuple(_joins(lanes)),
        chains=chains,
        chain_of=chain_of,
    )


class _Lane:
    """A lane that is being drawn."""

    def __init__(self, scale: TimeScale, now_x: float, y: float, bars: Sequence[TimeBar]) -> None:
        self._scale = scale
        self._now_x = now_x
        self._y = y
        self._counts: list[CountShape] = []
        self.counted = 0
        past = [bar for bar in bars if bar.is_past]
        self._bars = list(bars)
        if len(past) > PAST_MAX:
            shown = sorted((bar for bar in past if bar.stands_out), key=lambda bar: bar.begins_us)[-PAST_MAX:]
            kept = {id(bar) for bar in shown}
            self._bars = [bar for bar in bars if not bar.is_past or id(bar) in kept]
            self._count_past([bar for bar in past if id(bar) not in kept])

    def _count_past(self, bars: Sequence[TimeBar]) -> None:
        self.counted += len(bars)
        steps: dict[int, int] = defaultdict(int)
        for bar in bars:
            steps[int(self._scale.x(bar.begins_us) // PAST_STEP)] += 1
        most = max(steps.values(), default=1)
        bottom = self._y + PAD + STRIP
        for step, number in sorted(steps.items()):
            height = max(2.0, round((STRIP - 4) * number / most, 1))
            said = f"{number:,} ended runs"
            self._counts.append(
                CountShape(
                    x=step * PAST_STEP + 0.5,
                    width=PAST_STEP - 1,
                    bottom=bottom,
                    height=height,
                    moved_height=0,
                    said=said,
                )
            )

    def count_ahead(self, ahead: Forecast, starts: Sequence[int], moved: Sequence[int], most: int) -> None:
        """Draw columns for the occurrences due in each step; `most` is the largest count of all lanes."""
        bottom = self._y + PAD + STRIP
        for step in range(STEPS):
            if not starts[step]:
                continue
            x, end = self._scale.x(ahead.starts_at_us(step)), self._scale.x(ahead.starts_at_us(step + 1))
            height = max(2.0, round((STRIP - 4) * starts[step] / most, 1))
            part = round(height * moved[step] / starts[step], 1)
            said = f"{starts[step]:,} due" + (f", {moved[step]:,} of them moved here" if moved[step] else "")
            self._counts.append(
                CountShape(
                    x=x + 0.3,
                    width=round(max(0.7, end - x - 0.6), 1),
                    bottom=bottom,
                    height=height,
                    moved_height=part,
                    said=said,
                )
            )

    def made(self, member: str) -> MemberLane:
        """Lay out the lane: each bar in the first row that is free at its position; bars that stand out come first."""
        top = self._y + PAD + (STRIP + 3 if self._counts else 0)
        rows = [_Row() for _ in range(ROWS_MAX)]
        shapes, left_out, row_of = list[BarShape](), 0, dict[tuple[str, int], int]()
        for bar in sorted(self._bars, key=_rank):
            # A bar of the past ends at the present at the latest, even if it is widened to be visible.
            latest = self._now_x if bar.is_past else WIDTH
            x = max(0.0, min(self._scale.x(bar.begins_us), latest - SHORTEST))
            width = max(SHORTEST, round(self._scale.x(bar.ends_us) - x, 1))
            # The expected rest of a running attempt continues in the attempt's row.
            number = row_of.get((bar.run_id, bar.attempt)) if bar.look == "expected" else None
            if number is None:
                number = next((number for number, row in enumerate(rows) if row.is_free(x, x + width + GAP)), None)
            if number is None:
                left_out += 1
                continue
            rows[number].take(x, x + width + GAP)
            row_of[bar.run_id, bar.attempt] = number
            shapes.append(BarShape(bar, x, top + number * ROW, width))
        shapes.sort(key=lambda shape: (shape.x, shape.y))
        height = max(LEAST, top - self._y + sum(row.used for row in rows) * ROW + PAD)
        return MemberLane(
            member=member,
            y=self._y,
            height=height,
            bars=tuple(shapes),
            counts=tuple(self._counts),
            counted=self.counted,
            left_out=left_out,
        )


def _rank(bar: TimeBar) -> tuple[bool, bool, bool, int, str]:
    goes_on = bar.look in ("running", "expected")
    return (not goes_on, not bar.stands_out, bar.look == "expected", bar.begins_us, bar.task)


class _Row:
    """The free space of a row: where its bars begin and end, sorted."""

    def __init__(self) -> None:
        self._begins: list[float] = []
        self._ends: list[float] = []

    @property
    def used(self) -> bool:
        """Whether the row has a bar."""
        return bool(self._begins)

    def is_free(self, x: float, end: float) -> bool:
        """Return whether there is no bar between `x` and `end`."""
        place = bisect_left(self._begins, x)
        before = place == 0 or self._ends[place - 1] <= x
        return before and (place == len(self._begins) or self._begins[place] >= end)

    def take(self, x: float, end: float) -> None:
        """Note a bar between `x` and `end`."""
        place = bisect_left(self._begins, x)
        self._begins.insert(place, x)
        self._ends.insert(place, end)


def _joins(lanes: Iterable[MemberLane]) -> Iterable[tuple[str, bool]]:
    """Yield a path from the end of each attempt to the beginning of the run's next attempt, if both are drawn."""
    attempts: Mapping[str, list[BarShape]] = defaultdict(list)
    for lane in lanes:
        for shape in lane.bars:
            if shape.bar.is_past:
                attempts[shape.bar.run_id].append(shape)
    for shapes in attempts.values():
        shapes.sort(key=lambda shape: shape.bar.attempt)
        for one, following in pairwise(shapes):
            if following.bar.attempt != one.bar.attempt + 1:
                continue
            yield _bent(one, following), one.bar.member != following.bar.member


def _bent(one: BarShape, other: BarShape) -> str:
    """Return an SVG path from the end of a bar to the beginning of another one."""
    x, to_x = one.x + one.width, other.x
    bend = max(6.0, (to_x - x) / 2)
    return (
        f"M{x:.1f} {one.middle:.1f}C{x + bend:.1f} {one.middle:.1f} "
        f"{to_x - bend:.1f} {other.middle:.1f} {to_x:.1f} {other.middle:.1f}"
    )


def _chains(
    lanes: Iterable[MemberLane], parents: Mapping[str, Sequence[str]]
) -> tuple[tuple[ChainLine, ...], dict[str, int]]:
    """Return the lines from a parent's last attempt to its child's first, of one occurrence, and each run's chain."""
    attempts: dict[str, list[BarShape]] = defaultdict(list)
    runs: dict[tuple[str, OccurrenceId], list[str]] = defaultdict(list)
    for shape in (shape for lane in lanes for shape in lane.bars if shape.bar.is_past):
        if shape.bar.occurrence is not None:
            if shape.bar.run_id not in attempts:
                runs[shape.bar.task, shape.bar.occurrence].append(shape.bar.run_id)
            attempts[shape.bar.run_id].append(shape)
    edges = [
        (before, run_id)
        for (task, occurrence), found in runs.items()
        for parent in nearest(task, parents, lambda one, at=occurrence: (one, at) in runs)  # type: ignore[misc]
        for before, run_id in product(runs[parent, occurrence], found)
    ]
    first = {run_id: run_id for edge in edges for run_id in edge}
    for edge in edges:
        one, other = (_first(first, run_id) for run_id in edge)
        first[max(one, other)] = min(one, other)
    numbers: dict[str, int] = {}
    chain_of = {run_id: numbers.setdefault(_first(first, run_id), len(numbers) + 1) for run_id in first}
    lines = []
    for before, run_id in edges:
        ended = max(attempts[before], key=lambda shape: shape.bar.attempt)
        began = min(attempts[run_id], key=lambda shape: shape.bar.attempt)
        lines.append(ChainLine(_bent(ended, began), chain_of[run_id]))
    return tuple(lines), chain_of


def _first(first: Mapping[str, str], run_id: str) -> str:
    while first[run_id] != run_id:
        run_id = first[run_id]
    return run_id


def _ticks(scale: TimeScale) -> Iterable[AxisTick]:
    length_us = scale.span.until_us - scale.span.from_us
    every_us = _TICK_US[min(bisect_left(_TICK_US, length_us / TICKS_MAX), len(_TICK_US) - 1)]
    first_us = -(-scale.span.from_us // every_us) * every_us
    for at_us in range(first_us, scale.span.until_us + 1, every_us):
        yield AxisTick(scale.x(at_us), at_us)
