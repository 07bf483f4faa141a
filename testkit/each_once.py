"""Whether a schedule was kept: each occurrence of a task, from its registration to its pause, there once and succeeded.

What was due is worked out from the registration alone, so that what is lost at either end is seen too.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from node.cli.local import NotInTime, wait_for
from node.client import Client, path
from testkit.cluster import Cluster

LEVEL_S: Final = 120.0
"""So long is waited for what is due to be there, and for what runs to end; what is not by then is lost."""

LOOK_S: Final = 0.2
"""Between two looks."""


class Kept(NamedTuple):
    """The runs of a task that is paused now, and what is wrong with them."""

    runs: list[dict[str, Any]]
    wrong: list[str]


def due_times(registered: datetime, every_s: float, until: datetime) -> list[datetime]:
    """When a task with `every_s` is due after its registration, `until` included.

    >>> [due.second for due in due_times(datetime(2026, 1, 1), 20, datetime(2026, 1, 1, 0, 0, 40))]
    [20, 40]
    """
    step = timedelta(seconds=every_s)
    return [registered + number * step for number in range(1, (until - registered) // step + 1)]


def lost(task: Mapping[str, Any], runs: Iterable[Mapping[str, Any]], until: datetime) -> list[datetime]:
    """What was due until then and is not there. `task` and `runs` as the API tells them."""
    there = {datetime.fromisoformat(run["fire_at"]) for run in runs if run["trigger"] == "schedule"}
    registered = datetime.fromisoformat(task["registered_at"])
    return [due for due in due_times(registered, task["schedule"]["every_s"], until) if due not in there]


def wrong(task: Mapping[str, Any], runs: Sequence[Mapping[str, Any]], until: datetime, paused: datetime) -> list[str]:
    """What is wrong with the runs of a task as the API tells both; nothing where its schedule was kept.

    `until`: a moment before it was asked to be paused. What was due by then must be there, and what was due later
    unless nothing after it is: its claim may have come after the pause. `paused`: a moment after the answer.
    """
    name, mine = task["name"], [run for run in runs if run["trigger"] == "schedule"]
    there = Counter(datetime.fromisoformat(run["fire_at"]) for run in mine)
    may = due_times(datetime.fromisoformat(task["registered_at"]), task["schedule"]["every_s"], paused)
    found = [] if any(due <= until for due in may) else [f"{name} was never due: nothing is shown"]
    found += [f"{name}: {due} was due, and there is no trace of it" for due in lost(task, mine, max([until, *there]))]
    found += [f"{name}: {time} was not due, and is there" for time in sorted(there.keys() - set(may))]
    found += [f"{name}: {time} is there {count} times" for time, count in sorted(there.items()) if count > 1]
    for run in mine:
        ends = [attempt["state"] for attempt in run["attempts"]]
        if run["state"] != "succeeded" or ends.count("succeeded") != 1:
            found.append(f"{name}: {run['fire_at']} is {run['state']}, its attempts: {', '.join(ends) or 'none'}")
    return found


def pause(client: Client, names: Sequence[str]) -> dict[str, Kept]:
    """Pause these tasks, once what was due by now is there, and tell how their schedules were kept.

    They must not have been changed since they were registered. Raises `Problem` and `Unreachable`.
    """
    tasks = {name: client.get(path("v1", "tasks", name)) for name in names}
    until = datetime.now(UTC)
    with suppress(NotInTime):
        wait_for(
            "what is due is there",
            lambda: not any(lost(tasks[name], _runs(client, name), until) for name in names),
            LEVEL_S,
            LOOK_S,
        )
    paused: dict[str, datetime] = {}
    for name in names:
        client.call("POST", path("v1", "tasks", name, "pause"))
        paused[name] = datetime.now(UTC)

    def told() -> dict[str, Kept]:
        runs = {name: _runs(client, name) for name in names}
        return {name: Kept(runs[name], wrong(tasks[name], runs[name], until, paused[name])) for name in names}

    with suppress(NotInTime):
        wait_for("all has succeeded", lambda: not any(kept.wrong for kept in told().values()), LEVEL_S, LOOK_S)
    return told()


def assert_each_occurrence_once(cluster: Cluster, tasks: Sequence[str]) -> None:
    """Of tasks that are due every so many seconds, with `overlap: allow` and `catch_up: all`; they are paused here.

    From the registration to the pause: each has succeeded, once.
    """
    for task, kept in pause(cluster.client, tasks).items():
        assert not kept.wrong, kept.wrong
        assert len(kept.runs) >= 3, f"{task} was hardly ever due"


def _runs(client: Client, name: str) -> list[dict[str, Any]]:
    return list(client.items(path("v1", "tasks", name, "runs"), consistent="true"))
