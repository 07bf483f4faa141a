"""The timeline: past and active runs and due tasks of each member, now or supposing that some members were down."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlencode

from aiohttp import web
from pydantic import BeforeValidator, field_validator

from node.duty.timetable import TimeSpan
from node.duty.what_if import Supposition, WhatIf
from node.history.file import RunPosition
from node.http.api.what_ifs import what_if_of
from node.http.door.request_context import RequestContext
from node.http.node_port import HistoryPort
from node.state.value import EndedRun, State
from node.web.page_endpoints import PageEndpoints, ViewQuery
from node.web.rendering import page
from node.web.timeline_bars import TimeBar, active_bars, gone_bars, planned_bars, run_bars, say_parents
from node.web.timeline_chart import WIDTH, TimelineChart, chart_of
from tasks.definition.spec import after_of

NamesGiven = Annotated[tuple[str, ...], BeforeValidator(lambda given: (given,) if isinstance(given, str) else given)]
"""One or several names in a query."""


class TimelineQuery(ViewQuery):
    """How many hours to show, back and ahead, and which members to suppose down (`without`) or up again (`back`)."""

    past_h: Literal[1, 6, 24] = 6
    ahead_h: Literal[1, 6, 24] = 24
    without: NamesGiven = ()
    back: NamesGiven = ()
    part: Literal["plan"] | None = None

    @field_validator("past_h", "ahead_h", mode="before")
    @classmethod
    def _number(cls, given: object) -> object:
        return int(given) if isinstance(given, str) and given.isdecimal() else given


endpoints = PageEndpoints("page")


@endpoints.page("/timeline")
async def timeline(context: RequestContext, query: TimelineQuery) -> web.Response:
    """Show the timeline, as it would be with `without` and `back` if given; with `part=plan`, only the plan."""
    given = context.request.query
    asked = query.model_copy(update={name: tuple(given.getall(name, ())) for name in ("without", "back")})
    template = "parts/plan.html" if query.part == "plan" else "timeline.html"
    values = await timeline_values(context, asked)
    # In a thread, because hundreds of bars take tens of milliseconds.
    return await asyncio.to_thread(page, context, template, **values)


ENDED_MAX: Final = 2000
"""At most this many ended runs are read: the newest ones."""

READ_AT_ONCE: Final = 500

ROWS_MAX: Final = 150
"""The most rows of the table beside the chart."""

PARENTS_MAX: Final = 5000
"""Of at most this many tasks it is read after which ones they come."""

LISTED_MAX: Final = 20
"""A list names at most this many tasks; the others are counted."""

HOUR_US: Final = 3600 * 1_000_000


@dataclass(frozen=True, slots=True)
class EndedRuns:
    """The runs that have ended since `from_us`. `older`: the requested time has earlier ones, which are left out."""

    runs: tuple[EndedRun, ...]
    from_us: int
    older: bool


def ended_since(history: HistoryPort, from_us: int) -> EndedRuns:
    """Return the newest `ENDED_MAX` runs that have ended since `from_us`; long ones may be missing. Reads the disk."""
    found: list[EndedRun] = []
    position: RunPosition | None = None
    while len(found) < ENDED_MAX:
        portion = history.runs(None, None, None, position, READ_AT_ONCE)
        found += [ended for ended in portion if ended.finished_at_us >= from_us]
        if len(portion) < READ_AT_ONCE or portion[-1].run.created_at_us < from_us:
            return EndedRuns(tuple(found), from_us, older=False)
        position = RunPosition(portion[-1].run.created_at_us, portion[-1].run.run_id)
    return EndedRuns(tuple(found), found[-1].run.created_at_us, older=True)


@dataclass(frozen=True, slots=True)
class DrawnTimeline:
    """The chart, its bars as rows of a table (and how many more there are), and the ended runs in it."""

    chart: TimelineChart
    rows: tuple[TimeBar, ...]
    more_rows: int
    ended: EndedRuns


def drawn_timeline(history: HistoryPort, state: State, found: WhatIf, span: TimeSpan, now_us: int) -> DrawnTimeline:
    """Draw past and active runs, and the occurrences ahead by `found`. Reads the disk."""
    ended = ended_since(history, span.from_us)
    bars = [bar for one in ended.runs for bar in run_bars(one.run, now_us)]
    bars += active_bars(state, now_us)
    for one in found.ahead.members.values():
        bars += planned_bars(one.runs, span.until_us)
        bars += gone_bars(one.gone, span.until_us)
    parents = _parents_of(state, {bar.task for bar in bars if bar.occurrence is not None})
    members = [name for name in state.slots if name is not None]
    chart = chart_of(members, say_parents(bars, parents), found.ahead, span, now_us, parents)
    rows = sorted((shape.bar for lane in chart.lanes for shape in lane.bars), key=lambda bar: (bar.begins_us, bar.task))
    # Show the rows around the present.
    first = max(0, min(len(rows) - ROWS_MAX, sum(bar.is_past for bar in rows) - ROWS_MAX // 2))
    shown = tuple(rows[first : first + ROWS_MAX])
    return DrawnTimeline(chart, shown, len(rows) - len(shown), ended)


def _parents_of(state: State, tasks: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the tasks before each of these and of those before them, for those that have some."""
    found: dict[str, tuple[str, ...]] = {}
    ahead = list(tasks)
    while ahead and len(found) < PARENTS_MAX:
        task = ahead.pop()
        row = state.tasks.get(task)
        if task not in found and row is not None and (after := after_of(row.spec_packed)):
            found[task] = tuple(one.task for one in after)
            ahead += found[task]
    return found


async def timeline_values(context: RequestContext, query: TimelineQuery) -> dict[str, Any]:
    """Return the values for the template of the timeline. Unknown members in the query are ignored."""
    state = context.state
    without = frozenset(query.without).intersection(state.members)
    returning = frozenset(name for name, member in state.members.items() if member.status != "up")
    supposition = Supposition(without, returning.intersection(query.back) - without)
    found = await what_if_of(context, supposition, query.ahead_h * 3600)
    now_us = _in_steps(context.server.now_us(), (query.past_h + query.ahead_h) * HOUR_US)
    span = TimeSpan(now_us - query.past_h * HOUR_US, now_us + query.ahead_h * HOUR_US)
    drawn = await asyncio.to_thread(drawn_timeline, context.node.history, state, found, span, now_us)
    return {
        "query": query,
        "found": found,
        "supposition": supposition,
        "drawn": drawn,
        "state": state,
        "returning": sorted(returning),
        "leader": context.node.role.leader,
        "has_quorum": context.node.role.has_quorum,
        "listed_max": LISTED_MAX,
        "here": _url(query),
    }


def _in_steps(now_us: int, length_us: int) -> int:
    """Round the time to half a pixel, so that without events the chart stays the same and is not sent again."""
    return now_us - now_us % (length_us // (2 * WIDTH))


def _url(query: TimelineQuery) -> str:
    given = [("past_h", str(query.past_h)), ("ahead_h", str(query.ahead_h))]
    given += [("without", name) for name in query.without] + [("back", name) for name in query.back]
    return f"timeline?{urlencode(given)}"
