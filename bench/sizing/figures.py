"""What a cluster says of itself, and what is read off its processes."""

import os
import re
import statistics
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.idle import children_of, cost_of
from node.cli.local import LocalCluster

WINDOW_S: Final = 70.0
"""What /metrics tells as the worst of the last minute may be so old."""

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_LINE: Final = re.compile(r"^(\w+)(?:\{[^}]*\})? ([-+.eE0-9]+)$", re.MULTILINE)


class Late(NamedTuple):
    """The worst of the last minute on one node, in milliseconds."""

    loop_ms: float
    raft_ms: float
    heartbeat_ms: float
    answer_ms: float


def gauges(cluster: LocalCluster, name: str) -> dict[str, float]:
    """What /metrics of a node tells; of figures with labels, the last."""
    text = b"".join(cluster.client_of(name, 30).stream("/metrics")).decode()
    return {found[1]: float(found[2]) for found in _LINE.finditer(text)}


def late(cluster: LocalCluster, name: str) -> Late:
    """How late a node was within the last minute."""
    told = gauges(cluster, name)
    return Late(
        1000 * told["rota_loop_lateness_seconds"],
        1000 * told["rota_raft_lateness_seconds"],
        1000 * told["rota_heartbeat_lateness_seconds"],
        1000 * told["rota_heartbeat_answer_seconds"],
    )


def show_late(cluster: LocalCluster, what: str) -> dict[str, Late]:
    """Print the worst of the last minute on each node that runs, and give it back."""
    leader = cluster.client.get("/v1/cluster")["leader"]
    told = {name: late(cluster, name) for name in cluster.running()}
    for name, worst in told.items():
        role = "leader" if name == leader else "follower"
        print(
            f"  {what:34} {name} {role:9} loop {worst.loop_ms:6.0f} ms  Raft {worst.raft_ms:6.0f} ms  "
            f"heartbeats {worst.heartbeat_ms:5.0f} ms, answered in {worst.answer_ms:5.0f} ms",
            flush=True,
        )
    return told


def show_memory(cluster: LocalCluster, what: str) -> float:
    """Print each node's memory, and give back the most that one has (resident, without its nursery), in MiB."""
    most = 0.0
    for name in cluster.running():
        node, *others = [cost_of(pid) for pid in (cluster.pid(name), *children_of(cluster.pid(name)))]
        most = max(most, node.rss_mib)
        print(
            f"  {what:34} {name}  {node.rss_mib:.0f} MiB RSS, {node.pss_mib:.0f} MiB PSS; "
            f"its nursery {sum(cost.rss_mib for cost in others):.0f} MiB RSS",
            flush=True,
        )
    return most


class Spent(NamedTuple):
    """Processor seconds since the nodes were started."""

    nodes_s: float
    attempts_s: float
    """Of the nurseries, and of the attempts that have ended."""
    machine_s: float
    """Of everything on this machine."""

    def since(self, before: "Spent", runs: int, what: str) -> None:
        """Print what was spent since `before`, for each of `runs`."""
        nodes, attempts, machine = (1000 * (now - then) / runs for now, then in zip(self, before, strict=True))
        print(
            f"  {what}: {nodes:.1f} ms of a processor in the nodes, {attempts:.1f} ms in attempts; "
            f"{machine:.1f} ms on the whole machine",
            flush=True,
        )


def spent(cluster: LocalCluster) -> Spent:
    """What has been spent so far."""
    nodes = [cluster.pid(name) for name in cluster.running()]
    nurseries = [child for node in nodes for child in children_of(node)]
    # user, nice, system; the rest is idleness, waiting, and what is counted in these already
    machine = [int(ticks) for ticks in Path("/proc/stat").read_text().split(maxsplit=4)[1:4]]
    return Spent(
        sum(sum(_ticks(pid)[:2]) for pid in nodes) / _TICKS,
        sum(sum(_ticks(pid)) for pid in nurseries) / _TICKS,
        sum(machine) / _TICKS,
    )


def _ticks(pid: int) -> list[int]:
    """User, system, and the same of its children that have ended, and of theirs."""
    return [int(field) for field in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]]


def fresh_window() -> None:
    """Wait until what was before is no longer part of the last minute."""
    time.sleep(WINDOW_S)


def percentiles(values: Iterable[float]) -> tuple[float, float, float]:
    """The median, the 99th percentile and the greatest. Raises `ValueError` if there is none: that is not 0."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("nothing was measured")
    if len(ordered) == 1:
        return (ordered[0],) * 3
    cuts = statistics.quantiles(ordered, n=100, method="inclusive")
    return cuts[49], cuts[98], ordered[-1]


def timed(what: str, items: Iterable[Any], ask: Callable[[Any], Any]) -> None:
    """Ask once for each item, and print how long it took."""
    took_ms = []
    for item in items:
        begun = time.perf_counter()
        ask(item)
        took_ms.append((time.perf_counter() - begun) * 1000)
    show(what, took_ms, digits=2)


def show(what: str, figures_ms: Collection[float], digits: int = 1) -> None:
    """Print how many milliseconds something took, each time."""
    if not figures_ms:
        print(f"  {what:50} n=   0", flush=True)
        return
    median, p99, worst = (f"{figure:7.{digits}f} ms" for figure in percentiles(figures_ms))
    print(f"  {what:50} n={len(figures_ms):4}  p50 {median}  p99 {p99}  worst {worst}", flush=True)
