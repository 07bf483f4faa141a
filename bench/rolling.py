"""A rolling restart: each of five nodes is stopped in good order and started again, while work goes on.

    python -m bench.rolling [--nodes 5] [--rounds 2]

On each node work runs that ends when it is asked to, and one command that does not listen to SIGTERM and has to be
killed. Hand-over: from just before SIGTERM to the `claimed_at` of each run that the node held, claimed by another; each
takes less than a second. Occurrences: of every task of a schedule, each from its registration to its pause at the end
has succeeded, once (`testkit.each_once`); the figure is how long after it was due its work began. Otherwise the exit
code is 1. Clocks are one: all is on one machine.
"""

import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from bench.beginning import options_of, ready_cluster
from node.cli.local import LocalCluster, wait_for
from node.client import path
from testkit import each_once

LONG: Final = 10
DEAF: Final = "trap '' TERM; sleep 3600 & while true; do wait; done"
FREQUENT: Final = 5
EVERY_S: Final = 1.0
HAND_OVER_S: Final = 1.0
"""Every hand-over takes less."""

ROOM: Final = {"ROTA_MAX_RUNS": "100"}
"""A node that is full claims nothing more, however soon it could: what is measured is not how full they are."""


@dataclass(frozen=True)
class HandOver:
    """One run that changed hands: whose it was, whether its command is deaf, whether its node led, how long it took."""

    run_id: str
    node: str
    deaf: bool
    led: bool
    took_s: float


def wrong(hand_overs: Sequence[HandOver], nodes: Sequence[str]) -> list[str]:
    """Which hand-overs took too long, and which of the nodes never had anything to hand over.

    >>> wrong([HandOver("a~1", "node-1", deaf=False, led=True, took_s=1.0)], ["node-1", "node-2"])
    ['a~1 of node-1 was claimed after 1.00 s, not under 1 s', 'node-2 had nothing to hand over']
    """
    found = [
        f"{one.run_id} of {one.node} was claimed after {one.took_s:.2f} s, not under {HAND_OVER_S:g} s"
        for one in hand_overs
        if one.took_s >= HAND_OVER_S
    ]
    idle = [node for node in nodes if not any(one.node == node for one in hand_overs)]
    return found + [f"{node} had nothing to hand over" for node in idle]


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 if a hand-over took too long, or an occurrence was lost or came twice."""
    parser = options_of(__doc__)
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args(arguments)
    with ready_cluster(options.nodes, ROOM) as cluster:
        _register(cluster)
        figures = [one for _ in range(options.rounds) for name in cluster.names for one in _restart(cluster, name)]
        for led, who in ((False, "a follower"), (True, "the leader")):
            for deaf, what in ((False, "listening"), (True, "deaf")):
                _report(f"{who}, {what}", [one.took_s for one in figures if (one.led, one.deaf) == (led, deaf)])
        found = wrong(figures, cluster.names) + _occurrences(cluster)
    for line in found:
        print(f"WRONG {line}", flush=True)
    return 1 if found else 0


def _register(cluster: LocalCluster) -> None:
    for number in range(LONG):
        spec = {"kind": "command", "params": {"argv": ["sleep", "3600"]}}
        cluster.client.call("PUT", path("v1", "tasks", f"long-{number}"), body=spec)
        cluster.client.call("POST", path("v1", "tasks", f"long-{number}", "runs"))
    for name in cluster.names:
        spec = {"kind": "command", "params": {"argv": ["sh", "-c", DEAF]}, "pin": name, "failover": {"max": 1000}}
        cluster.client.call("PUT", path("v1", "tasks", f"long-deaf-{name}"), body=spec)
        cluster.client.call("POST", path("v1", "tasks", f"long-deaf-{name}", "runs"))
    for number in range(FREQUENT):
        spec = {"kind": "command", "params": {"argv": ["true"]}, "overlap": "allow", "catch_up": "all"}
        schedule = {"schedule": {"every_s": EVERY_S}}
        cluster.client.call("PUT", path("v1", "tasks", f"often-{number}"), body=spec | schedule)
    wait_for("all run", lambda: len(_long(cluster)) == LONG + len(cluster.names))


def _long(cluster: LocalCluster) -> list[dict[str, Any]]:
    items = cluster.client.get("/v1/runs", state="running", limit=1000)["items"]
    return [run for run in items if run["task"].startswith("long-")]


def _restart(cluster: LocalCluster, name: str) -> list[HandOver]:
    """Restart one: how long until others had claimed each run that it held."""
    led = cluster.client.get("/v1/cluster")["leader"] == name
    held = {run["run_id"]: run["attempt"] for run in _long(cluster) if run["node"] == name}
    survivor = cluster.client_of(next(one for one in cluster.names if one != name))
    begun = time.time()
    cluster.terminate(name)

    def claimed() -> list[HandOver] | None:
        runs = [survivor.get(path("v1", "runs", run_id)) for run_id in held]
        if any(run["attempt"] <= held[run["run_id"]] for run in runs):
            return None
        return [
            HandOver(run["run_id"], name, "-deaf-" in run["task"], led, _seconds(run["claimed_at"]) - begun)
            for run in runs
        ]

    figures = wait_for(f"what {name} ran is claimed", claimed, deadline_s=30) if held else []
    wait_for(f"{name} has ended", lambda: cluster.exit_code(name) is not None)
    ended_s = time.time() - begun
    cluster.start(name)
    cluster.wait_until_ready(name)
    wait_for("all run again", lambda: len(_long(cluster)) == LONG + len(cluster.names))
    took = ", ".join(f"{one.took_s:.2f}" + (" (deaf)" if one.deaf else "") for one in figures)
    print(f"{name}{' (led)' if led else ''}: claimed after {took or '-'} s, ended after {ended_s:.2f} s", flush=True)
    return figures


def _occurrences(cluster: LocalCluster) -> list[str]:
    """What is wrong with them, after printing how long each had to wait."""
    kept = each_once.pause(cluster.client, [f"often-{number}" for number in range(FREQUENT)])
    late_s: list[float] = []
    for run in (run for one in kept.values() for run in one.runs):
        started = [attempt["started_at"] for attempt in run["attempts"] if attempt["started_at"] is not None]
        if started:
            late_s.append(_seconds(started[0]) - _seconds(run["fire_at"]))
    found = [line for one in kept.values() for line in one.wrong]
    _report("due until it works", late_s)
    print(f"occurrences {sum(len(one.runs) for one in kept.values())}, wrong {len(found)}", flush=True)
    return found


def _seconds(time_text: str) -> float:
    return datetime.fromisoformat(time_text).timestamp()


def _report(what: str, figures_s: list[float]) -> None:
    if figures_s:
        figures_s.sort()
        print(
            f"{what:22} n={len(figures_s):4}  median {statistics.median(figures_s):.2f} s  "
            f"p99 {figures_s[len(figures_s) * 99 // 100]:.2f} s  max {figures_s[-1]:.2f} s",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
