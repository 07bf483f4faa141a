"""How soon a freed place of a pool is taken, while many tasks wait for it: three nodes of this machine.

    python -m bench.pools [--tasks 10000] [--capacity 1] [--seconds 60]

All tasks fall due at one time, and use one of the pool each. The work is the kind `nothing`: an attempt is a worker
that begins and ends. A place is free from the proposal of a run's end (`finished`) to that of the next claim
(`claimed`), by the cluster's own times: so what is measured holds a commit, and the next owner's decision.
"""

import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from bench.api import LIST, Connection
from bench.beginning import options_of
from bench.sizing.figures import percentiles, show
from bench.sizing.work import install
from node.cli.local import LocalCluster, wait_for

TAKEN_MS: Final = 300
"""The most that the 99th percentile of the time until a freed place is taken may be."""

POOL: Final = "places"
_AHEAD_S: Final = 10
"""How long after their registration the tasks fall due."""

_SETTLED_S: Final = 300.0


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 if the limit was passed."""
    parser = options_of(__doc__)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--capacity", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=60)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        env = {"PYTHONPATH": install(Path(folder) / "kinds")}
        with LocalCluster(Path(folder), 3, env=env, one_session=True) as cluster:
            cluster.start()
            cluster.wait_until_ready()
            # Nothing begins before all wait: so the tasks are registered with a pool that has place, and then none.
            _resize(cluster, options.capacity)
            due = {"at": (datetime.now(UTC) + timedelta(seconds=_AHEAD_S + options.tasks / 500)).isoformat()}
            specs = [
                {"name": f"waits-{number:06}", "kind": "nothing", "schedule": due, "uses": {POOL: 1}}
                for number in range(options.tasks)
            ]
            way = Connection(cluster.url(cluster.names[0]), cluster.token)
            for start in range(0, len(specs), LIST):
                way.call("POST", "/v1/tasks", specs[start : start + LIST])
            way.close()
            _resize(cluster, 0)
            begun_s = time.monotonic()

            def all_wait() -> bool:
                [pool] = cluster.client.items("/v1/pools")
                return bool(pool["waiters"] == options.tasks)

            wait_for("all tasks to wait", all_wait, _SETTLED_S)
            print(
                f"{options.tasks:,} tasks wait, {time.monotonic() - begun_s:.0f} s after they were registered",
                flush=True,
            )
            since = datetime.now(UTC)
            _resize(cluster, options.capacity)
            time.sleep(options.seconds)
            _resize(cluster, 0)
            return 1 if _judge(cluster, since, options.capacity) else 0


def _resize(cluster: LocalCluster, capacity: int) -> None:
    cluster.client.call("PATCH", "/v1/settings", body={"pools": {POOL: capacity}})


def _judge(cluster: LocalCluster, since: datetime, capacity: int) -> bool:
    """Print the figures. Returns whether they are over the limit."""
    runs = [run for run in cluster.client.items("/v1/runs") if run["finished_at"] and run["claimed_at"]]
    claimed = sorted(datetime.fromisoformat(run["claimed_at"]) for run in runs)
    finished = sorted(datetime.fromisoformat(run["finished_at"]) for run in runs)
    # The n-th end frees the place that the claim takes which is `capacity` later.
    waits_ms = [
        1000 * (taken - freed).total_seconds() for freed, taken in zip(finished, claimed[capacity:], strict=False)
    ]
    show("first claim after there was room", [1000 * (claimed[0] - since).total_seconds()])
    show("freed to taken", waits_ms)
    p99 = percentiles(waits_ms)[1]
    verdict = "OVER" if p99 > TAKEN_MS else "within"
    print(f"  -> {len(runs):,} runs; p99 of freed to taken: {p99:.0f} ms; {verdict} {TAKEN_MS} ms", flush=True)
    return p99 > TAKEN_MS


if __name__ == "__main__":
    sys.exit(main())
