"""How long it takes until many tasks that are due at once have ended, beside the shortest possible: three nodes here.

    python -m bench.makespan [--places 5] [--seed 1]

The work is to sleep, so that the machine's processors do not decide. The shortest possible is reckoned from the places
that batch work has on all nodes: the longest task, or all of them divided by the places, whichever is more.
"""

import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from bench.api import LIST, Connection
from bench.beginning import options_of
from bench.sizing.work import install
from node.cli.local import LocalCluster, wait_for
from node.state.places import for_batch

EQUAL_MOST: Final = 1.15
UNEQUAL_MOST: Final = 1.2
"""How much longer than the shortest possible it may take."""

_AHEAD_S: Final = 4
_NODES: Final = 3
_SETTLED_S: Final = 300.0


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 if a limit was passed."""
    parser = options_of(__doc__)
    parser.add_argument("--places", type=int, default=5, help="ROTA_MAX_RUNS of each node")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        env = {"PYTHONPATH": install(Path(folder) / "kinds"), "ROTA_MAX_RUNS": str(options.places)}
        with LocalCluster(Path(folder), _NODES, env=env, one_session=True) as cluster:
            cluster.start()
            cluster.wait_until_ready()
            wait_for("places told", lambda: all(one["max_runs"] for one in cluster.client.items("/v1/members")))
            over = [
                _measure(cluster, "equal", [5.0] * 10, options.places, EQUAL_MOST),
                _measure(
                    cluster, "mixed", [rng.choice((0.5, 1, 2, 4)) for _ in range(200)], options.places, UNEQUAL_MOST
                ),
            ]
            return 1 if any(over) else 0


def _measure(cluster: LocalCluster, name: str, lengths_s: Sequence[float], places: int, most: float) -> bool:
    """Run tasks of these lengths, due at once, and print how long it took. Returns whether that was too long."""
    due = datetime.now(UTC) + timedelta(seconds=_AHEAD_S)
    specs = [
        {
            "name": f"{name}-{number:03}",
            "kind": "nothing",
            "schedule": {"at": due.isoformat()},
            "params": {"sleep_s": s},
        }
        for number, s in enumerate(lengths_s)
    ]
    way = Connection(cluster.url(cluster.names[0]), cluster.token)
    for start in range(0, len(specs), LIST):
        way.call("POST", "/v1/tasks", specs[start : start + LIST])
    way.close()
    owners = Counter(cluster.client.get(f"/v1/tasks/{spec['name']}/owner")["owner"] for spec in specs)

    def ended() -> list[dict[str, str]] | None:
        runs = [run for run in cluster.client.items("/v1/runs") if run["task"].startswith(f"{name}-")]
        done = [run for run in runs if run["state"] == "succeeded"]
        return done if len(done) == len(specs) else None

    runs = wait_for(f"the end of {len(specs)} tasks", ended, _SETTLED_S, 0.2)
    took_s = (max(datetime.fromisoformat(run["finished_at"]) for run in runs) - due).total_seconds()
    best_s = max(*lengths_s, sum(lengths_s) / (_NODES * for_batch(places, 0, continuous=False)))
    ran = Counter(run["node"] for run in runs)
    share = took_s / best_s
    shown = [", ".join(f"{counts.get(node, 0)}" for node in cluster.names) for counts in (owners, ran)]
    print(
        f"{len(specs)} {name} tasks, owned {shown[0]}, run {shown[1]}: {took_s:.2f} s, of {best_s:.2f} s possible: "
        f"{share:.2f} ({'OVER' if share > most else 'within'} {most})",
        flush=True,
    )
    return share > most


if __name__ == "__main__":
    sys.exit(main())
