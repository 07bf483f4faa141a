"""How long a Spark task waits for its session: from its due time, or from its driver's loss, to its first job.

    python -m bench.preparing [--runs 12] [--kills 6]

`by hand`: a run that nobody could know of; its worker starts the session. `due`: a scheduled run, for which the owner
has started one beforehand. `after`: a run that is due when another one ends, by which time one was started, too, since
that one takes as long as its last run. `kill -9`: the node of a running driver is killed, from just before the signal
to the first job of the next attempt; `standbys` says how many members stand by for the task, each with a session. A
session is started anew for each run. Nodes, drivers and client share one machine.
"""

import statistics
import tempfile
from datetime import datetime
from pathlib import Path
from time import sleep, time
from typing import Any, NamedTuple

from bench.beginning import options_of, ready_cluster
from bench.first_job import READY
from node.cli.local import LocalCluster, wait_for
from node.client import Client, path
from testkit.cluster_kinds import install

TASKS = 3
EVERY_S = 45.0
"""The period of the scheduled tasks, which are registered one after another: a session is started every 15 s."""

SLEEP_S = 30
"""How long the runs work that others are due after."""


class Jobs(NamedTuple):
    """The moments of one run, in seconds since the epoch: what caused it, and its first job."""

    caused_s: float
    begun_s: float
    done_s: float


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = options_of(__doc__)
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--kills", type=int, default=6)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        env = {"PYTHONPATH": install(Path(folder)), "ROTA_SPARK_MASTER": "local[2]"}
        with ready_cluster(env=env) as cluster:
            if options.runs:
                _put(cluster, "by-hand", {})
                _report("by hand", [_once(cluster) for _ in range(max(2, options.runs // 2))])
                _report("due", _scheduled(cluster, options.runs))
                _report("after", _after(cluster, max(2, options.runs // 2)))
            for standbys in (0, 1) if options.kills else ():
                lost = [_lose(cluster, standbys, turn) for turn in range(options.kills)]
                _report(f"kill -9, standbys {standbys}", lost)


def _put(cluster: LocalCluster, name: str, params: dict[str, Any], **more: Any) -> None:
    _call(cluster, "PUT", name, {"kind": "first_job", "params": params, **more})


def _call(cluster: LocalCluster, method: str, name: str, body: dict[str, Any] | None = None) -> None:
    # Again and again: the node may have closed a connection that was idle for long.
    wait_for(f"{method} {name}", lambda: cluster.client.call(method, path("v1", "tasks", name), body=body))


def _once(cluster: LocalCluster) -> Jobs:
    requested_s = time()
    run_id = cluster.client.call("POST", path("v1", "tasks", "by-hand", "runs")).json["run_id"]

    def over() -> Any:
        run = cluster.client.get(path("v1", "runs", run_id))
        return run if run["finished_at"] is not None else None

    return _jobs(cluster.client, wait_for(f"{run_id} is over", over, deadline_s=120), requested_s)


def _scheduled(cluster: LocalCluster, runs: int) -> list[Jobs]:
    """The times of that number of scheduled runs; the first of each task is as any other."""
    names = [f"tick-{number}" for number in range(TASKS)]
    for name in names:
        _put(cluster, name, {}, schedule={"every_s": EVERY_S})
        sleep(EVERY_S / TASKS)

    def ended() -> list[Any] | None:
        found = [run for name in names for run in cluster.client.get("/v1/runs", task=name, limit=100)["items"]]
        over = [run for run in found if run["finished_at"] is not None and run["state"] != "skipped"]
        return over if len(over) >= runs else None

    over = wait_for(f"{runs} scheduled runs", ended, deadline_s=120 + 2 * EVERY_S * runs / TASKS, pause_s=1.0)
    for name in names:
        _call(cluster, "DELETE", name)
    return [_jobs(cluster.client, run, datetime.fromisoformat(run["fire_at"]).timestamp()) for run in over]


def _after(cluster: LocalCluster, runs: int) -> list[Jobs]:
    """The times of that number of runs, each due after a run that sleeps; the first one only shows how long it does."""
    _call(cluster, "PUT", "before", {"kind": "command", "params": {"argv": ["sleep", str(SLEEP_S)]}})
    _put(cluster, "after", {}, after=["before"])
    jobs: list[Jobs] = []
    for _ in range(runs + 1):
        body = {"downstream": True}
        before = cluster.client.call("POST", path("v1", "tasks", "before", "runs"), body=body).json["run_id"]

        def over() -> Any:
            found = cluster.client.get("/v1/runs", task="after")["items"]
            return found[0] if len(found) > len(jobs) and found[0]["finished_at"] is not None else None

        run = wait_for("the run after it is over", over, deadline_s=SLEEP_S + 120)
        ended = cluster.client.get(path("v1", "runs", before))["finished_at"]
        jobs.append(_jobs(cluster.client, run, datetime.fromisoformat(ended).timestamp()))
    for name in ("after", "before"):
        _call(cluster, "DELETE", name)
    return jobs[1:]


def _lose(cluster: LocalCluster, standbys: int, turn: int) -> Jobs:
    """Kill the node on which a driver works; the first job of the next attempt."""
    name = f"stays-{standbys}-{turn}"
    _put(cluster, name, {"stays": True}, standbys=standbys)
    run_id = cluster.client.call("POST", path("v1", "tasks", name, "runs")).json["run_id"]
    run = wait_for(f"{run_id} works", lambda: _worked(cluster.client, run_id, 1), deadline_s=120)
    if standbys:
        wait_for("the standby has its session", lambda: list(cluster.folder.rglob(f"prepared.*/{READY}")), 120)
    survivor = cluster.client_of(next(each for each in cluster.names if each != run["node"]))
    killed_s = time()
    cluster.kill(run["node"])
    again = wait_for(f"{run_id} works again", lambda: _worked(survivor, run_id, 2), deadline_s=120, pause_s=0.1)
    found = _jobs(survivor, again, killed_s)
    survivor.call("DELETE", path("v1", "runs", run_id))
    cluster.start(run["node"])
    cluster.wait_until_ready(run["node"])
    wait_for(f"{run_id} is over", lambda: survivor.get(path("v1", "runs", run_id))["finished_at"])
    return found


def _worked(client: Client, run_id: str, attempt: int) -> Any:
    """The run, if this attempt at it has done its first job."""
    run = client.get(path("v1", "runs", run_id))
    return run if run["attempt"] == attempt and run["state"] == "running" and _words(client, run) else None


def _words(client: Client, run: Any) -> list[bytes]:
    log = b"".join(client.stream(path("v1", "runs", run["run_id"], "log")))
    said = [line.split() for line in log.splitlines() if line.startswith(b"first job ")]
    return said[-1] if said else []


def _jobs(client: Client, run: Any, caused_s: float) -> Jobs:
    words = _words(client, run)
    if not words:
        raise RuntimeError(f"{run['run_id']} {run['state']}: {run['error']}")
    return Jobs(caused_s, float(words[2]), float(words[3]))


def _report(cause: str, jobs: list[Jobs]) -> None:
    for what, figures in (
        ("first job begun", [each.begun_s - each.caused_s for each in jobs]),
        ("first job done", [each.done_s - each.caused_s for each in jobs]),
    ):
        print(
            f"{cause:20} to {what:16} n={len(figures):3}  p50 {statistics.median(figures):6.2f} s  "
            f"min {min(figures):6.2f} s  max {max(figures):6.2f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
