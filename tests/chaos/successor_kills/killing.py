"""Kills nodes at drawn moments around the ends of runs that others come after, and judges what became of them."""

import json
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from node.cli.local import NotInTime, wait_for
from node.client import ApiProblem, Unreachable, path
from tasks.definition.run import FINAL
from testkit.cluster import Cluster
from testkit.each_once import due_times
from tests.chaos.successor_kills.judgement import Seen, violations
from tests.chaos.successor_kills.shapes import CHILDREN, CRON_S, HAND, PARENTS, ROOTS, TASKS, specs
from tests.chaos.successor_kills.work import Line, end_of_lines, install, lines_of

MAX_RUNS: Final = 4
"""How many attempts a node runs at once: less than what falls due at once, so that work is offered to other nodes."""

WAIT_S: Final = 300.0
"""Other work on the machine must not look like a fault."""

SETTLE_S: Final = 120.0
"""How long after the last kill all that was due may take to be as it must be."""

Landmark = Literal["a parent's last line", "a parent's committed end", "a child's first line"]
Victim = Literal["parent's owner", "child's owner", "leader"]
Deed = Literal["kill", "kill two in turn", "stop"]

_LANDMARKS: Final[tuple[Landmark, ...]] = ("a parent's last line", "a parent's committed end", "a child's first line")
_VICTIMS: Final[tuple[Victim, ...]] = ("parent's owner", "child's owner", "leader")
_DEEDS: Final[tuple[Deed, ...]] = ("kill", "kill two in turn", "stop")


@dataclass(frozen=True, kw_only=True)
class Moment:
    """When nodes are killed or stopped, and which."""

    #: What is waited for.
    landmark: Landmark
    #: How long afterwards, in seconds.
    after_s: float
    #: What is done: SIGKILL, SIGKILL to a second node too, or SIGSTOP and SIGCONT.
    deed: Deed
    #: To whom; the second one is killed only in turn.
    victims: tuple[Victim, Victim]
    #: How long afterwards the node is started again or goes on, and how long until the second one is killed.
    pauses_s: tuple[float, float]


def drawn_moment(draw: random.Random) -> Moment:
    """Draw a moment. A stopped node goes on before its lease is over, or long after it."""
    deed = draw.choices(_DEEDS, (70, 15, 15))[0]
    first, second = draw.sample(_VICTIMS, 2)
    back_s = draw.choice((0.3, 1.0, 5.0)) * draw.random() if deed == "stop" else draw.choice((0.0, draw.random()))
    return Moment(
        landmark=draw.choice(_LANDMARKS),
        after_s=draw.choice((0.0, draw.uniform(0, 0.01), draw.uniform(0, 0.05))),
        deed=deed,
        victims=(first, second),
        pauses_s=(back_s, draw.uniform(0, 1.5)),
    )


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What was done at a moment."""

    #: The moment.
    moment: Moment
    #: The parent whose run had ended, or was about to.
    parent: str
    #: The nodes that got SIGKILL.
    killed: tuple[str, ...]


class Killing:
    """A cluster whose nodes are killed while the tasks of `shapes` fall due."""

    def __init__(self, cluster: Cluster, ledgers: Path) -> None:
        self._cluster = cluster
        self._ledgers = ledgers
        self._registered = datetime.now(UTC)
        self._asked: list[str] = []
        #: What was seen at the end, by task.
        self.seen: dict[str, Seen] = {}
        #: Who owned each task at the end, when all nodes were up.
        self.owners: dict[str, str] = {}

    def begin(self) -> None:
        """Register all tasks, in one entry, and wait until each task with a schedule has begun."""
        self._ledgers.mkdir()
        for name in TASKS:
            (self._ledgers / name).touch()
        reply = self._cluster.ask("POST", "/v1/tasks", json=specs(self._ledgers))
        assert reply.status == 200, reply.body
        self._registered = datetime.fromisoformat(self._task(HAND)["registered_at"])
        wait_for("all to have begun", lambda: all(self._size(name) for name in ROOTS), WAIT_S)

    def kill(self, draw: random.Random) -> Outcome:
        """Wait for a drawn moment, kill or stop, let the nodes go on, and wait until all of them are up."""
        cluster, moment = self._cluster, drawn_moment(draw)
        if draw.random() < 0.5:
            self._run_by_hand()
        owners = self._owned()
        leader = str(cluster.client.get("/v1/cluster")["leader"])
        parent, node = self._wait(moment.landmark, draw)
        child = draw.choice(CHILDREN[parent])
        one_of: dict[Victim, str] = {"parent's owner": node, "child's owner": owners[child], "leader": leader}
        first, second = (one_of[victim] for victim in moment.victims)
        time.sleep(moment.after_s)
        if moment.deed == "stop":
            cluster.pause(first)
            time.sleep(moment.pauses_s[0])
            cluster.resume(first)
            killed: tuple[str, ...] = ()
        else:
            cluster.kill(first)
            killed = (first,)
            time.sleep(moment.pauses_s[0])
            cluster.start(first)
            if moment.deed == "kill two in turn":
                time.sleep(moment.pauses_s[1])
                cluster.kill(second)
                cluster.start(second)
                killed = (first, second)
        cluster.wait_until_whole(WAIT_S)
        return Outcome(moment=moment, parent=parent, killed=killed)

    def settle(self) -> list[str]:
        """Let nothing more fall due, and wait until all that was due is as it must be. Returns what does not hold."""
        until = datetime.now(UTC)
        with suppress(NotInTime):
            wait_for("what was due", lambda: not self._lost(until), SETTLE_S, pause_s=0.5)
        self.owners = self._owned()
        for name in ROOTS:
            self._cluster.client.call("POST", path("v1", "tasks", name, "pause"))
        wrong: list[str] = []

        def all_holds() -> bool:
            runs = list(self._cluster.client.items("/v1/runs", consistent="true"))
            self.seen = {
                name: Seen([run for run in runs if run["task"] == name], list(lines_of(self._ledgers / name)))
                for name in TASKS
            }
            known = {run["run_id"] for run in runs}
            wrong[:] = [*violations(self.seen, until), *self._lost(until)]
            wrong.extend(f"{run} was asked for, and no member knows it" for run in self._asked if run not in known)
            return not wrong

        with suppress(NotInTime):
            wait_for("all that was due to be as it must be", all_holds, SETTLE_S, pause_s=0.5)
        try:
            self._cluster.check()
        except (AssertionError, NotInTime) as error:
            wrong.append(f"{type(error).__name__}: {error}")
        return wrong

    def _owned(self) -> dict[str, str]:
        return {task["name"]: task["owner"] for task in self._cluster.client.items("/v1/tasks")}

    def _run_by_hand(self) -> None:
        with suppress(ApiProblem, Unreachable):
            body = {"downstream": True}
            reply = self._cluster.client.call("POST", path("v1", "tasks", HAND, "runs"), body=body)
            self._asked.append(reply.json["run_id"])

    def _wait(self, landmark: Landmark, draw: random.Random) -> tuple[str, str]:
        """Wait for the landmark of any parent, from a drawn moment on. Returns the parent, and its node."""
        time.sleep(draw.random())
        if landmark == "a child's first line":
            child, line = self._next_line([name for name, parents in PARENTS.items() if parents], "begin")
            parent = draw.choice(list(PARENTS[child]))
            return parent, next((one.node for one in reversed(self._lines(parent))), line.node)
        parent, line = self._next_line([name for name, children in CHILDREN.items() if children], "end", "failed")
        if landmark == "a parent's committed end":

            def committed() -> bool:
                return bool(self._cluster.client.get(path("v1", "runs", line.run))["state"] in FINAL)

            with suppress(NotInTime):  # an attempt that failed may be followed by another one
                wait_for("the end of the run", committed, 0.5, pause_s=0.001)
        return parent, line.node

    def _next_line(self, tasks: list[str], *what: str) -> tuple[str, Line]:
        """Wait until an attempt at one of these tasks writes such a line. Returns the task and the line."""
        sizes = {name: self._size(name) for name in tasks}

        def there() -> tuple[str, Line] | None:
            for name in tasks:
                if (size := self._size(name)) > sizes[name]:
                    lines = lines_of(self._ledgers / name, sizes[name])
                    sizes[name] = size
                    if (found := next((line for line in lines if line.what in what), None)) is not None:
                        return name, found
            return None

        return wait_for("the next line", there, WAIT_S, pause_s=0.001)

    def _size(self, name: str) -> int:
        return end_of_lines(self._ledgers / name)

    def _lines(self, name: str) -> list[Line]:
        return list(lines_of(self._ledgers / name))

    def _task(self, name: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._cluster.client.get(path("v1", "tasks", name))
        return found

    def _lost(self, until: datetime) -> list[str]:
        """What of the tasks with a schedule was due by then, and is not there."""
        found = []
        for name in ROOTS:
            runs = self._cluster.client.items(path("v1", "tasks", name, "runs"), consistent="true")
            there = {datetime.fromisoformat(run["fire_at"]) for run in runs}
            found += [f"{name}: {due} was due, and there is no trace of it" for due in self._due(name, until) - there]
        return found

    def _due(self, name: str, until: datetime) -> set[datetime]:
        schedule = TASKS[name]["schedule"]
        if "every_s" in schedule:
            return set(due_times(self._registered, schedule["every_s"], until))
        minute = self._registered.replace(second=0, microsecond=0)
        return {due for due in due_times(minute, CRON_S, until) if due > self._registered}

    def keep(self, to: Path) -> None:
        """Write what was seen beside the ledgers and the logs of the nodes."""
        runs = [run for one in self.seen.values() for run in one.runs]
        to.write_text("".join(json.dumps(run) + "\n" for run in sorted(runs, key=lambda run: str(run["fire_at"]))))


@contextmanager
def killed_cluster(folder: Path) -> Iterator[Killing]:
    """Start nodes with all tasks. What is left in the folder is what was seen."""
    folder.mkdir(exist_ok=True)
    python_path = install(folder / "entered")
    env = {"PYTHONPATH": python_path, "ROTA_MAX_RUNS": str(MAX_RUNS)}
    with Cluster(folder / "cluster", env=env) as cluster:
        cluster.start()
        cluster.wait_until_whole(WAIT_S)
        killing = Killing(cluster, folder / "ledgers")
        killing.begin()
        yield killing
        killing.keep(folder / "runs.jsonl")
