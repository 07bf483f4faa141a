"""The page of one task: its state and the reason for it, its owner, due times and runs, and figures for the chart."""

import asyncio
from collections.abc import Container
from datetime import datetime
from functools import lru_cache
from itertools import chain, count
from typing import Any, Final, Literal

from aiohttp import web
from pydantic import Field

from hashing.preference import Reason
from node.duty.conditions import UNEXPECTED
from node.duty.held_times import held_time
from node.duty.ownership import Ownership
from node.duty.standing import on_each
from node.http.api.asking import progress_of
from node.http.api.due_times import due_times_view
from node.http.api.explaining import explain
from node.http.api.placement import parts_view
from node.http.api.runs import RunsQuery, run_view, runs_page
from node.http.api.tasks import known_task
from node.http.door.endpoint import ResponseSpec
from node.http.door.problems import Problem
from node.http.door.request_context import RequestContext
from node.state.calendar import days_of
from node.state.times import micros
from node.state.value import State, TaskRow
from node.storage.room import size
from node.web.coming_times import SHOWN, coming_times
from node.web.page_endpoints import PageEndpoints, ViewQuery
from node.web.rendering import HEADERS, page
from node.web.views.task_graph import TaskGraphQuery, graph_values
from node.web.views.tasks import row_values
from tasks.definition.spec import Spec, after_of, read_spec
from tasks.definition.yaml_text import as_yaml

PAST_ROWS: Final = 15
"""The number of past runs on a page."""

CHART_RUNS: Final = 120
"""The chart shows at most this many of the latest runs."""

DEFINITION_CHARS_MAX: Final = 20_000
"""At most this much of a definition is shown on the task's page; the form has all of it."""

NAME_CHARS_MAX: Final = 128
"""The longest name of a task (`tasks.definition.spec.NAME_PATTERN`)."""

ACTIVE_MAX: Final = 10
"""At most this many active runs are shown."""


class TaskPageQuery(ViewQuery):
    """Which part of a task's page (None: the whole page), and the cursor behind which the list of its runs begins."""

    part: Literal["now", "past", "panel", "definition"] | None = None
    after: str | None = Field(default=None, max_length=1000)


endpoints = PageEndpoints("page")

PANEL_RUNS = 5
"""The number of past runs in the panel beside the list of tasks."""


@endpoints.page("/tasks/{name}")
async def task_page(context: RequestContext, query: TaskPageQuery) -> web.Response:
    """Show a task; with `part`, one part of its page."""
    name = known_task(context)
    match query.part:
        case "now":
            return page(context, "parts/task_now.html", **await task_values(context, name))
        case "past":
            return page(context, "parts/task_past.html", **await past_values(context, name, query.after))
        case "panel":
            past = await past_values(context, name, None, PANEL_RUNS)
            # The panel is a part of the list of tasks, at /tasks.
            return page(context, "parts/panel.html", root="./", **past, **await task_values(context, name))
        case "definition":
            return page(context, "parts/task_definition.html", **await definition_values(context, name))
    values = await task_values(context, name) | await past_values(context, name, query.after)
    if values["before"] or values["then"]:
        values |= await graph_values(context, name, TaskGraphQuery())
    else:
        values["boxes"] = []
    return page(context, "task.html", **values | await definition_values(context, name))


@endpoints.add(
    "GET",
    "/tasks/{name}/figures",
    {200: ResponseSpec("Durations and amounts of its latest runs", dict)},
    access="browser",
)
async def task_figures(context: RequestContext) -> web.Response:
    """Return the figures for the chart of a task's page, as JSON."""
    response = context.answer(await figures(context, known_task(context)))
    response.headers.update(HEADERS)
    return response


async def task_values(context: RequestContext, name: str) -> dict[str, Any]:
    """Return a task's present values: its state, why it does not run, active runs, and owner. Raises `Problem`."""
    ownership = await context.ownership()
    row = context.state.tasks.get(name)
    if row is None:
        raise Problem("not-found", f"the task {name!r} was deleted meanwhile")
    if name not in ownership.state.tasks:
        raise Problem("behind", "the placement with this task is still being computed: try again")
    found = await explain(context, name, ownership)
    state, now_us = context.state, context.server.now_us()
    if name not in state.tasks:
        raise Problem("not-found", f"the task {name!r} was deleted meanwhile")
    active = [state.runs[run_id] for run_id in state.runs_of.get(name, ())]
    progress = await progress_of(context, active[:ACTIVE_MAX])
    return {
        "row": row_values(state, ownership, name, found if found.code in UNEXPECTED else None, now_us),
        "why": found,
        "active": [(run, run_view(run, progress=progress.get(run.run_id))) for run in active[:ACTIVE_MAX]],
        "active_count": len(active),
        "walk": _walk(state, ownership, name),
        "standbys": ownership.standbys(name),
        "on_each": on_each(state, row) if name in state.each else "",
        "parts": parts_view(state, name),
        "version": row.version,
        "kept_in": row.spec.set,
        "labels": row.spec.labels,
        "coming": _coming(state, row, now_us),
        "out": due_times_view(state, row, now_us, SHOWN),
        "blackouts": [
            one
            for one in sorted(state.blackouts.values(), key=lambda one: one.from_us)
            if now_us < one.until_us and set(one.labels) <= set(row.spec.labels.items())
        ],
        "before": after_of(row.spec_packed),
        "then": state.children.get(name, ()),
        "timezone": getattr(row.timing.schedule, "timezone", "UTC"),
    }


@lru_cache(maxsize=64)
def definition_text(packed: bytes) -> str:
    """Return a packed definition as YAML, without fields that have their default."""
    return _text(read_spec(packed))


def copy_text(spec: Spec, taken: Container[str]) -> str:
    """Return the definition of a copy, as YAML: under a name that is not `taken`, and in no set of files.

    >>> print(copy_text(Spec(name="a", kind="copy", set="site"), {"a", "a-copy"}), end="")
    name: a-copy-2
    kind: copy
    """
    stem = f"{spec.name[: NAME_CHARS_MAX - len('-copy-999')]}-copy"
    numbered = (f"{stem}-{number}" for number in count(2))
    name = next(name for name in chain((stem,), numbered) if name not in taken)
    return _text(spec.model_copy(update={"name": name, "set": None}))


def _text(spec: Spec) -> str:
    short = _whole(spec.model_dump(mode="json", exclude_defaults=True))
    # A default may depend on other fields. If the short definition does not give the same spec, show all fields.
    return as_yaml(short if Spec.model_validate(short) == spec else spec.model_dump(mode="json"))


def _whole(value: Any) -> Any:
    """Write whole numbers without a fraction, except in params, where 2.0 may mean something other than 2.

    >>> _whole({"schedule": {"every_s": 900.0}, "timeout_s": 1.5, "params": {"x": 2.0}})
    {'schedule': {'every_s': 900}, 'timeout_s': 1.5, 'params': {'x': 2.0}}
    """
    if isinstance(value, dict):
        return {name: inner if name == "params" else _whole(inner) for name, inner in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value


async def definition_values(context: RequestContext, name: str) -> dict[str, Any]:
    """Return the values for the part of the page with the task's definition. Raises `Problem`."""
    row = context.state.tasks.get(name)
    if row is None:
        raise Problem("not-found", f"the task {name!r} was deleted meanwhile")
    text = await asyncio.to_thread(definition_text, row.spec_packed)
    cut = text[:DEFINITION_CHARS_MAX]
    return {"task": name, "definition": cut, "longer": len(text) - len(cut)}


async def past_values(context: RequestContext, name: str, after: str | None, limit: int = PAST_ROWS) -> dict[str, Any]:
    """Return a page of a task's runs, newest first. Raises `Problem`."""
    found = await runs_page(context, RunsQuery(task=name, limit=limit, after=after))
    return {
        "past": [{**view, "did": done_words(view["result"])} for view in found["items"]],
        "next": found["next"],
        "after": after,
        "task": name,
    }


async def figures(context: RequestContext, name: str) -> dict[str, Any]:
    """Return the latest runs of a task that ended, oldest first, for its chart: columns of equal length."""
    found = await runs_page(context, RunsQuery(task=name, limit=CHART_RUNS))
    ended = [view for view in reversed(found["items"]) if view["action"] is None and view["took_s"] is not None]
    unit = next((name for view in ended for name in ("rows", "bytes") if _number(view["result"], name) is not None), "")
    return {
        "run_id": [view["run_id"] for view in ended],
        "at_s": [_at(view["fire_at"]).timestamp() for view in ended],
        "took_s": [view["took_s"] for view in ended],
        "good": [view["state"] == "succeeded" for view in ended],
        "unit": unit,
        "amount": [_number(view["result"], unit) for view in ended] if unit else [],
    }


def done_words(result: dict[str, Any] | None) -> str:
    """Say how much work a run's result shows: rows or bytes; "" if the result has neither.

    >>> done_words({"rows": 1204}), done_words({"bytes": 2_500_000}), done_words({"exit_code": 0})
    ('1,204 rows', '2.38 MiB', '')
    """
    if (rows := _number(result, "rows")) is not None:
        return f"{rows:,.0f} rows"
    if (number := _number(result, "bytes")) is not None:
        return size(number)
    return ""


def _number(result: dict[str, Any] | None, name: str) -> float | None:
    value = (result or {}).get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _us(text: str | None) -> int | None:
    return None if text is None else micros(_at(text))


def _coming(state: State, row: TaskRow, now_us: int) -> list[dict[str, Any]]:
    found = coming_times(row.spec.schedule, days_of(state.calendars, row.timing), row.since_us, row.through_us, now_us)
    return [
        {**{name: getattr(one, name) for name in one.__slots__}, "held": held_time(state, row, one.at_us)}
        for one in found
    ]


def _walk(state: State, ownership: Ownership, name: str) -> list[dict[str, Any]]:
    """Return the members in the order in which placement considers them, each with why it is the owner or not."""
    task = state.tasks[name].placing if name in state.tasks else ownership.state.tasks[name].placing
    told = []
    seen: set[str | None] = set()
    for reason in ownership.explain(name):
        if reason.member is None:
            continue  # a free slot
        seen.add(reason.member)
        words = _verdict(state, reason, task.kind, task.group)
        told.append({"member": reason.member, "chosen": reason.verdict == "chosen", "words": words, "able": False})
    told += [
        {"member": member, "chosen": False, "words": "would be next", "able": True}
        for member in ownership.preference(name)
        if member not in seen
    ]
    return told


def _verdict(state: State, reason: Reason, kind: str, group: tuple[tuple[str, str], ...]) -> str:
    match reason.verdict:
        case "chosen":
            return "owns it"
        case "down":
            return "is down"
        case "draining":
            return "is drained, and gets no new runs"
        case "vacant":
            return "is not a member"
        case "kind":
            return f"does not offer the kind {kind}"
        case "full":
            return "has its share of the load"
        case "group":
            member = state.members.get(reason.member or "")
            has = set(member.labels) if member is not None else set()
            lacking = ", ".join(f"{label}={value}" for label, value in group if (label, value) not in has)
            return f"lacks the label {lacking}" if lacking else "lacks a label"
