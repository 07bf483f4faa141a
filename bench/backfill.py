"""A backfill of a year, a chain of three, through the death of the leader: three nodes of this machine.

    python -m bench.backfill [--days 365] [--work-s 0.3] [--parallel 2] [--live 40] [--every-s 10]

`--live` other tasks fall due every `--every-s` seconds, spread over them, first alone and then beside the backfill. In
both, the leader is killed after a while, and started again. A live run is late by the time from when it is due to when
its worker has reported that it begins, by the cluster's own times; what was due within ten seconds after a death is
shown by itself, since it waits for the election. Of the backfill, each occurrence of each task must be there once, in
order. The work of its runs is `sleep`: what is measured is not that a machine has too little processor time for both.
"""

import sys
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from bench.beginning import options_of, ready_cluster
from bench.sizing.figures import percentiles, show
from node.cli.local import LocalCluster, wait_for

MORE: Final = 1.10
"""The most that the 99th percentile of live runs may be beside the backfill, as a multiple of what it is alone."""

SETTLING_S: Final = 10.0
"""So long after a death its consequences are counted by themselves."""

CHAIN: Final = ("extract", "join", "report")
_PATIENCE_S: Final = 3600.0


class Span(NamedTuple):
    """A part of the measurement, and when the leader died in it."""

    since: datetime
    until: datetime
    death: datetime


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 if a limit was passed."""
    parser = options_of(__doc__)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--work-s", type=float, default=0.3, help="how long each run of the backfill sleeps")
    parser.add_argument("--parallel", type=int, default=2)
    parser.add_argument("--live", type=int, default=40, help="the number of live tasks")
    parser.add_argument("--every-s", type=int, default=10)
    parser.add_argument("--alone-s", type=float, default=120.0, help="how long live tasks are looked at alone")
    options = parser.parse_args(arguments)
    with ready_cluster(3) as cluster:
        _register(cluster, options.live, options.every_s, options.work_s)
        time.sleep(2 * options.every_s)
        alone = _alone(cluster, options.alone_s)
        beside, number = _beside(cluster, options.days, options.parallel)
        time.sleep(2 * options.every_s)
        p99_ms = [_live(cluster, what, span) for what, span in (("alone", alone), ("beside the backfill", beside))]
        wrong = [fault for task in CHAIN for fault in _faults(cluster, task, number, options.days)]
        took_s = (beside.until - beside.since).total_seconds()
        print(f"  {3 * options.days:,} runs of the backfill in {took_s:.0f} s, {len(wrong)} out of place {wrong[:3]}")
        over = bool(wrong) or p99_ms[1] > MORE * p99_ms[0]
        print(
            f"  -> p99 of live runs: {p99_ms[0]:.0f} ms alone, {p99_ms[1]:.0f} ms beside it; "
            f"{'OVER' if over else 'within'} {MORE}",
            flush=True,
        )
        return 1 if over else 0


def _register(cluster: LocalCluster, live: int, every_s: int, work_s: float) -> None:
    for number in range(live):
        at = {"cron": f"{number % every_s}/{every_s} * * * * *"}
        _put(cluster, f"live-{number:03}", ["true"], schedule=at)
    for before, task in zip((None, *CHAIN), CHAIN, strict=False):
        due = {"schedule": {"cron": "0 3 * * *"}} if before is None else {"after": [before]}
        _put(cluster, task, ["sleep", str(work_s)], **due)


def _put(cluster: LocalCluster, name: str, argv: list[str], **spec: Any) -> None:
    body = {"kind": "command", "params": {"argv": argv}, **spec}
    cluster.client.call("PUT", f"/v1/tasks/{name}", body=body)


def _alone(cluster: LocalCluster, length_s: float) -> Span:
    since = datetime.now(UTC)
    time.sleep(length_s / 2)
    death = _kill_the_leader(cluster)
    time.sleep(length_s / 2)
    return Span(since, datetime.now(UTC), death)


def _beside(cluster: LocalCluster, days: int, parallel: int) -> tuple[Span, int]:
    since = datetime.now(UTC)
    midnight = since.replace(hour=0, minute=0, second=0, microsecond=0)
    body = {
        "from": (midnight - timedelta(days=days)).isoformat(),
        "to": midnight.isoformat(),
        "downstream": True,
        "parallel": parallel,
    }
    number = int(cluster.client.call("POST", f"/v1/tasks/{CHAIN[0]}/backfills", body=body).json["number"])

    def ended() -> int:
        found = cluster.client.get(f"/v1/backfills/{number}")
        return int(found["total"]) - int(found["left"])

    wait_for("a third of the backfill", lambda: ended() >= days // 3, _PATIENCE_S, 0.5)
    death = _kill_the_leader(cluster)
    wait_for("its end", lambda: ended() == days, _PATIENCE_S, 0.5)
    return Span(since, datetime.now(UTC), death), number


def _kill_the_leader(cluster: LocalCluster) -> datetime:
    """Kill the leader, and start it again once others have its runs. Returns when it died."""
    leader = cluster.client.get("/v1/cluster")["leader"]
    death = datetime.now(UTC)
    cluster.kill(leader)
    time.sleep(SETTLING_S / 2)
    cluster.start(leader)
    cluster.wait_until_ready(leader)
    return death


def _live(cluster: LocalCluster, what: str, span: Span) -> float:
    """Print how late live runs were. Returns the 99th percentile of those away from the death, in milliseconds."""
    settled: list[float] = []
    after_death: list[float] = []
    for run in _runs(cluster, span.since):
        due = datetime.fromisoformat(run["fire_at"])
        if run["task"] in CHAIN or run["started_at"] is None or not span.since < due < span.until:
            continue
        began = min(one["started_at"] for one in run["attempts"] if one["started_at"])
        late_ms = 1000 * (datetime.fromisoformat(began) - due).total_seconds()
        shaken = span.death - timedelta(seconds=1) < due < span.death + timedelta(seconds=SETTLING_S)
        (after_death if shaken else settled).append(late_ms)
    show(f"{what}: due to began", settled)
    show(f"{what}: after the death", after_death)
    return percentiles(settled)[1]


def _runs(cluster: LocalCluster, since: datetime) -> Iterable[Mapping[str, Any]]:
    for run in cluster.client.items("/v1/runs"):
        if run["finished_at"] and datetime.fromisoformat(run["finished_at"]) < since - timedelta(minutes=1):
            break
        yield run


def _faults(cluster: LocalCluster, task: str, number: int, days: int) -> list[str]:
    """Say which occurrences of a task are not there once, have not succeeded, or began out of order."""
    runs = [run for run in cluster.client.items(f"/v1/tasks/{task}/runs") if run["backfill"] == number]
    runs.sort(key=lambda run: min(one["started_at"] for one in run["attempts"] if one["started_at"]))
    times = [run["fire_at"] for run in runs]
    faults = [f"{run['run_id']} {run['state']}" for run in runs if run["state"] != "succeeded"]
    if len(set(times)) != days or len(times) != days:
        faults.append(f"{task} has {len(times)} runs for {len(set(times))} of {days} times")
    if times != sorted(times):
        faults.append(f"{task} began out of order")
    return faults


if __name__ == "__main__":
    sys.exit(main())
