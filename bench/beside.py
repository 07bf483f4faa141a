"""Two versions side by side: a cluster of this tree and one of another tree, asked in turn, request by request.

    python -m bench.beside OTHER [--tasks 10000] [--rounds 6] [--requests 300] [--runs 150] [--idle-seconds 30]

OTHER is the folder of another version, set up by `make setup .venv/bench`. While one cluster answers, the other is
idle, so other load on the machine affects both alike. First both are idle for some time, and the processor time of
their nodes is compared; last, each member of each is stopped and started again, until it is ready. Runs are started by
hand: from the request to their claim, and from that to the beginning of their work, as the clusters tell it.

Each round has new clusters, started in the other order than in the round before: two clusters of one and the same
version differ by up to a tenth for as long as they run, in how their heartbeats fall together and where their memory
lies. The ratio is this tree's figure to the other's (below 1.00 this tree is quicker): of each round, and at the end
its geometric mean over the rounds with the standard error of that.
"""

import json
import math
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
        took_s = []
        for name in cluster.names:
            cluster.stop(name)
            begun = time.monotonic()
            cluster.start(name)
            cluster.wait_until_ready(name, deadline_s=300)
            took_s.append(time.monotonic() - begun)
        print(json.dumps(took_s), flush=True)
"""
"""The program that runs a cluster of the tree that is its current folder, and restarts each member in turn for each
line `restart`, until another line comes."""


class OneCluster:
    """A cluster of a tree: what its program has told, and the program's ends."""

    def __init__(self, told: Mapping[str, Any], orders: IO[str], answers: IO[str]) -> None:
        self.token: str = told["token"]
        self.urls: Mapping[str, str] = told["urls"]
        self.pids: Mapping[str, int] = told["pids"]
        self._orders = orders
        self._answers = answers

    def restart(self) -> list[float]:
        """Stop each member and start it again. Returns the seconds from its start until it was ready, by member."""
        self._orders.write("restart\n")
        self._orders.flush()
        took_s: list[float] = json.loads(self._answers.readline())
        return took_s


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


Ratios = dict[str, list[float]]
"""What was measured, and the ratio of each round."""


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = options_of(__doc__)
    parser.add_argument("other", type=Path)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--runs", type=int, default=150)
    parser.add_argument("--restarts", type=int, default=1)
    parser.add_argument("--idle-seconds", type=float, default=30)
    options = parser.parse_args(arguments)
    trees = {"this": Path.cwd(), "other": options.other.resolve()}
    ratios: Ratios = {}
    for number in range(options.rounds):
        order = list(trees) if number % 2 == 0 else list(reversed(trees))
        print(f"round {number + 1} of {options.rounds}, {options.tasks:,} tasks, {order[0]} first", flush=True)
        with ExitStack() as stack:
            clusters = {name: stack.enter_context(cluster_of(trees[name], options.tasks)) for name in order}
            time.sleep(max(5.0, options.tasks / 5_000))  # the cost of registering the tasks does not count
            _idle(ratios, clusters, options.idle_seconds)
            for role in ("leader", "follower"):
                _requests(ratios, role, clusters, options)
            _restarts(ratios, clusters, options.restarts)
    print(f"{options.tasks:,} tasks, {options.rounds} rounds")
    for what, found in ratios.items():
        logs = [math.log(ratio) for ratio in found]
        error = statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.nan
        print(f"  {what:32} {math.exp(statistics.fmean(logs)):.3f} +- {error:.3f}", flush=True)


def _requests(ratios: Ratios, role: str, clusters: Mapping[str, OneCluster], options: Any) -> None:
    ways = {name: Connection(cluster.urls[role], cluster.token) for name, cluster in clusters.items()}
    names = [f"put-{role}-{number}" for number in range(options.requests)]
    _in_turn(ratios, f"PUT of a task, {role}", ways, names, lambda way, name: way.call("PUT", _at(name), spec(name)))
    owners = [f"listed-{number * 7919 % options.tasks}" for number in range(max(options.requests, options.runs))]
    _in_turn(
        ratios,
        f"GET .../owner, {role}",
        ways,
        owners[: len(names)],
        lambda way, name: way.call("GET", _at(name, "owner")),
    )
    _in_turn(ratios, f"GET /healthz, {role}", ways, names, lambda way, _: way.call("GET", "/healthz"))
    _runs(ratios, role, ways, owners[: options.runs])
    for way in ways.values():
        way.close()


def _at(name: str, *more: str) -> str:
    return path("v1", "tasks", name, *more)


def _idle(ratios: Ratios, clusters: Mapping[str, OneCluster], seconds: float) -> None:
    """Compare the processor time of the leaders and of a follower each, over the same time."""
    pids = {(name, role): pid for name, cluster in clusters.items() for role, pid in cluster.pids.items()}
    before = {key: cost_of(pid).cpu_s for key, pid in pids.items()}
    time.sleep(seconds)
    share = {key: 100 * (cost_of(pid).cpu_s - before[key]) / seconds for key, pid in pids.items()}
    for role in ("leader", "follower"):
        _print(ratios, f"idle {role}", share["this", role], share["other", role], "% of a core")


def _in_turn(
    ratios: Ratios, what: str, ways: Mapping[str, Connection], names: list[str], ask: Callable[[Connection, str], Any]
) -> None:
    """Ask both clusters for each name, in a drawn order, and compare how long they took."""
    took_ms: dict[str, list[float]] = {title: [] for title in ways}
    for name in names:
        for title in random.sample(list(ways), len(ways)):
            begun = time.perf_counter()
            ask(ways[title], name)
            took_ms[title].append((time.perf_counter() - begun) * 1000)
    _compare(ratios, what, took_ms)


def _runs(ratios: Ratios, role: str, ways: Mapping[str, Connection], names: list[str]) -> None:
    """Run each task by hand on both clusters, in a drawn order, and compare how soon it was claimed and begun."""
    claimed_ms: dict[str, list[float]] = {title: [] for title in ways}
    began_ms: dict[str, list[float]] = {title: [] for title in ways}
    for name in names:
        for title in random.sample(list(ways), len(ways)):
            run_id = ways[title].call("POST", _at(name, "runs"))["run_id"]
            run = _ended(ways[title], run_id)
            asked, claim, begin = (datetime.fromisoformat(run[at]) for at in ("fire_at", "claimed_at", "started_at"))
            claimed_ms[title].append(1000 * (claim - asked).total_seconds())
            began_ms[title].append(1000 * (begin - claim).total_seconds())
    _compare(ratios, f"claim of a run, {role}", claimed_ms)
    _compare(ratios, f"its beginning, {role}", began_ms)


def _ended(way: Connection, run_id: str) -> Any:
    def ended() -> Any:
        run = way.call("GET", path("v1", "runs", run_id))
        return run if run["finished_at"] is not None else None

    return wait_for(f"the end of {run_id}", ended, deadline_s=60)


def _restarts(ratios: Ratios, clusters: Mapping[str, OneCluster], count: int) -> None:
    """Compare how long restarts took, member by member: each member has its own limit on its log, so the first reads
    another part of the state from a snapshot than the second, and another part from the log.
    """
    took_s: dict[str, list[list[float]]] = {title: [] for title in clusters}
    for _ in range(count):
        for title in random.sample(list(clusters), len(clusters)):
            took_s[title].append(clusters[title].restart())
    this, other = (
        statistics.geometric_mean(statistics.median(one) for one in zip(*took_s[title], strict=True))
        for title in ("this", "other")
    )
    _print(ratios, "restart of a member", this, other, "s")


def _compare(ratios: Ratios, what: str, took_ms: Mapping[str, list[float]]) -> None:
    this, other = (statistics.quantiles(took_ms[title], n=20) for title in ("this", "other"))
    for name, at in (("p50", 9), ("p95", 18)):
        _print(ratios, f"{what}, {name}", this[at], other[at], "ms")


def _print(ratios: Ratios, what: str, this: float, other: float, unit: str) -> None:
    ratios.setdefault(what, []).append(this / other)
    print(f"  {what:32} {this:.3f} beside {other:.3f} {unit}: {this / other:.2f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
