"""Load is not death: a cluster at work on a machine that has far too much to do (DESIGN.md, section 7).

    python -m bench.load [--minutes 10] [--blocked 60] [--memory 2048]

Three nodes on this machine, so all of them at once: every core busy eight times over by processes that only compute,
memory being written to in turns, and a disk being written flat out with syncs; meanwhile short tasks fall due every
few seconds, and long ones run. Then, without the load, the leader's event loop is blocked for 500 ms once a second, by
a kind whose params are checked by a model that waits. Not one member may be marked down, no task moved and no attempt
lost: then the exit code is 0. Start delays are from when an occurrence was due until its worker said that it begins;
how late threads and answers were is the nodes' own account (/metrics).
"""

import argparse
import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, NamedTuple, TypeVar

from bench.loading.pressure import MEMORY_MIB, TIMES_OVER, pressure
from bench.loading.work import install
from bench.sizing.figures import Late, fresh_window, late, percentiles
from node.cli.local import LocalCluster, wait_for
from node.client import Problem, Unreachable, path

T = TypeVar("T")

SHORT: Final = 30
LONG: Final = 6
LOOK_S: Final = 20.0
BLOCK_S: Final = 0.5
BASE_S: Final = 30.0


class Standing(NamedTuple):
    """What must not change: each member's incarnation, and each task's owner."""

    incarnations: dict[str, int]
    owners: dict[str, str]


class Load:
    """One cluster at work, and what was found wrong with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cluster = LocalCluster(folder, 3, env={"PYTHONPATH": install(folder / "kinds")})
        self.found: list[str] = []

    def begin(self) -> None:
        """Start the nodes and their work."""
        self.cluster.start()
        self.cluster.wait_until_ready()
        for number in range(SHORT):
            self._put(f"short-{number:02}", {"schedule": {"every_s": 2 + number % 4}, "overlap": "queue"})
        for number in range(LONG):
            self._put(
                f"long-{number}",
                {"params": {"steps": 10_000_000}, "schedule": {"continuous": True}, "sticky": False},
            )

        def at_work() -> bool:
            return len(list(self.cluster.client.items("/v1/runs", state="running", limit=1000))) >= LONG

        wait_for("the long ones run", at_work)

    def phase(self, what: str, seconds: float, burden: AbstractContextManager[Any]) -> None:
        """Let the cluster work under a burden for so long, then tell what became of it."""
        before, terms, since = self._standing(), self._term(), datetime.now(UTC)
        worst: dict[str, Late] = {}
        with burden:
            for until in _spans(seconds):
                time.sleep(until)
                for name in self.cluster.names:
                    told = _patiently(lambda name=name: late(self.cluster, name))  # type: ignore[misc]
                    worst[name] = Late(*map(max, told, worst.get(name, told)))
            term = self._term()
        after = self._standing()
        print(f"{what}, {seconds:.0f} s (terms {terms} to {term}):", flush=True)
        for name, told in worst.items():
            print(
                f"  {name}: at worst loop {told.loop_ms:.0f} ms late, Raft {told.raft_ms:.0f} ms, heartbeats "
                f"{told.heartbeat_ms:.0f} ms, a heartbeat's answer after {told.answer_ms:.0f} ms",
                flush=True,
            )
        self._delays(since)
        self._judge(what, before, after)

    def _delays(self, since: datetime) -> None:
        delays_ms = []
        for run in self.cluster.client.items("/v1/runs"):
            if run["claimed_at"] and datetime.fromisoformat(run["claimed_at"]) < since:
                break
            if run["task"].startswith("short-") and run["started_at"]:
                begun, due = datetime.fromisoformat(run["started_at"]), datetime.fromisoformat(run["fire_at"])
                delays_ms.append(1000 * (begun - due).total_seconds())
        median, p99, worst = percentiles(delays_ms)
        print(
            f"  {len(delays_ms)} starts: delay p50 {median:.0f} ms, p99 {p99:.0f} ms, worst {worst:.0f} ms", flush=True
        )

    def _judge(self, what: str, before: Standing, after: Standing) -> None:
        down = [name for name, number in after.incarnations.items() if number != before.incarnations[name]]
        moved = [name for name, owner in after.owners.items() if owner != before.owners.get(name, owner)]
        said = [line for name in self.cluster.names for line in self._said(name) if "is taken to be down" in line]
        lost = [
            run["run_id"]
            for run in self.cluster.client.items("/v1/runs")
            if any(attempt["state"] == "orphaned" for attempt in run["attempts"])
        ]
        print(
            f"  marked down: {len(down)}; taken to be down: {len(said)}; tasks moved: {len(moved)}; "
            f"attempts lost: {len(lost)}",
            flush=True,
        )
        for name, things in (("marked down", down), ("moved", moved), ("lost", lost), ("said", said)):
            self.found += [f"{what}: {name}: {thing}" for thing in things]

    def blocked(self) -> AbstractContextManager[None]:
        """The leader's loop stands still for `BLOCK_S` once a second."""
        return _meanwhile(self._block)

    def _block(self, over: Event) -> None:
        for number in itertools.count():
            leader = self.cluster.client.get("/v1/cluster")["leader"]
            spec = {"kind": "blocking", "params": {"block_s": BLOCK_S, "number": number}}
            self.cluster.client_of(leader).call("PUT", path("v1", "tasks", "blocks-the-loop"), body=spec)
            if over.wait(1.0 - BLOCK_S):
                return

    def _put(self, name: str, spec: dict[str, Any]) -> None:
        self.cluster.client.call("PUT", path("v1", "tasks", name), body={"kind": "steps", **spec})

    def _standing(self) -> Standing:
        def tell() -> Standing:
            members = self.cluster.client.get("/v1/members")["items"]
            tasks = self.cluster.client.items("/v1/tasks", kind="steps")
            return Standing(
                {member["id"]: member["incarnation"] for member in members},
                {task["name"]: task["owner"] for task in tasks},
            )

        return _patiently(tell)

    def _term(self) -> int:
        return int(_patiently(lambda: self.cluster.client.get("/v1/cluster"))["term"])

    def _said(self, name: str) -> list[str]:
        return self.cluster.log_file(name).read_text().splitlines()


def _spans(seconds: float) -> Iterator[float]:
    """The stretches between two looks."""
    while seconds > 0:
        yield min(LOOK_S, seconds)
        seconds -= LOOK_S


def _patiently(ask: Callable[[], T]) -> T:
    """Ask until there is an answer: a node that has too much to do may take its time."""
    end = time.monotonic() + 60
    while True:
        try:
            return ask()
        except (Unreachable, Problem):
            if time.monotonic() > end:
                raise


@contextmanager
def _meanwhile(work: Callable[[Event], None]) -> Iterator[None]:
    over = Event()
    thread = Thread(target=work, args=(over,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 if a member was marked down, a task moved or an attempt lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, help="of load")
    parser.add_argument("--blocked", type=float, default=60, help="seconds with a loop that is blocked again and again")
    parser.add_argument("--memory", type=int, default=MEMORY_MIB, help="MiB to be written to in turns")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        load = Load(Path(folder))
        with load.cluster:
            load.begin()
            load.phase("at rest", BASE_S, nullcontext())
            burden = pressure(Path(folder), memory_mib=options.memory)
            fresh_window()
            load.phase(f"every core busy {TIMES_OVER} times over", 60 * options.minutes, burden)
            fresh_window()
            load.phase("the leader's loop blocked for 500 ms, again and again", options.blocked, load.blocked())
    for line in load.found:
        print(f"WRONG {line}", flush=True)
    return 1 if load.found else 0


if __name__ == "__main__":
    sys.exit(main())
