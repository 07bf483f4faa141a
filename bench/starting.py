"""Start latency of a `command`: from its due time, the request, or its claim to the program's first output.

    python -m bench.starting [--runs 50]

The program is `date`, which prints the time. `due` is the time of a scheduled occurrence. `requested` is the client's
clock just before the POST that starts a run by hand. `claimed` is when the owner proposed the claim, so what follows
includes the claim's commit. `began` is when the worker reported that it begins. Nodes, program and client share one
machine. First on an idle cluster; then, for the runs by hand, on a busy one: two programs that only compute for each
core, and a client that registers one task after another.
"""

import os
import statistics
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from time import sleep, time
from typing import Any, NamedTuple

from bench.api import Connection, spec
from bench.beginning import options_of, ready_cluster
from node.cli.local import LocalCluster, wait_for
from node.client import Client, path

DATE = ["date", "+%s.%N"]
TASKS = 6
EVERY_S = 3.0
"""The period of the scheduled tasks. Their due times are spread by when they were registered."""


class Times(NamedTuple):
    """The moments of one run, in seconds since the epoch. `caused_s`: its due time, or when it was requested."""

    caused_s: float
    claimed_s: float
    began_s: float
    output_s: float


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = options_of(__doc__)
    parser.add_argument("--runs", type=int, default=50)
    options = parser.parse_args(arguments)
    with ready_cluster() as cluster:
        for number in range(TASKS):
            _put(cluster, f"date-{number}", DATE)
        _report("idle", "due", _scheduled(cluster, options.runs))
        _report("idle", "requested", [_once(cluster, number) for number in range(options.runs)])
        with _busy(cluster):
            _report("busy", "requested", [_once(cluster, number) for number in range(options.runs)])


def _put(cluster: LocalCluster, name: str, argv: list[str], schedule: dict[str, Any] | None = None) -> None:
    body = {"kind": "command", "params": {"argv": argv}, "schedule": schedule}
    cluster.client.call("PUT", path("v1", "tasks", name), body=body)


def _scheduled(cluster: LocalCluster, runs: int) -> list[Times]:
    """The times of that number of scheduled runs, of tasks that are registered one after another."""
    names = [f"tick-{number}" for number in range(TASKS)]
    for name in names:
        _put(cluster, name, DATE, {"every_s": EVERY_S})
        sleep(EVERY_S / TASKS)

    def ended() -> list[Any] | None:
        found = [run for name in names for run in cluster.client.get("/v1/runs", task=name, limit=100)["items"]]
        over = [run for run in found if run["finished_at"] is not None]
        return over if len(over) >= runs else None

    over = wait_for(f"{runs} scheduled runs", ended, deadline_s=60 + 2 * EVERY_S * runs / TASKS, pause_s=1.0)
    for name in names:
        cluster.client.call("DELETE", path("v1", "tasks", name))
    return [_times(cluster.client, run, _seconds(run["fire_at"])) for run in over]


def _once(cluster: LocalCluster, number: int) -> Times:
    client = cluster.client_of(cluster.names[number % len(cluster.names)])
    requested_s = time()
    run_id = client.call("POST", path("v1", "tasks", f"date-{number % TASKS}", "runs")).json["run_id"]

    def over() -> Any:
        run = client.get(path("v1", "runs", run_id))
        return run if run["finished_at"] is not None else None

    return _times(client, wait_for(f"{run_id} is over", over), requested_s)


def _times(client: Client, run: Any, caused_s: float) -> Times:
    if run["state"] != "succeeded":
        raise RuntimeError(f"{run['run_id']} {run['state']}: {run['error']}")
    output = b"".join(client.stream(path("v1", "runs", run["run_id"], "log"))).split()[0]
    return Times(caused_s, _seconds(run["claimed_at"]), _seconds(run["started_at"]), float(output))


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


@contextmanager
def _busy(cluster: LocalCluster) -> Iterator[None]:
    """Keep the cluster busy: programs that only compute, and a client that registers tasks."""
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


def _report(how: str, cause: str, times: list[Times]) -> None:
    for what, figures in (
        (f"{cause} to claimed", [each.claimed_s - each.caused_s for each in times]),
        ("claimed to begun", [each.began_s - each.claimed_s for each in times]),
        ("claimed to first output", [each.output_s - each.claimed_s for each in times]),
        (f"{cause} to first output", [each.output_s - each.caused_s for each in times]),
    ):
        cuts = statistics.quantiles(figures, n=20)
        print(
            f"{how:5} {what:25} n={len(figures):3}  p50 {1000 * cuts[9]:6.1f} ms  p95 {1000 * cuts[18]:6.1f} ms  "
            f"max {1000 * max(figures):6.1f} ms",
            flush=True,
        )


if __name__ == "__main__":
    main()
