"""The cost of an idle node: processor time over some seconds, and memory, of the node and of its nursery.

    python -m bench.idle [--seconds 20] [--tasks 100]

Processor time is the kernel's figure for the threads of each process, in nanoseconds, as a share of one core: clock
ticks of 10 ms are too coarse for a node that uses 7 ms a second. Memory is resident (RSS), and proportional (PSS),
where a page that several processes share counts once in total. Wakeups are the voluntary context switches of the
node's threads.
"""

import time
from pathlib import Path
from typing import NamedTuple

from bench.beginning import options_of, ready_cluster


class Cost(NamedTuple):
    """The cost of one process: processor seconds so far, and MiB resident and proportional."""

    cpu_s: float
    rss_mib: float
    pss_mib: float


def cost_of(pid: int) -> Cost:
    """The cost of a process so far."""
    threads = [(task / "schedstat").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    rollup = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:] if ":" in line
    )
    return Cost(
        sum(int(thread.split()[0]) for thread in threads) / 1e9,
        int(rollup["Rss"].split()[0]) / 1024,
        int(rollup["Pss"].split()[0]) / 1024,
    )


def children_of(pid: int) -> list[int]:
    """The child processes of a process."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wakeups_of(pid: int) -> int:
    """How often the threads of a process have waited so far, all together."""
    lines = [
        line for task in Path(f"/proc/{pid}/task").iterdir() for line in (task / "status").read_text().splitlines()
    ]
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = options_of(__doc__)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--tasks", type=int, default=100)
    options = parser.parse_args(arguments)
    with ready_cluster() as cluster:
        yearly = {"cron": "0 0 1 1 *"}
        specs = [
            {"name": f"idle-{number}", "kind": "command", "params": {"argv": ["true"]}, "schedule": yearly}
            for number in range(options.tasks)
        ]
        cluster.client.call("POST", "/v1/tasks", body=specs)
        leader = cluster.client.get("/v1/cluster")["leader"]
        time.sleep(3)  # the cost of starting up does not count
        processes = {name: [cluster.pid(name), *children_of(cluster.pid(name))] for name in cluster.names}
        waits = {name: wakeups_of(pids[0]) for name, pids in processes.items()}
        before = {pid: cost_of(pid) for pids in processes.values() for pid in pids}
        time.sleep(options.seconds)
        woken = {name: wakeups_of(pids[0]) - waits[name] for name, pids in processes.items()}
        costs = {name: [cost_of(pid) for pid in pids] for name, pids in processes.items()}
        for name, pids in processes.items():
            after = costs[name]
            shares = [
                100 * (now.cpu_s - before[pid].cpu_s) / options.seconds for pid, now in zip(pids, after, strict=True)
            ]
            print(
                f"{name} ({'leader' if name == leader else 'follower'}, {options.tasks} tasks): "
                f"{sum(shares):.2f} % of a core; node {after[0].rss_mib:.0f} MiB RSS, "
                f"with its nursery {sum(cost.rss_mib for cost in after):.0f} MiB RSS, "
                f"{sum(cost.pss_mib for cost in after):.0f} MiB PSS; {woken[name] / options.seconds:.0f} wakeups/s",
                flush=True,
            )


if __name__ == "__main__":
    main()
