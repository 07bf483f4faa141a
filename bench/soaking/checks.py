"""What must hold when the faults are over: asked of every member, and compared with what was promised and seen."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from bench.soaking.clients import Promises
from bench.soaking.tasks import BY_HAND, COUNTER
from node.cli.local import LocalCluster, NotInTime, wait_for

LATE_S: Final = 15.0
"""The last occurrence of a schedule is no older than its interval and this."""

EXPECTED: Final = tuple(
    re.compile(pattern)
    for pattern in (
        r"rota\.member: \S+ is taken to be down: (gone|silent)",
        r"rota\.joining: the others have this node as ",
        r"rota\.member: stopping without having said so: ",  # the last ones of a full stop have no majority
        r"rota: killed \d+ processes that an earlier start had left behind",  # started while supervisors still kill
    )
)
"""Warnings that the faults themselves bring about."""

_ALARM: Final = re.compile(r" (WARNING|ERROR|CRITICAL) |^Traceback ")


def logs(cluster: LocalCluster) -> tuple[Counter[str], list[str]]:
    """How often each expected warning was given, and all lines that nothing explains."""
    expected: Counter[str] = Counter()
    unexplained = []
    for name in cluster.names:
        for number, line in enumerate(cluster.log_file(name).read_text(errors="replace").splitlines(), 1):
            if _ALARM.search(line):
                known = next((pattern.pattern for pattern in EXPECTED if pattern.search(line)), None)
                if known is None:
                    unexplained.append(f"{name}.log:{number}: {line}")
                else:
                    expected[known] += 1
    return expected, unexplained


def settled(cluster: LocalCluster, deadline_s: float = 60) -> list[str]:
    """Wait until no run is active and every member says the same; what does not come about."""
    try:
        wait_for("no run is active", lambda: not _active(cluster), deadline_s, pause_s=0.5)
    except NotInTime:
        return [f"stuck: {run}" for run in _active(cluster)]
    try:
        wait_for("the members agree", lambda: not disagreements(cluster), 30, pause_s=0.5)
    except NotInTime:
        return disagreements(cluster)
    return []


def _active(cluster: LocalCluster) -> list[str]:
    return [
        f"{told['run_id']} {told['state']} on {told['node']} token {told['token']} cancelling {told['cancelling']}"
        for told in cluster.client.items("/v1/runs")
        if told["finished_at"] is None
    ]


def disagreements(cluster: LocalCluster) -> list[str]:
    """Where two members tell different things of tasks and runs."""
    found = []
    first = cluster.names[0]
    for what, key in (("/v1/tasks", "name"), ("/v1/runs", "run_id")):
        told = {name: {item[key]: item for item in cluster.client_of(name).items(what)} for name in cluster.names}
        for name in cluster.names[1:]:
            differing = [
                item for item in told[first].keys() | told[name].keys() if told[first].get(item) != told[name].get(item)
            ]
            found += [
                f"{what}: {first} tells {told[first].get(item)}, and {name} {told[name].get(item)}"
                for item in sorted(differing)[:5]
            ]
    return found


def promises(cluster: LocalCluster, told: Promises, runs: Mapping[str, Any]) -> list[str]:
    """What was acknowledged and is not there, or the other way round."""
    found = list(told.broken)
    tasks = {task["name"]: task for task in cluster.client.items("/v1/tasks")}
    for name, marker in told.there.items():
        if name not in tasks:
            found.append(f"{name} was acknowledged, and is not there")
        elif tasks[name]["params"]["marker"] != marker:
            found.append(f"{name} was acknowledged with marker {marker}, and is {tasks[name]['params']}")
    found += [f"{name} was deleted, and is there" for name in sorted(told.gone & tasks.keys())]
    counter = tasks[COUNTER]["params"]["marker"]
    if not told.counted <= counter <= told.tried:
        found.append(f"{COUNTER} was acknowledged up to {told.counted} of {told.tried}, and is at {counter}")
    for key, run in told.runs.items():
        if run not in runs:
            found.append(f"{run} was promised (key {key}), and nobody knows of it")
        elif runs[run]["state"] != "succeeded":
            found.append(f"{run} was promised, and {runs[run]['state']}: {runs[run]['error']}")
    by_hand = sum(run["task"] == BY_HAND for run in runs.values())
    if by_hand > told.keys:
        found.append(f"{told.keys} runs of {BY_HAND} were asked for, and {by_hand} made")
    return found


def tokens(runs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Tokens are given once, and grow from attempt to attempt."""
    found = []
    holders: dict[int, str] = {}
    for run in runs:
        given = [attempt["token"] for attempt in run["attempts"]]
        if given != sorted(set(given)):
            found.append(f"{run['run_id']}: its attempts have the tokens {given}")
        found += [
            f"token {token} was given to {holders[token]} and to {run['run_id']}"
            for token in given
            if holders.setdefault(token, run["run_id"]) != run["run_id"]
        ]
    return found


def occurrences(task: Mapping[str, Any], runs: Iterable[Mapping[str, Any]], until: datetime) -> list[str]:
    """Every due time of a schedule, up to the last, is there once: run, skipped or missed. `until`: it was paused."""
    name, schedule = task["name"], task["schedule"]
    mine = [run for run in runs if run["task"] == name and run["trigger"] == "schedule"]
    times = sorted(datetime.fromisoformat(run["fire_at"]) for run in mine)
    found = [f"{name}: {time} is there {count} times" for time, count in Counter(times).items() if count > 1]
    for state in ("skipped", "missed"):
        there = sum(run["state"] == state for run in mine)
        if there != task[state]:
            found.append(f"{name}: {task[state]} {state} by its count, {there} in history")
    if "continuous" in schedule:
        return found
    since = datetime.fromisoformat(task["registered_at"])
    due = list(_due(schedule, since, max([since, *times])))
    found += [f"{name}: {time} was due, and there is no trace of it" for time in sorted(set(due) - set(times))]
    found += [f"{name}: {time} was not due, and is there" for time in sorted(set(times) - set(due))]
    if max([since, *times]) < until - timedelta(seconds=LATE_S + schedule.get("every_s", 7)):
        found.append(f"{name}: nothing is there after {max([since, *times])}, and it was paused at {until}")
    return found


def _due(schedule: Mapping[str, Any], since: datetime, last: datetime) -> Iterable[datetime]:
    """By hand: `every_s` from the registration on, or each second that seven divides."""
    if "every_s" in schedule:
        step = timedelta(seconds=schedule["every_s"])
        return (since + number * step for number in range(1, int((last - since) / step) + 1))
    whole = since.replace(microsecond=0) + timedelta(seconds=1)
    seconds = (whole + timedelta(seconds=number) for number in range(int((last - whole).total_seconds()) + 1))
    return (second for second in seconds if second.second % 7 == 0)


def leftovers(folder: Path) -> list[str]:
    """Processes that the nodes have left running: every worker has its node's folder in its environment."""
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            environment = (process / "environ").read_bytes()
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (OSError, ValueError):
            continue
        if f"NURSERY_OF={folder}".encode() in environment:
            found.append(f"process {process.name} was left behind: {line[:200]}")
    return found


def now() -> datetime:
    """The wall clock."""
    return datetime.now(UTC)
