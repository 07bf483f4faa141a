"""How soon a `command` runs: from the request and from its claim to the program's first words.

    python -m bench.starting [--runs 50]

A run is started by hand, and its program, `date`, prints the time. `asked` is the client's clock just before the
POST; `claimed` is when the owner proposed the claim, so that what follows has the claim's commit in it; `began` is
when the worker said that it begins. Node, program and client are on one machine. Then the same while the cluster
is busy: two programs that only compute for each core, and a client that registers tasks one after another.
"""

import os
import statistics
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from time import time
from typing import Any, NamedTuple

from bench.api import Connection, spec
from bench.beginning import options_of, ready_cluster
from node.cli.local import LocalCluster, wait_for
from node.client import path

TASKS = 6


class Times(NamedTuple):
    """Of one run, in seconds since the epoch."""

    asked_s: float
    claimed_s: float
    began_s: float
    spoke_s: float


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = options_of(__doc__)
    parser.add_argument("--runs", type=int, default=50)
    options = parser.parse_args(arguments)
    with ready_cluster() as cluster:
        for number in range(TASKS):
            _put(cluster, f"date-{number}", ["date", "+%s.%N"])
        _report("idle", [_once(cluster, number) for number in range(options.runs)])
        with _busy(cluster):
            _report("busy", [_once(cluster, number) for number in range(options.runs)])


def _put(cluster: LocalCluster, name: str, argv: list[str]) -> None:
    cluster.client.call("PUT", path("v1", "tasks", name), body={"kind": "command", "params": {"argv": argv}})


def _once(cluster: LocalCluster, number: int) -> Times:
    client = cluster.client_of(cluster.names[number % len(cluster.names)])
    asked_s = time()
    run_id = client.call("POST", path("v1", "tasks", f"date-{number % TASKS}", "runs")).json["run_id"]

    def over() -> Any:
        run = client.get(path("v1", "runs", run_id))
        return run if run["finished_at"] is not None else None

    run = wait_for(f"{run_id} is over", over)
    if run["state"] != "succeeded":
        raise RuntimeError(f"{run_id} {run['state']}: {run['error']}")
    spoke = b"".join(client.stream(path("v1", "runs", run_id, "log"))).split()[0]
    return Times(asked_s, _seconds(run["claimed_at"]), _seconds(run["started_at"]), float(spoke))


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


@contextmanager
def _busy(cluster: LocalCluster) -> Iterator[None]:
    """Programs that only compute, and a client that registers tasks."""
    count = 2 * (os.cpu_count() or 1)
    for number in range(count):
        _put(cluster, f"busy-{number}", [sys.executable, "-c", "while True: pass"])
        cluster.client.call("POST", path("v1", "tasks", f"busy-{number}", "runs"))
    wait_for("all compute", lambda: len(cluster.client.get("/v1/runs", state="running")["items"]) >= count)
    over = threading.Event()

    def register() -> None:
        connection = Connection(cluster.url(cluster.names[0]), cluster.token)
        number = 0
        while not over.is_set():
            connection.call("PUT", path("v1", "tasks", f"more-{number}"), spec(f"more-{number}"))
            number += 1
        connection.close()

    client = threading.Thread(target=register, daemon=True)
    client.start()
    try:
        yield
    finally:
        over.set()
        client.join()


def _report(how: str, times: list[Times]) -> None:
    for what, figures in (
        ("asked to claimed", [each.claimed_s - each.asked_s for each in times]),
        ("claimed to begun", [each.began_s - each.claimed_s for each in times]),
        ("claimed to the program's words", [each.spoke_s - each.claimed_s for each in times]),
        ("asked to the program's words", [each.spoke_s - each.asked_s for each in times]),
    ):
        cuts = statistics.quantiles(figures, n=20)
        print(
            f"{how:5} {what:31} n={len(figures):3}  p50 {1000 * cuts[9]:6.1f} ms  p95 {1000 * cuts[18]:6.1f} ms  "
            f"max {1000 * max(figures):6.1f} ms",
            flush=True,
        )


if __name__ == "__main__":
    main()
