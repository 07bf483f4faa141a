"""`python -m tests.chaos.backup_kills --kind all --count 20`: kill -9 at drawn moments, a line for each and a table."""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.chaos.backup_kills.killing import Outcome
from tests.chaos.backup_kills.kinds import KINDS, killed_cluster, why_not


def main() -> int:
    """Print a line for each moment and a table. Returns 1 if something did not hold; then the folder stays."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.backup_kills", description=__doc__)
    parser.add_argument("--kind", nargs="+", choices=[*KINDS, "all"], default=["all"])
    parser.add_argument("--count", type=int, default=20, help="how many moments of each kind")
    parser.add_argument("--seed", type=int, default=None, help="draws the moments; a new one if it is not given")
    given = parser.parse_args()
    seed = random.randrange(1 << 32) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    table, wrong = [], 0
    for kind in KINDS if "all" in given.kind else given.kind:
        if why := why_not(kind):
            table.append(f"{kind:12} not run: {why}")
            continue
        folder = Path(tempfile.mkdtemp(prefix=f"rota-kills-{kind}-", dir="/tmp"))
        faults, line = killed_kind(kind, given.count, random.Random(f"{seed} {kind}"), folder)
        wrong += faults
        table.append(line)
    print(
        f"\n{'kind':12} moments  node/all/attempt  after its end  attempts  kept  complete  copied  swept late  wrong"
    )
    print("\n".join(table))
    return 1 if wrong else 0


def killed_kind(kind: str, count: int, draw: random.Random, folder: Path) -> tuple[int, str]:
    """Kill runs of one kind `count` times. Returns how many went wrong, and a line for the table."""
    outcomes: list[Outcome] = []
    began_s = time.monotonic()
    with killed_cluster(kind, folder) as killing:
        # A moment at which the run had just ended is an idle node's; at most as many of these come in addition.
        while sum(not outcome.late for outcome in outcomes) < count and len(outcomes) < 2 * count:
            outcome = killing.kill(draw)
            outcomes.append(outcome)
            said = f"WRONG {outcome.wrong}" if outcome.wrong else "ok"
            late = ", when the run had ended" if outcome.late else ""
            whole = f"{outcome.seen.text}; {outcome.attempts} attempts"
            print(f"{kind} {len(outcomes):3}: {outcome.text}{late}: {whole}: {said}", flush=True)
    victims = Counter(outcome.text.split()[0] for outcome in outcomes)
    wrong = sum(bool(outcome.wrong) for outcome in outcomes)
    killed = "/".join(str(victims[each]) for each in ("node", "all", "attempt"))
    line = (
        f"{kind:12} {len(outcomes):7}  {killed:>16}  {sum(outcome.late for outcome in outcomes):13}  "
        f"{sum(outcome.attempts for outcome in outcomes):8}  "
        f"{sum(len(outcome.seen.objects) for outcome in outcomes):4}  "
        f"{sum(outcome.seen.complete is not None for outcome in outcomes):8}  "
        f"{sum(len(outcome.seen.copied) for outcome in outcomes):6}  "
        f"{sum(bool(outcome.swept) for outcome in outcomes):5}  {wrong:5}"
    )
    print(f"{kind}: {time.monotonic() - began_s:.0f} s{f'; see {folder}' if wrong else ''}", flush=True)
    return wrong, line


if __name__ == "__main__":
    sys.exit(main())
