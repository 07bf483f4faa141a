"""Two versions side by side: a cluster of this tree and one of another tree, asked in turn, request by request.

    python -m bench.beside OTHER [--tasks 10000] [--requests 1000] [--runs 200] [--restarts 5] [--idle-seconds 120]

OTHER is the folder of another version, set up by `make setup .venv/bench`. While one cluster answers, the other is
idle, so other load on the machine affects both alike. First both are idle for some time, and the processor time of
their nodes is compared; last, a follower of each is stopped and started again, until it is ready. Runs are started by
hand: from the request to their claim, and from that to the beginning of their work, as the clusters tell it. The ratio
is this tree's figure to the other's: below 1.00 this tree is quicker.
"""

import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Final

from bench.api import LIST, Connection, spec
from bench.beginning import options_of
from bench.idle import cost_of
from node.cli.local import wait_for
from node.client import path

_CLUSTER: Final = f"""
import json, sys, time
from bench.api import Connection, spec
from bench.beginning import ready_cluster
with ready_cluster() as cluster:
    leader = cluster.client.get("/v1/cluster")["leader"]
    way = Connection(cluster.url(leader), cluster.token)
    for start in range(0, int(sys.argv[1]), {LIST}):
        way.call("POST", "/v1/tasks", [spec(f"listed-{{number}}") for number in range(start, start + {LIST})])
    follower = next(name for name in cluster.names if name != leader)
    roles = {{"leader": leader, "follower": follower}}
    print(json.dumps({{
        "token": cluster.token,
        "urls": {{role: cluster.url(name) for role, name in roles.items()}},
        "pids": {{role: cluster.pid(name) for role, name in roles.items()}},
    }}), flush=True)
    while sys.stdin.readline() == "restart\\n":
        cluster.stop(follower)
        begun = time.monotonic()
        cluster.start(follower)
        cluster.wait_until_ready(follower, deadline_s=300)
        print(time.monotonic() - begun, flush=True)
"""
"""The program that runs a cluster of the tree that is its current folder, and restarts a follower for each line
`restart`, until another line comes."""


class OneCluster:
    """A cluster of a tree: what its program has told, and the program's ends."""

    def __init__(self, told: Mapping[str, Any], orders: IO[str], answers: IO[str]) -> None:
        self.token: str = told["token"]
        self.urls: Mapping[str, str] = told["urls"]
        self.pids: Mapping[str, int] = told["pids"]
        self._orders = orders
        self._answers = answers

    def restart(self) -> float:
        """Stop a follower and start it again. Returns the seconds from its start until it was ready."""
        self._orders.write("restart\n")
        self._orders.flush()
        return float(self._answers.readline())


@contextmanager
def cluster_of(tree: Path, tasks: int) -> Iterator[OneCluster]:
    """Run a cluster of a tree with that many tasks, in thousands."""
    argv = [str(tree / ".venv/bin/python"), "-c", _CLUSTER, str(tasks)]
    environ = {**os.environ, "PYTHONPATH": str(tree)}
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(argv, cwd=tree, env=environ, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        said = process.stdout.readline()
        if not said:
            raise RuntimeError(f"the cluster of {tree} did not start")
        yield OneCluster(json.loads(said), process.stdin, process.stdout)
        process.stdin.write("\n")


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = options_of(__doc__)
    parser.add_argument("other", type=Path)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--requests", type=int, default=1_000)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--restarts", type=int, default=5)
    parser.add_argument("--idle-seconds", type=float, default=120)
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        trees = {"this": Path.cwd(), "other": options.other.resolve()}
        clusters = {name: stack.enter_context(cluster_of(tree, options.tasks)) for name, tree in trees.items()}
        time.sleep(max(5.0, options.tasks / 5_000))  # the cost of registering the tasks does not count
        _idle(clusters, options.idle_seconds)
        for role in ("leader", "follower"):
            ways = {name: Connection(cluster.urls[role], cluster.token) for name, cluster in clusters.items()}
            beside = f"{role}, {options.tasks:,} tasks"
            names = [f"put-{role}-{number}" for number in range(options.requests)]
            _in_turn(f"PUT of a task, {beside}", ways, names, lambda way, name: way.call("PUT", _at(name), spec(name)))
            owners = [f"listed-{number * 7919 % options.tasks}" for number in range(options.requests)]
            _in_turn(f"GET .../owner, {beside}", ways, owners, lambda way, name: way.call("GET", _at(name, "owner")))
            _in_turn(f"GET /healthz, {beside}", ways, names, lambda way, _: way.call("GET", "/healthz"))
            _runs(beside, ways, owners[: options.runs])
            for way in ways.values():
                way.close()
        _restarts(f"restart of a follower, {options.tasks:,} tasks", clusters, options.restarts)


def _at(name: str, *more: str) -> str:
    return path("v1", "tasks", name, *more)


def _idle(clusters: dict[str, OneCluster], seconds: float) -> None:
    """Print the processor time of the leaders and of a follower each, over the same time."""
    pids = {(name, role): pid for name, cluster in clusters.items() for role, pid in cluster.pids.items()}
    before = {key: cost_of(pid).cpu_s for key, pid in pids.items()}
    time.sleep(seconds)
    share = {key: 100 * (cost_of(pid).cpu_s - before[key]) / seconds for key, pid in pids.items()}
    for role in ("leader", "follower"):
        this, other = share["this", role], share["other", role]
        print(f"{f'idle {role}':40} {this:.3f} beside {other:.3f} % of a core: {this / other:.2f}", flush=True)


def _in_turn(what: str, ways: dict[str, Connection], names: list[str], ask: Callable[[Connection, str], Any]) -> None:
    """Ask both clusters for each name, in a drawn order, and print the figures of both and their ratios."""
    took: dict[str, list[float]] = {title: [] for title in ways}
    for name in names:
        for title in random.sample(list(ways), len(ways)):
            begun = time.perf_counter()
            ask(ways[title], name)
            took[title].append((time.perf_counter() - begun) * 1000)
    _print_beside(what, took)


def _runs(beside: str, ways: dict[str, Connection], names: list[str]) -> None:
    """Run each task by hand on both clusters, in a drawn order, and print how soon it was claimed and begun."""
    claimed: dict[str, list[float]] = {title: [] for title in ways}
    began: dict[str, list[float]] = {title: [] for title in ways}
    for name in names:
        for title in random.sample(list(ways), len(ways)):
            run_id = ways[title].call("POST", _at(name, "runs"))["run_id"]
            run = _ended(ways[title], run_id)
            asked, claim, begin = (datetime.fromisoformat(run[at]) for at in ("fire_at", "claimed_at", "started_at"))
            claimed[title].append(1000 * (claim - asked).total_seconds())
            began[title].append(1000 * (begin - claim).total_seconds())
    _print_beside(f"claim of a run, {beside}", claimed)
    _print_beside(f"its beginning, {beside}", began)


def _ended(way: Connection, run_id: str) -> Any:
    def ended() -> Any:
        run = way.call("GET", path("v1", "runs", run_id))
        return run if run["finished_at"] is not None else None

    return wait_for(f"the end of {run_id}", ended, deadline_s=60)


def _restarts(what: str, clusters: dict[str, OneCluster], count: int) -> None:
    took_s: dict[str, list[float]] = {title: [] for title in clusters}
    for _ in range(count):
        for title in random.sample(list(clusters), len(clusters)):
            took_s[title].append(clusters[title].restart())
    this, other = (statistics.median(took_s[title]) for title in ("this", "other"))
    print(f"{what:40} {this:.2f} beside {other:.2f} s: {this / other:.2f}", flush=True)


def _print_beside(what: str, took: Mapping[str, list[float]]) -> None:
    this, other = (statistics.quantiles(took[title], n=20) for title in ("this", "other"))
    figures = (f"{p} {this[at]:.2f} beside {other[at]:.2f} ms: {this[at] / other[at]:.2f}" for p, at in _CUTS)
    print(f"{what:40} {', '.join(figures)}", flush=True)


_CUTS: Final = (("p50", 9), ("p95", 18))

if __name__ == "__main__":
    main(sys.argv[1:])
