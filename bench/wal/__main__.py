"""A server's log under pgbench at full speed, while the node that archives it is killed, frozen or cut off.

    python -m bench.wal [--kills 50] [--minutes 10] [--moments 30] [--faults killed,...] [--rate 0] [--seed 1]

Three real nodes, one of which runs the task of kind `wal`. Each fault is drawn:

- the node gets SIGKILL;
- it and its workers get SIGSTOP until another member has claimed the archive, and SIGCONT some seconds later;
- as root: it is cut off from the members, from the server, from the store, or from all of them. Nodes have network
  namespaces and the store is an S3 API then; packets are dropped, so nobody is told of the cut. Where another member
  can take over, the cut is healed some seconds later, else after 4 to 45 s.

After the last fault all nodes are killed while pgbench still writes. Then, from what is stored and nothing else:

- each archived segment and piece is compared, byte by byte, with the server's own (its archive_command keeps a copy);
- the pages are read for the writers that count;
- the server is restored to drawn moments, by time and by LSN, and to the latest one. Each time the transactions that a
  table has are compared with the commit records of the server's own log (pg_waldump): none may be missing, none more.

`--rate`: pgbench's transactions a second; 0: as many as it can. `--calm`: the seconds of normal work before the faults,
whose lag is told apart. `--faults`: which of them are drawn; by default all that can be had here.
"""

import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.beginning import options_of
from bench.wal.faults import ANYWHERE, SEPARATE, WAIT_S, Faults
from bench.wal.proof import prove
from bench.wal.site import Site, made_site
from bench.wal.watch import Watch
from node.cli.local import wait_for
from testkit.faults.network import why_not


def main(arguments: list[str] | None = None) -> None:
    """Measure and print. Raises `AssertionError` if the archive is not what it must be."""
    parser = options_of(__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--moments", type=int, default=30)
    parser.add_argument("--calm", type=float, default=60.0)
    parser.add_argument("--rate", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", default="")
    options = parser.parse_args(arguments)
    draw = random.Random(options.seed)
    why = why_not()
    kinds = options.faults.split(",") if options.faults else [*ANYWHERE, *(SEPARATE if why is None else ())]
    if unknown := set(kinds) - {*ANYWHERE, *SEPARATE}:
        parser.error(f"there is no fault called {', '.join(unknown)}: there are {', '.join([*ANYWHERE, *SEPARATE])}")
    separate = bool({*kinds} & {*SEPARATE})
    if separate and why is not None:
        parser.error(why)
    print(f"faults: {', '.join(kinds)}{'' if why is None else f' ({why})'}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="rota-wal-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        with made_site(folder, separate=separate) as site:
            watch = _archive(site, kinds, options, draw)
            prove(site, watch, options.moments, draw)
    finally:
        shutil.rmtree(folder)


def _archive(site: Site, kinds: list[str], options: Any, draw: random.Random) -> Watch:
    """Have the cluster archive the log under load and faults. Returns what was seen."""
    watch = Watch(site)
    site.register()
    with watch.looking():
        now = watch.server_lsn()
        wait_for("the log so far", lambda: watch.has(now), WAIT_S)
        watch.looks.clear()
        site.back_up(1)
        faults = Faults(site, watch, kinds, draw)
        with site.load(options.rate):
            began_s = time.monotonic()
            time.sleep(options.calm)
            calm_s = time.monotonic()
            faults.strike(options.kills)
            time.sleep(max(0.0, began_s + options.minutes * 60 - time.monotonic()))
            site.cluster.kill_at_once(*site.cluster.running())
            ended_s = time.monotonic()
    watch.read()
    watch.report("normal work", began_s, calm_s)
    watch.report("with the faults", calm_s, ended_s)
    faults.report()
    return watch


if __name__ == "__main__":
    main()
