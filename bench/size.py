"""What 100,000 tasks and a million finished runs cost: three nodes on this machine.

    python -m bench.size [--tasks 100000] [--runs 1000000] [--due 1000] [--minutes 2] [--history FILE] [--apart]

Tasks are registered in lists. The finished runs are written into each member's history before it starts
(`bench.sizing.history` says how); --history keeps the file for the next time. How late threads were is each node's own
account (/metrics: the worst of the last minute, so that the phases are a minute apart). Start delays are from when an
occurrence was due until its worker said that it begins, of tasks that are due once a minute, evenly spread; every one
must have begun. An attempt is two forks, of the supervisor and of the worker, and 1,000 of them a minute are 17 a
second on all nodes together.

The nodes share this program's session. Linux gives each session its part of each processor (autogroup), and is coarse
about it: of three nodes in sessions of their own on two processors, one was seen to stand still for 190 ms, with all of
its threads ready to run. Nodes that have machines of their own do not compete; --apart shows what it does here.
"""

import re
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from bench.api import LIST, Connection
from bench.beginning import options_of
from bench.sizing import history
from bench.sizing.figures import fresh_window, gauges, percentiles, show, show_late, show_memory, spent, timed
from bench.sizing.starts import Starts, starts
from bench.sizing.work import install
from node.cli.local import LocalCluster, wait_for
from node.client import path

MEMORY_MIB: Final = 500
READY_S: Final = 15.0
STALL_MS: Final = 100
DELAY_MS: Final = 500

EVERY_S: Final = 60.0
PATIENCE_S: Final = 5.0
"""What was due so long ago and has not begun is over the limit, whatever becomes of it."""

_SNAPSHOT: Final = re.compile(r"snapshot of (\d+) bytes, .* in ([0-9.]+) s")


class Size:
    """One cluster, and what was found to be over its limit."""

    def __init__(self, folder: Path, tasks: int, *, apart: bool) -> None:
        self.tasks = tasks
        self.cluster = LocalCluster(folder, 3, env={"PYTHONPATH": install(folder / "kinds")}, one_session=not apart)
        self.over: list[str] = []

    def limit(self, what: str, value: float, most: float, unit: str) -> None:
        """Print a figure beside what it may be at most."""
        verdict = "within" if value <= most else "OVER"
        print(f"  -> {what}: {value:.0f} {unit}, {verdict} {most:g} {unit}", flush=True)
        if value > most:
            self.over.append(f"{what}: {value:.0f} {unit}, more than {most:g}")

    def stalls(self, what: str) -> None:
        """Print how late the threads were, and judge the loops."""
        worst = max(late.loop_ms for late in show_late(self.cluster, what).values())
        self.limit(f"longest stall of a loop, {what}", worst, STALL_MS, "ms")

    def begin(self) -> None:
        """Start, with a million finished runs."""
        begun = time.monotonic()
        self.cluster.start()
        self.cluster.wait_until_ready(deadline_s=120)
        print(f"first start, with the history: ready after {time.monotonic() - begun:.1f} s", flush=True)

    def register(self) -> None:
        """All tasks, in lists."""
        begun = time.monotonic()
        self._put(range(self.tasks), "a")
        took_s = time.monotonic() - begun
        print(f"{self.tasks:,} tasks registered in {took_s:.1f} s: {self.tasks / took_s:,.0f} a second", flush=True)
        self._settle()
        self.stalls("registering")
        self.limit("memory", show_memory(self.cluster, "registered"), MEMORY_MIB, "MiB")

    def snapshot(self) -> None:
        """Change tasks until a snapshot has been taken of all."""
        fresh_window()
        before = {name: len(self._snapshots(name)) for name in self.cluster.names}
        begun = time.monotonic()
        for start in range(0, 10 * self.tasks, LIST):
            self._put(range(start, start + LIST), "b")
            if all(len(self._snapshots(name)) > before[name] for name in self.cluster.names):
                break
        print(f"{start + LIST:,} tasks changed in {time.monotonic() - begun:.1f} s, until all had a snapshot of all")
        for name in self.cluster.names:
            size, took_s = self._snapshots(name)[-1]
            print(f"  {name}: a snapshot of {size / 2**20:.0f} MiB in {took_s:.1f} s")
        self._settle()
        self.stalls("changing, with a snapshot")
        show_memory(self.cluster, "after a snapshot")

    def due(self, count: int, minutes: float) -> None:
        """Tasks that are due once a minute each."""
        fresh_window()
        way = Connection(self.cluster.url(self.cluster.names[0]), self.cluster.token)
        registered = {}
        begun = time.monotonic()
        for number in range(count):
            name = f"due-{number:05}"
            spec = {"kind": "nothing", "schedule": {"every_s": EVERY_S}}
            registered[name] = _moment(way.call("PUT", path("v1", "tasks", name), spec)["registered_at"])
            time.sleep(max(0.0, begun + EVERY_S * (number + 1) / count - time.monotonic()))
        way.close()
        since, before = datetime.now().astimezone(), spent(self.cluster)
        fresh_window()
        time.sleep(max(0.0, 60 * (minutes - 1)))
        until, after = datetime.now().astimezone(), spent(self.cluster)
        self.stalls(f"{count} due a minute")
        time.sleep(max(0.0, PATIENCE_S - (datetime.now().astimezone() - until).total_seconds()))
        looked = datetime.now().astimezone()
        told = starts(registered, EVERY_S, self._runs("due-"), (since, until), looked)
        self._starts(told, count * int(minutes))
        if told.begun:
            after.since(before, len(told.begun), "each run")

    def _starts(self, told: Starts, least: int) -> None:
        """Print how late what was due began, and judge it: all of it, and that `least` at least was due."""
        print(f"  {len(told.delays_ms)} were due, {len(told.begun)} of them have begun", flush=True)
        for what, first, last in (
            ("from due to its claim's proposal", "fire_at", "claimed_at"),
            ("from that to the worker's beginning", "claimed_at", "started_at"),
        ):
            waited = (_moment(run[last]) - _moment(run[first]) for run in told.begun.values())
            show(what, [1000 * one.total_seconds() for one in waited])
        show("from due to the worker's beginning, or until now", told.delays_ms.values())
        self.limit("due and not begun", len(told.not_begun), 0, "runs")
        if len(told.delays_ms) < max(1, least):
            self.over.append(f"{len(told.delays_ms)} were due, not {least} at least: the start delay is not shown")
        else:
            self.limit("p99 of start delay", percentiles(told.delays_ms.values())[1], DELAY_MS, "ms")

    def reads(self) -> None:
        """What clients ask, while nothing else happens."""
        fresh_window()
        leader = self.cluster.client.get("/v1/cluster")["leader"]
        follower = next(name for name in self.cluster.names if name != leader)
        way = Connection(self.cluster.url(follower), self.cluster.token)
        names = [f"task-{number * 7919 % self.tasks:06}" for number in range(300)]
        timed(
            "PUT of a new task", range(200), lambda n: way.call("PUT", path("v1", "tasks", f"new-{n}"), _spec("c", n))
        )
        timed("GET .../owner", names, lambda name: way.call("GET", path("v1", "tasks", name, "owner")))
        for what, target, count in _READS:
            timed(f"GET {what}", [target] * count, lambda target: way.call("GET", target))
        way.close()
        timed("GET /metrics", range(30), lambda _: gauges(self.cluster, leader))
        self.stalls("answering")

    def loss(self) -> None:
        """Kill the leader, and start it again."""
        fresh_window()
        lost = self.cluster.client.get("/v1/cluster")["leader"]
        begun = time.monotonic()
        self.cluster.kill(lost)

        def noticed() -> bool:
            cluster = self.cluster.client.get("/v1/cluster")
            return any(member["id"] == lost and member["status"] == "down" for member in cluster["members"])

        wait_for("the loss is noticed", noticed, 60)
        print(f"leader killed: marked down, and all placed anew, after {time.monotonic() - begun:.2f} s", flush=True)
        self._settle()
        self.stalls("the leader is lost")
        self._restart(lost, f"{lost}, killed, started again")
        fresh_window()
        self.cluster.stop()
        self._restart(*self.cluster.names, "all stopped and started again")
        self.stalls("restarted")
        self.limit("memory after a restart", show_memory(self.cluster, "restarted"), MEMORY_MIB, "MiB")

    def _restart(self, *names_and_what: str) -> None:
        *names, what = names_and_what
        begun = time.monotonic()
        self.cluster.start(*names)
        self.cluster.wait_until_ready(*names, deadline_s=120)
        self.limit(f"{what}: ready after", time.monotonic() - begun, READY_S, "s")

    def _put(self, numbers: range, version: str) -> None:
        way = Connection(self.cluster.url(self.cluster.names[0]), self.cluster.token)
        for start in range(numbers.start, numbers.stop, LIST):
            turn, first = divmod(start, self.tasks)
            chosen = range(first, min(first + LIST, self.tasks, first + numbers.stop - start))
            way.call("POST", "/v1/tasks", [_spec(f"{version}{turn}", number) for number in chosen])
        way.close()

    def _settle(self) -> None:
        """Until every member has applied the same, and placed it."""
        index = max(int(self._cluster_of(name)["index"]) for name in self.cluster.running())
        for name in self.cluster.running():
            wait_for(f"{name} is level", lambda name=name: int(self._cluster_of(name)["index"]) >= index, 60)  # type: ignore[misc]

    def _cluster_of(self, name: str) -> Any:
        return self.cluster.client_of(name).get("/v1/cluster")

    def _snapshots(self, name: str) -> list[tuple[int, float]]:
        text = self.cluster.log_file(name).read_text()
        return [(int(found[1]), float(found[2])) for found in _SNAPSHOT.finditer(text)]

    def _runs(self, stem: str) -> Iterator[Any]:
        """The runs of tasks whose names begin with `stem`, newest first, until the history that was there before."""
        return takewhile(lambda run: run["task"].startswith(stem), self.cluster.client.items("/v1/runs"))


_READS: Final = (
    ("/v1/tasks, the first 100", "/v1/tasks", 100),
    ("/v1/tasks, the first 1,000", "/v1/tasks?limit=1000", 30),
    ("/v1/tasks of one owner", "/v1/tasks?owner=node-2", 50),
    ("/v1/tasks of a kind that has none", "/v1/tasks?kind=backup", 30),
    ("/v1/runs, the newest 100", "/v1/runs", 100),
    ("/v1/runs, the newest 1,000", "/v1/runs?limit=1000", 30),
    ("/v1/runs of one task", "/v1/runs?task=task-000042", 100),
    ("/v1/runs that failed", "/v1/runs?state=failed", 50),
    ("/v1/runs that were cancelled: none", "/v1/runs?state=cancelled", 5),
    ("/v1/runs of a node", "/v1/runs?node=node-2", 50),
    ("/v1/runs of a node that has none", "/v1/runs?node=node-9", 5),
    ("/v1/plan without a node", "/v1/plan?without=node-3", 20),
    ("/v1/cluster", "/v1/cluster", 100),
)


def _spec(version: str, number: int) -> dict[str, Any]:
    """A task that is due once a year."""
    name = f"new-{number}" if version == "c" else f"task-{number:06}"
    cron = f"{number % 60} {number // 60 % 24} 1 1 *"
    argv = ["backup", "--source", f"/srv/data/{number}", "--version", version]
    return {"name": name, "kind": "command", "params": {"argv": argv}, "schedule": {"cron": cron}}


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 if a limit was passed."""
    parser = options_of(__doc__)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--due", type=int, default=1_000)
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--history", type=Path, default=None, help="a file to be used, or made if it is not there")
    parser.add_argument("--phases", default="reads,snapshot,due,loss", help="which, besides registering")
    parser.add_argument("--apart", action="store_true", help="give each node a session of its own")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        size = Size(Path(folder), options.tasks, apart=options.apart)
        place = options.history or Path(folder) / "history.db"
        if not place.exists():
            begun = time.monotonic()
            specs = [_spec("a0", number) for number in range(options.tasks)]
            history.write(place, specs, size.cluster.names, options.runs)
            print(
                f"{options.runs:,} finished runs written in {time.monotonic() - begun:.0f} s: "
                f"{place.stat().st_size / 2**20:.0f} MiB",
                flush=True,
            )
        for name in size.cluster.names:
            history.copy(place, Path(folder) / name)
        with size.cluster:
            size.begin()
            size.register()
            for phase in options.phases.split(","):
                if phase == "due":
                    size.due(options.due, options.minutes)
                elif phase:
                    {"reads": size.reads, "snapshot": size.snapshot, "loss": size.loss}[phase]()
    for line in size.over:
        print(f"OVER: {line}", flush=True)
    return 1 if size.over else 0


if __name__ == "__main__":
    sys.exit(main())
