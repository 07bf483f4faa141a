"""How long from the loss of a node to the claims of its runs by the others: its process, or its whole host.

    python -m bench.failover [--kills 20] [--pauses 6] [--hosts 6]

`kill -9` and `SIGSTOP` end or stop the process. A host that fails refuses nothing: every packet between it and the
other nodes is dropped, in network namespaces. That needs root, and is left out with a line where there is none.

Each figure is the wall clock's, from just before the signal to the `claimed_at` of the *last* of the lost runs to
be claimed anew; node and observer are on one machine. The lost node is started again (or resumed) and the next
one is chosen: every other time the leader, else the member that holds most runs.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

from bench.beginning import options_of, ready_cluster
from bench.chaos.cluster import HarmedCluster
from node.cli.local import LocalCluster, wait_for
from node.client import path
from testkit.faults.namespaces import Spaces, why_not

NODES = 3
TASKS = 6


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = options_of(__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--pauses", type=int, default=6)
    parser.add_argument("--hosts", type=int, default=6)
    options = parser.parse_args(arguments)
    with ready_cluster() as cluster:
        _register(cluster)
        for what, count, lose, mend in (
            ("kill -9", options.kills, cluster.kill, cluster.start),
            ("SIGSTOP", options.pauses, cluster.pause, cluster.resume),
        ):
            _report(what, _lose_often(cluster, count, lose, mend))
    if options.hosts:
        _silence_hosts(options.hosts)


def _silence_hosts(count: int) -> None:
    if (why := why_not()) is not None:
        print(f"silent host: not measured: {why}", flush=True)
        return
    spaces = Spaces(f"node-{number}" for number in range(1, NODES + 1))
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(HarmedCluster(Path(folder), NODES, {}, spaces)) as harmed,
        harmed as cluster,
    ):
        cluster.start()
        cluster.wait_until_ready()
        _register(cluster)
        lose = _lose_often(cluster, count, lambda name: spaces.cut(name, cluster.rest(name)), spaces.heal)
        _report("silent", lose)


def _register(cluster: LocalCluster) -> None:
    for number in range(TASKS):
        spec = {
            "name": f"long-{number}",
            "kind": "command",
            "params": {"argv": ["sleep", "3600"]},
            "failover": {"max": 1000},
        }
        cluster.client.call("PUT", path("v1", "tasks", f"long-{number}"), body=spec)
        cluster.client.call("POST", path("v1", "tasks", f"long-{number}", "runs"))
    wait_for("all run", lambda: len(_running(cluster)) == TASKS)


def _running(cluster: LocalCluster, state: str = "running") -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = cluster.client.get("/v1/runs", state=state)["items"]
    return items


def _lose_often(
    cluster: LocalCluster, count: int, lose: Callable[[str], None], mend: Callable[[str], None]
) -> list[tuple[float, bool]]:
    figures = []
    for turn in range(count):
        leader = cluster.client.get("/v1/cluster")["leader"]
        holders = [run["node"] for run in _running(cluster)]
        others = [name for name in cluster.names if name != leader]
        victim = leader if turn % 2 and leader in holders else max(others, key=holders.count)
        lost = {run["run_id"]: run["attempt"] for run in _running(cluster) if run["node"] == victim}
        survivor = cluster.client_of(next(name for name in cluster.names if name != victim))
        begun = time.time()
        lose(victim)

        def claimed(survivor: Any = survivor, lost: dict[str, int] = lost) -> list[float] | None:
            times = []
            for run_id, attempt in lost.items():
                run = survivor.get(path("v1", "runs", run_id))
                if run["attempt"] <= attempt:
                    return None
                times.append(datetime.fromisoformat(run["claimed_at"]).timestamp())
            return times

        times = wait_for(f"the runs of {victim} are claimed", claimed, deadline_s=30)
        figures.append((max(times) - begun, victim == leader))
        mend(victim)
        cluster.wait_until_ready(victim)
        wait_for("all run again", lambda: len(_running(cluster)) == TASKS, deadline_s=30)
    return figures


def _report(what: str, figures: list[tuple[float, bool]]) -> None:
    for title, chosen in (
        ("all", figures),
        ("the leader", [figure for figure in figures if figure[1]]),
        ("another", [figure for figure in figures if not figure[1]]),
    ):
        if chosen:
            seconds = sorted(figure[0] for figure in chosen)
            print(
                f"{what:8} {title:11} n={len(seconds):2}  min {seconds[0]:.2f} s  "
                f"median {statistics.median(seconds):.2f} s  max {seconds[-1]:.2f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
