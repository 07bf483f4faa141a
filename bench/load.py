"""Load is not death (docs/explanation/leases-and-claims.md): a cluster at work on an overloaded machine.

    python -m bench.load [--minutes 10] [--blocked 60] [--memory 2048]

Three nodes on this machine, so all of them at once: every core busy eight times over by processes that only compute,
memory being written to in turns, and a disk being written flat out with syncs; meanwhile short tasks fall due every
few seconds, and long ones run. Then, without the load, the leader's event loop is blocked for 500 ms once a second, by
a kind whose params are checked by a model that waits. Not one member may be marked down, no task moved and no attempt
lost, while all of the load was there all the time and short tasks began: then the exit code is 0. Start delays are from
when an occurrence was due until its worker said that it begins; how late threads and answers were is the nodes' own
account (/metrics).
"""

import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Any, Final, TypeVar

from bench.beginning import options_of
from bench.loading.judgement import BLOCKED_MS, Phase, Standing, wrong
from bench.loading.work import install
from bench.sizing.figures import Late, fresh_window, late, percentiles
from node.cli.local import LocalCluster, wait_for
from node.client import ApiProblem, Unreachable, path
from testkit.burden import BurdenGone, Look, meanwhile, nothing
from testkit.faults.pressure import MEMORY_MIB, TIMES_OVER, pressure

T = TypeVar("T")

SHORT: Final = 30
LONG: Final = 6
LOOK_S: Final = 20.0
BLOCK_S: Final = 0.5
BASE_S: Final = 30.0


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

    def phase(
        self, what: str, seconds: float, burden: AbstractContextManager[Look], loop_ms_least: float = 0.0
    ) -> None:
        """Let the cluster work under a burden for so long, then tell what became of it.

        Raises `BurdenGone` if the burden does not last until the end. Some node's loop must be found `loop_ms_least`
        late, for the burden to have been felt.
        """
        before, terms, since = self._standing(), self._term(), datetime.now(UTC)
        worst: dict[str, Late] = {}
        with burden as look:
            for until in _spans(seconds):
                time.sleep(until)
                for name in self.cluster.names:
                    told = _patiently(lambda name=name: late(self.cluster, name))  # type: ignore[misc]
                    worst[name] = Late(*map(max, told, worst.get(name, told)))
                look()
            term = self._term()
            look()
        after = self._standing()
        print(f"{what}, {seconds:.0f} s (terms {terms} to {term}):", flush=True)
        for name, told in worst.items():
            print(
                f"  {name}: at worst loop {told.loop_ms:.0f} ms late, Raft {told.raft_ms:.0f} ms, heartbeats "
                f"{told.heartbeat_ms:.0f} ms, a heartbeat's answer after {told.answer_ms:.0f} ms",
                flush=True,
            )
        said = [line for name in self.cluster.names for line in self._said(name) if "is taken to be down" in line]
        loop_ms = max((told.loop_ms for told in worst.values()), default=0.0)
        seen = Phase(before, after, said, self._lost(), self._delays(since), loop_ms, loop_ms_least)
        print(
            f"  marked down: {len(seen.down)}; taken to be down: {len(said)}; tasks moved: {len(seen.moved)}; "
            f"attempts lost: {len(seen.lost)}",
            flush=True,
        )
        self.found += [f"{what}: {line}" for line in wrong(seen)]

    def _delays(self, since: datetime) -> int:
        """How many short ones began since then, after printing how late."""
        delays_ms = []
        for run in self.cluster.client.items("/v1/runs"):
            if run["claimed_at"] and datetime.fromisoformat(run["claimed_at"]) < since:
                break
            if run["task"].startswith("short-") and run["started_at"]:
                begun, due = datetime.fromisoformat(run["started_at"]), datetime.fromisoformat(run["fire_at"])
                delays_ms.append(1000 * (begun - due).total_seconds())
        if delays_ms:
            median, p99, worst = percentiles(delays_ms)
            told = f": delay p50 {median:.0f} ms, p99 {p99:.0f} ms, worst {worst:.0f} ms"
        else:
            told = ""
        print(f"  {len(delays_ms)} starts{told}", flush=True)
        return len(delays_ms)

    def _lost(self) -> list[str]:
        return [
            run["run_id"]
            for run in self.cluster.client.items("/v1/runs")
            if any(attempt["state"] == "orphaned" for attempt in run["attempts"])
        ]

    def blocked(self) -> AbstractContextManager[Look]:
        """The leader's loop stands still for `BLOCK_S` once a second."""
        return meanwhile("the leader's loop is blocked", self._block)

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
        except (Unreachable, ApiProblem):
            if time.monotonic() > end:
                raise


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 if a member was marked down, a task moved or an attempt lost, or the load was not there."""
    parser = options_of(__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="of load")
    parser.add_argument("--blocked", type=float, default=60, help="seconds with a loop that is blocked again and again")
    parser.add_argument("--memory", type=int, default=MEMORY_MIB, help="MiB to be written to in turns")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        load = Load(Path(folder))
        with load.cluster:
            load.begin()
            try:
                load.phase("at rest", BASE_S, nothing())
                fresh_window()
                burden = pressure(Path(folder), memory_mib=options.memory)
                load.phase(f"every core busy {TIMES_OVER} times over", 60 * options.minutes, burden)
                fresh_window()
                blocked = "the leader's loop blocked for 500 ms, again and again"
                load.phase(blocked, options.blocked, load.blocked(), BLOCKED_MS)
            except BurdenGone as gone:
                load.found.append(f"the load was not there: {gone}")
    for line in load.found:
        print(f"WRONG {line}", flush=True)
    return 1 if load.found else 0


if __name__ == "__main__":
    sys.exit(main())
