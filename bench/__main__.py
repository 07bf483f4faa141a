"""Runs the measurements: all of them, or those that are named. Each has options of its own: python -m bench.NAME -h.

    python -m bench [NAME ...]

They share the machine with whatever else it does: its load is printed before each, and again at the end.
"""

import os
import platform
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from bench.beginning import options_of

NAMES: Final = {
    "placement": "owners of 25,000 and a million tasks, all members up and one down",
    "deadlines": "a new leader judges the deadlines of 100,000 tasks, none of them late, and all of them",
    "api": "the HTTP API of three nodes on this machine",
    "starting": "from a request, and from a claim, to a command's first words",
    "chains": "from the end of a task's run to the start of the task after it, in chains of ten (three minutes)",
    "fan_out": "the entry that makes the runs of a task with `each` on 1,000 members: `apply` alone",
    "pools": "from the end of a run to the claim of the next of 10,000 that wait for its place (four minutes)",
    "backfill": "a year's backfill of a chain of three, beside live tasks, through the leader's death (ten minutes)",
    "confining": "what it costs that the kernel keeps attempts to what they need (five minutes)",
    "backup": "backups beside plain programs that do the same: PostgreSQL, a folder, encrypted, to S3 (ten minutes)",
    "preparing": "a Spark task's wait for its session: from its due time, and from the loss of its driver's node",
    "ingest": "files to a Delta table and PostgreSQL to PostgreSQL, beside plain PySpark scripts (ten minutes)",
    "page": "the page at /: how soon it is there, how soon it shows what happens, and what 200 open ones cost",
    "idle": "an idle node's processor time and memory",
    "failover": "from the loss of a node to the claims of its runs by others",
    "rolling": "each of five nodes stopped and started again: how long until others have its runs, and what falls due",
    "bootstrap": "a member that lost its disk gets 100,000 finished runs, and what that costs the one that sends them",
    "wal": "a server's log while the node that archives it is killed, frozen and cut off, and restores (half an hour)",
    "size": "what 100,000 tasks and a million finished runs cost (a quarter of an hour)",
    "doors": "a cluster at work while somebody without the token or the secret tries its ports (six minutes)",
    "load": "a cluster at work on a machine that has far too much to do (a quarter of an hour)",
}


def main() -> int:
    """Run them; 1 if one failed."""
    parser = options_of(__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    names = parser.parse_args().names or list(NAMES)
    if unknown := set(names) - NAMES.keys():
        parser.error(f"there is no measurement called {', '.join(sorted(unknown))}: there are {', '.join(NAMES)}")
    print(_machine(), flush=True)
    failed = []
    for name in names:
        print(f"\n== {name}: {NAMES[name]} (load {_load()})", flush=True)
        # A process each: what one leaves in memory is not the next one's.
        if subprocess.run([sys.executable, "-m", f"bench.{name}"], check=False).returncode != 0:
            failed.append(name)
    print(f"\nload at the end: {_load()}", flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _machine() -> str:
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    beside = "with kafka-python" if find_spec("kafka") is not None else "without kafka-python"
    return (
        f"{len(os.sched_getaffinity(0))} cores of {cpu}, {memory_gib:.0f} GiB, {platform.system()} "
        f"{platform.release()}, Python {platform.python_version()}, {beside}"
    )


def _load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


if __name__ == "__main__":
    sys.exit(main())
