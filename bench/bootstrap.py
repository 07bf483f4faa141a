"""What it costs to give a member that lost its disk all finished runs again: three nodes on this machine.

    python -m bench.bootstrap [--runs 100000] [--seconds 10] [--rate 100]

The same requests are sent to its feeder (`rota where bootstrap/node-3`) before, and while it sends the runs: `--rate` a
second, of `GET /v1/cluster`, the newest hundred runs and `PUT` of a task in turn.
"""

import tempfile
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

from bench.api import Connection
from bench.beginning import options_of
from bench.sizing import history
from node.cli.local import wait_for
from node.history.store import HISTORY
from testkit.cluster import Cluster
from testkit.compaction import compact

MEMBER: Final = "node-3"
ENTRIES: Final = 500
DEADLINE_S: Final = 600
_TASK: Final = {"kind": "command", "params": {"argv": ["true"]}}
_SENT: Final[tuple[tuple[str, str, Any], ...]] = (
    ("GET", "/v1/cluster", None),
    ("GET", "/v1/runs", None),
    ("PUT", "/v1/tasks/measured", _TASK),
)


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = options_of(__doc__)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rate", type=float, default=100)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, Cluster(Path(folder)) as cluster:
        _prepare(cluster, options.runs)
        feeder = cluster.get(f"/v1/tasks/bootstrap/{MEMBER}/owner")["owner"]
        way = Connection(cluster.url(feeder), cluster.token)
        cluster.kill(MEMBER)
        cluster.lose_folder(MEMBER)
        cluster.wait_for_status(MEMBER, "down")
        until_s = time.monotonic() + options.seconds
        _show("before", _asked(way, options.rate, lambda: time.monotonic() > until_s))
        cluster.start(MEMBER)
        wait_for("it is fed", lambda: _latest(cluster) is not None, DEADLINE_S)
        begun_s = time.monotonic()
        _show("while it feeds", _asked(way, options.rate, lambda: _latest(cluster)["state"] == "done"))
        took_s = time.monotonic() - begun_s
        done = _latest(cluster)
        print(
            f"{done['runs']:,} runs from {' '.join(done['fed'])} in {took_s:.1f} s: {done['runs'] / took_s:,.0f} a "
            f"second ({done['runs_per_s']:,.0f} without the pauses)",
            flush=True,
        )
        way.close()


def _prepare(cluster: Cluster, runs: int) -> None:
    specs = [{"name": f"old-{number}", "kind": "command", "params": {"argv": ["true"]}} for number in range(100)]
    history.write(cluster.folder / HISTORY, specs, cluster.names, runs, ENTRIES)
    for name in cluster.names:
        history.copy(cluster.folder / HISTORY, cluster.folder / name)
    cluster.start()
    cluster.wait_until_whole()
    for number in range(ENTRIES + 10):
        cluster.ask("PATCH", "/v1/settings", json={"history_days": 30 + number % 2})
    compact(cluster, *cluster.names)


def _latest(cluster: Cluster) -> Any:
    items = cluster.client_of(MEMBER).get("/v1/bootstraps")["items"]
    return next((item["latest"] for item in items if item["member"] == MEMBER), None)


def _asked(way: Connection, rate: float, over: Callable[[], bool]) -> dict[str, list[float]]:
    """How long the answers took, in milliseconds, by request: at this rate until it is over."""
    took: dict[str, list[float]] = {f"{method} {target}": [] for method, target, _ in _SENT}
    begun_s = time.monotonic()
    for number, (method, target, body) in enumerate(cycle(_SENT)):
        if number % 10 == 0 and over():
            break
        time.sleep(max(0.0, begun_s + number / rate - time.monotonic()))
        sent_s = time.monotonic()
        way.call(method, target, body if body is None else {**body, "weight": 1 + number % 100})
        took[f"{method} {target}"].append((time.monotonic() - sent_s) * 1000)
    return took


def _show(when: str, took: dict[str, list[float]]) -> None:
    for what, each in took.items():
        if len(each) < 2:
            continue
        cuts = quantiles(each, n=100, method="inclusive")
        figures = f"p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms, worst {max(each):.1f} ms"
        print(f"{when}: {what}: {figures} ({len(each)} times)", flush=True)


if __name__ == "__main__":
    main()
