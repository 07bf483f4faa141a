"""How soon a task begins after the last task before it: chains of tasks on three nodes of this machine.

    python -m bench.chains [--chains 1000] [--length 10] [--ticking 60] [--minutes 2]

All chains are registered; `--ticking` of them have a tick a minute, spread over the seconds of the minute, and the
others have one a year. The work is the kind `nothing`: an attempt is a worker that begins and ends. All times are the
cluster's own. `finished` is when the parent's owner proposed the end of the parent's run: the child is due in that very
entry. `claimed` is when the child's owner proposed its claim, and `began` when its worker had reported that it begins.
So what is measured holds two commits, and the start of a process. Each run costs processor time, which is printed, too:
with more runs a second than the machine has time for, they wait for one another.
"""

import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from bench.api import LIST, Connection
from bench.beginning import options_of
from bench.sizing.figures import percentiles, show, spent
from bench.sizing.work import install
from node.cli.local import LocalCluster

START_MS: Final = 100
"""The most that the 99th percentile of the start after the last parent's end may be."""

WARM_S: Final = 20.0
"""How long ticks are let go by before those that count."""

PATIENCE_S: Final = 15.0
"""What was due so long ago and has not ended is counted as not begun."""

_YEARLY: Final = {"cron": "0 0 1 1 *"}


def task(chain: int, level: int) -> str:
    """The name of a task: level 0 has the schedule."""
    return f"chain-{chain:05}-{level:02}"


def specs(chains: int, length: int, ticking: int) -> Iterable[dict[str, Any]]:
    """The definitions of all tasks, parents first."""
    for chain in range(chains):
        every_minute = {"cron": f"{chain * 60 // ticking} * * * * *"} if chain < ticking else _YEARLY
        for level in range(length):
            due = {"after": [task(chain, level - 1)]} if level else {"schedule": every_minute}
            yield {"name": task(chain, level), "kind": "nothing", "overlap": "allow", **due}


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 if a limit was passed."""
    parser = options_of(__doc__)
    parser.add_argument("--chains", type=int, default=1000)
    parser.add_argument("--length", type=int, default=10, help="the number of tasks of each chain")
    parser.add_argument("--ticking", type=int, default=60, help="how many chains have a tick a minute")
    parser.add_argument("--minutes", type=int, default=2)
    options = parser.parse_args(arguments)
    ticking = min(options.ticking, options.chains)
    with tempfile.TemporaryDirectory() as folder:
        env = {"PYTHONPATH": install(Path(folder) / "kinds")}
        with LocalCluster(Path(folder), 3, env=env, one_session=True) as cluster:
            cluster.start()
            cluster.wait_until_ready()
            _register(cluster, list(specs(options.chains, options.length, ticking)))
            time.sleep(WARM_S)
            since, before = datetime.now(UTC), spent(cluster)
            time.sleep(60 * options.minutes)
            until, after = datetime.now(UTC), spent(cluster)
            time.sleep(PATIENCE_S)
            runs = _runs(cluster, since, until)
            children = ticking * (options.length - 1) * options.minutes
            print(
                f"{options.chains * options.length:,} tasks in chains of {options.length}; {len(runs):,} runs, "
                f"{len(runs) / (60 * options.minutes):.1f} a second",
                flush=True,
            )
            after.since(before, max(1, len(runs)), "each run")
            return 1 if _judge(runs, children) else 0


def _register(cluster: LocalCluster, tasks: list[dict[str, Any]]) -> None:
    way = Connection(cluster.url(cluster.names[0]), cluster.token)
    begun = time.perf_counter()
    for start in range(0, len(tasks), LIST):
        way.call("POST", "/v1/tasks", tasks[start : start + LIST])
    took_s = time.perf_counter() - begun
    print(f"{len(tasks):,} tasks registered in {took_s:.1f} s", flush=True)
    way.close()


def _runs(cluster: LocalCluster, since: datetime, until: datetime) -> dict[tuple[str, str], Mapping[str, Any]]:
    """The runs of the ticks within a span, by task and time."""
    found: dict[tuple[str, str], Mapping[str, Any]] = {}
    for run in cluster.client.items("/v1/runs"):
        nominal = datetime.fromisoformat(run["fire_at"])
        if since < nominal <= until:
            found[run["task"], run["fire_at"]] = run
        elif nominal < since - timedelta(minutes=1):
            break
    return found


def _judge(runs: Mapping[tuple[str, str], Mapping[str, Any]], children: int) -> bool:
    """Print the figures. Returns whether they are over the limit."""
    waits: dict[str, list[float]] = {"finished to claimed": [], "claimed to began": [], "finished to began": []}
    for (name, fire_at), run in runs.items():
        stem, _, level = name.rpartition("-")
        parent = runs.get((f"{stem}-{int(level) - 1:02}", fire_at))
        if parent is None or run["started_at"] is None:
            continue
        finished, claimed, began = map(
            datetime.fromisoformat, (parent["finished_at"], run["claimed_at"], run["started_at"])
        )
        for what, span in zip(waits, (claimed - finished, began - claimed, began - finished), strict=True):
            waits[what].append(1000 * span.total_seconds())
    for what, each_ms in waits.items():
        show(what, each_ms)
    begun = waits["finished to began"]
    p99 = percentiles(begun)[1] if begun else float("inf")
    over = p99 > START_MS or len(begun) < children
    print(
        f"  -> p99 of the start after the last parent's end: {p99:.0f} ms, {len(begun):,} of {children:,} children; "
        f"{'OVER' if over else 'within'} {START_MS} ms",
        flush=True,
    )
    return over


if __name__ == "__main__":
    sys.exit(main())
