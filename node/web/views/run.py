"""The page of one run: its progress, attempts, checkpoint, error, result and log."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any, Final, Literal

from aiohttp import web

from node.duty.task_graph import has_neighbours
from node.http.api.asking import progress_of
from node.http.api.logs import open_log
from node.http.api.runs import ended_view, find_run, run_view
from node.http.door.request_context import RequestContext
from node.peer.protocol import NoSuchLog, PeerAway
from node.state.value import Attempt, EndedRun, Run
from node.storage.room import size
from node.web.page_endpoints import PageEndpoints, ViewQuery
from node.web.rendering import page
from node.web.restore_form import BACKUP
from node.web.words import amount
from tasks.definition.run import HELD
from tasks.definition.yaml_text import as_yaml


class RunPageQuery(ViewQuery):
    """Which part of a run's page; None: the whole page."""

    part: Literal["now"] | None = None


endpoints = PageEndpoints("page")


@endpoints.page("/runs/{run_id}")
async def run_page(context: RequestContext, query: RunPageQuery) -> web.Response:
    """Show a run; with `part=now`, only the part that changes while it works."""
    template = "parts/run_now.html" if query.part == "now" else "run.html"
    return page(context, template, **await run_values(context, context.path("run_id")))


CHECKPOINT_CHARS_MAX: Final = 2000
GIVEN_CHARS_MAX: Final = 20_000
VALUE_CHARS_MAX: Final = 1000
FIELDS_MAX: Final = 200
ATTEMPTS_MAX: Final = 50
"""At most this many attempts are shown: the latest ones."""

ROWS_MAX: Final = 100
"""At most this many rows of a result's table are shown."""

FAILED: Final = ("failed", "timed_out", "abandoned")

_ENDS: Final = {
    "claimed": "about to begin",
    "waiting": "given back",
    "orphaned": "lost",
}
"""The words for states of an attempt whose names readers would not understand."""


async def run_values(context: RequestContext, run_id: str) -> dict[str, Any]:
    """Return the values for a run's page, with the last log lines of the attempt that failed. Raises `Problem`."""
    found = await find_run(context, run_id)
    run = found.run if isinstance(found, EndedRun) else found
    if isinstance(found, EndedRun):
        view = ended_view(found)
    else:
        view = run_view(run, progress=(await progress_of(context, [run])).get(run_id))
    failed = _failed(view["state"], run.attempts)
    # Before the run has ended, show its checkpoint, which counts the rows and batches so far.
    shown = view["result"] if view["finished_at"] is not None else view["checkpoint"]
    shown = shown if isinstance(shown, dict) else None
    return {
        "run": run,
        "view": view,
        "live": view["state"] in HELD,
        "over": view["finished_at"] is not None,
        "finished_us": found.finished_at_us if isinstance(found, EndedRun) else None,
        "known_task": run.task in context.state.tasks,
        "backfill": context.state.backfills.get(run.backfill),
        "among_others": run.occurrence is not None and has_neighbours(context.state, run.task),
        "attempts": [
            (shown, attempt, _end(attempt))
            for shown, attempt in list(zip(view["attempts"], run.attempts, strict=True))[: -ATTEMPTS_MAX - 1 : -1]
        ],
        "failed": failed,
        "given_back": view["state"] == "waiting" and run.attempts and run.attempts[-1].state == "waiting",
        "lines": await last_lines(context, run_id, failed) if failed is not None else [],
        "given": _given(run),
        "made": run.spec.template and run.params is not None and not run.action,
        "checkpoint": _json(view["checkpoint"]),
        "restorable": _restorable(view, run.task) if run.task in context.state.tasks else None,
        "fields": result_fields(shown),
        "table": result_table(shown),
    }


def _restorable(view: Any, task: str) -> str | None:
    """Return the name of the backup that a run has made; None if it has made none."""
    url = (view["result"] or {}).get("url") if view["kind"] == BACKUP and view["state"] == "succeeded" else None
    folder, _, name = str(url or "").rpartition("/")
    return name if folder.endswith(f"/{task}") else None


def result_fields(result: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Return the fields of a result and their values, as text; nested fields have dotted names. Leaves out its table.

    >>> result_fields({"rows": 1204, "bytes": 2_500_000, "expect": {"positive": 0}, "table": "file:///t"})
    [('rows', '1,204'), ('bytes', '2.38 MiB'), ('expect.positive', '0'), ('table', 'file:///t')]
    """
    fields: list[tuple[str, str]] = []
    for name, value in (result or {}).items():
        if isinstance(value, dict):
            fields += [(f"{name}.{inner}", said) for inner, said in result_fields(value)]
        elif not (name in ("columns", "rows") and isinstance(value, list)) and not _is_table(value):
            fields.append((name, _value(name, value)))
    return fields[:FIELDS_MAX]


def result_table(result: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the table in a result: `columns` with `rows`, or the first list of objects, such as batches, or None.

    >>> result_table({"batches": [{"rows": 2, "files": 1}]})
    {'name': 'batches', 'columns': ['rows', 'files'], 'rows': [['2', '1']], 'more': 0}
    """
    given = result or {}
    columns, rows = given.get("columns"), given.get("rows")
    if isinstance(columns, list) and isinstance(rows, list):
        names = [str(one.get("name", "")) if isinstance(one, dict) else str(one) for one in columns]
        cells = [[_value("", cell) for cell in row] for row in rows[:ROWS_MAX] if isinstance(row, list)]
        return {"name": "rows", "columns": names, "rows": cells, "more": max(0, len(rows) - ROWS_MAX)}
    for name, value in given.items():
        if _is_table(value):
            names = list(dict.fromkeys(key for row in value[:ROWS_MAX] for key in row))
            cells = [[_value(key, row.get(key)) for key in names] for row in value[:ROWS_MAX]]
            return {"name": name, "columns": names, "rows": cells, "more": max(0, len(value) - ROWS_MAX)}
    return None


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) for row in value)


def _value(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or value in ([], ""):
        return "none"
    if isinstance(value, int | float):
        return size(value) if name.endswith("bytes") else amount(value) if name != "version" else str(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= VALUE_CHARS_MAX else text[:VALUE_CHARS_MAX] + " …"


def _given(run: Run) -> str:
    """Return the params, and an action's args, that were given for this run only, as YAML; "" if there are none."""
    if not run.args:
        return "" if run.params is None else as_yaml(run.params)[:GIVEN_CHARS_MAX]
    given = {"args": run.args} if run.params is None else {"args": run.args, "params": run.params}
    return as_yaml(given)[:GIVEN_CHARS_MAX]


def _failed(state: str, attempts: tuple[Attempt, ...]) -> Attempt | None:
    """Return the latest attempt that failed; None if the run has succeeded since, or another attempt is active."""
    if state == "succeeded" or state in HELD:
        return None
    return next((attempt for attempt in reversed(attempts) if attempt.state in FAILED), None)


def _end(attempt: Attempt) -> str:
    return _ENDS.get(attempt.state, attempt.state.replace("_", " "))


def _json(value: Any) -> str | None:
    if value is None:
        return None
    text = json.dumps(value, ensure_ascii=False, indent=1)
    return text if len(text) <= CHECKPOINT_CHARS_MAX else text[:CHECKPOINT_CHARS_MAX] + " …"


LINES_MAX: Final = 12
BYTES_MAX: Final = 4096
"""How many bytes at the end of a log are read to find its last lines."""

_STYLE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
"""Matches a terminal's escape sequences for colours, titles and cursor moves (ECMA-48)."""


async def last_lines(context: RequestContext, run_id: str, attempt: Attempt) -> list[str]:
    """Return the last lines of an attempt's log; [] if there is no log, or its member does not answer."""
    if attempt.node == context.node.settings.node:
        data = await asyncio.to_thread(_read, context.node.log_path(run_id, attempt.attempt))
    else:
        data = await _fetched(context, run_id, attempt)
    return readable(data.decode(errors="replace"))[-LINES_MAX:]


def readable(text: str) -> list[str]:
    r"""Return the lines of a log as a terminal would finally show them, without colours and empty lines.

    >>> readable("10 %\r20 %\r\n\n\x1b[31mfailed\x1b[0m\n")
    ['20 %', 'failed']
    """
    lines = (_STYLE.sub("", line).rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return [line for line in lines if line.strip()]


def _read(path: Path) -> bytes:
    try:
        file = open_log(path, BYTES_MAX)
    except OSError:
        return b""  # a name that is too long for the file system, or a disk that fails
    if file is None:
        return b""
    with file:
        return file.read(BYTES_MAX)


async def _fetched(context: RequestContext, run_id: str, attempt: Attempt) -> bytes:
    limit_s, data = context.server.limits.peer_s, b""
    fetching = context.server.peers.log(
        attempt.node, run_id, attempt.attempt, follow=False, timeout_s=limit_s, tail_bytes=BYTES_MAX
    )
    try:
        async with asyncio.timeout(2 * limit_s), fetching as pieces:
            async for piece in pieces:
                data += piece
                if len(data) >= BYTES_MAX:
                    break
    except (NoSuchLog, PeerAway, TimeoutError):
        return data
    return data
