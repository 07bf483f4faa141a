"""The page of a task's backups: those that its last good run found at its destination, and what they restore to."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from aiohttp import web

from node.http.api.runs import RunsQuery, run_view, runs_page
from node.http.api.tasks import known_task
from node.http.door.problems import Problem
from node.http.door.request_context import RequestContext
from node.state.facts import unusual_of
from node.state.times import micros
from node.state.value import State
from node.web.page_endpoints import PageEndpoints
from node.web.rendering import page
from node.web.restore_form import BACKUP

WIDTH: Final = 1000
"""The width of the band of points in time, in units of the picture."""

endpoints = PageEndpoints("page")


@endpoints.page("/tasks/{name}/backups")
async def backups_page(context: RequestContext) -> web.Response:
    """Show the backups of a task of kind `backup`."""
    name = known_task(context)
    if context.state.tasks[name].placing.kind != BACKUP:
        raise Problem("not-found", f"{name} is no task of kind {BACKUP}, so it has no backups")
    found = await runs_page(context, RunsQuery(task=name, state="succeeded", limit=20))
    run = next((view for view in found["items"] if (view["result"] or {}).get("backups")), None)
    result: dict[str, Any] = {} if run is None else run["result"] or {}
    backups: list[dict[str, Any]] = result.get("backups", [])
    log = log_of(context.state, name)
    return page(
        context,
        "backups.html",
        task=name,
        run=run,
        backups=backups,
        degraded=result.get("degraded"),
        unusual=unusual_of(result),
        log=log,
        band=band_of(backups, log, context.server.now_us()),
    )


def log_of(state: State, task: str) -> dict[str, Any] | None:
    """Return the name of the task that archives the log for a task's backups, and up to when it has; None: none does.

    `at_us` is the time of the last archived log by its run's checkpoint, in microseconds since the epoch, or None.
    """
    for name, row in state.tasks.items():
        if row.placing.kind == "wal" and row.spec.params.get("backups") == task:
            saved = [run_view(state.runs[run_id])["checkpoint"] for run_id in state.runs_of.get(name, ())]
            times = [micros(datetime.fromisoformat(each["at"])) for each in saved if (each or {}).get("at")]
            return {"task": name, "at_us": max(times, default=None)}
    return None


def band_of(backups: Sequence[Mapping[str, Any]], log: Mapping[str, Any] | None, now_us: int) -> dict[str, Any] | None:
    """Return the picture of the points in time that can be restored; None without backups.

    `points` are the backups' places from 0 to `WIDTH`, `since_us` is the time at 0 and `now_us` that at `WIDTH`. `log`:
    where the time begins and ends of which each moment can be restored, or None.

    >>> hour = {"name": "x", "created": "1970-01-01T01:00:00+00:00", "finished": "1970-01-01T01:00:00+00:00"}
    >>> band_of([hour], {"at_us": 5_400_000_000}, 7_200_000_000)["log"]
    (0, 500)
    """
    if not backups:
        return None
    times_us = [micros(datetime.fromisoformat(backup["created"])) for backup in backups]
    since_us = min(times_us)
    span_us = max(1, now_us - since_us)

    def place(at_us: int) -> int:
        return max(0, min(WIDTH, round(WIDTH * (at_us - since_us) / span_us)))

    reached = None
    if log is not None and log["at_us"] is not None:
        first_us = min(micros(datetime.fromisoformat(backup["finished"])) for backup in backups)
        reached = (place(first_us), place(log["at_us"]))
    return {
        "points": [place(at_us) for at_us in times_us],
        "since_us": since_us,
        "log": reached if reached is not None and reached[0] < reached[1] else None,
    }
