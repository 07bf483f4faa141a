"""`python -m tests.chaos.successor_kills --count 300`: kill -9 around parents' ends, a line each ten and a table."""

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

from tests.chaos.successor_kills.killing import Outcome, killed_cluster
from tests.chaos.successor_kills.shapes import PARENTS

_PART: Final = 50
"""How many kills one cluster gets before all of its runs are judged."""


class Tally:
    """What was done and seen so far."""

    def __init__(self) -> None:
        self.began_s = time.monotonic()
        self.moments: list[Outcome] = []
        self.seen: Counter[str] = Counter()
        self.wrong: list[str] = []

    @property
    def kills(self) -> int:
        """How many nodes got SIGKILL."""
        return sum(len(outcome.killed) for outcome in self.moments)

    def table(self) -> str:
        """What was done, by what was waited for and to whom, and what was seen."""
        lines = [f"\n{'landmark':26} {'victim':16} {'moments':>7} {'kills':>6} {'in turn':>8} {'stops':>6}"]
        by = Counter((one.moment.landmark, one.moment.victims[0]) for one in self.moments)
        for (landmark, victim), count in sorted(by.items()):
            of = [one for one in self.moments if (one.moment.landmark, one.moment.victims[0]) == (landmark, victim)]
            deeds = Counter(one.moment.deed for one in of)
            kills = sum(len(one.killed) for one in of)
            turns, stops = deeds["kill two in turn"], deeds["stop"]
            lines.append(f"{landmark:26} {victim:16} {count:7} {kills:6} {turns:8} {stops:6}")
        seen = ", ".join(f"{count} {what}" for what, count in sorted(self.seen.items()))
        lines.append(
            f"{len(self.moments)} moments, {self.kills} kills, {time.monotonic() - self.began_s:.0f} s; {seen}; "
            f"{len(self.wrong)} wrong"
        )
        return "\n".join(lines)


def main() -> int:
    """Print a line for each ten kills and a table. Returns 1 if something did not hold; then the folder stays."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.successor_kills", description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="how many kills")
    parser.add_argument("--seed", type=int, default=None, help="draws the moments; a new one if it is not given")
    given = parser.parse_args()
    seed = random.randrange(1 << 32) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    draw, tally = random.Random(seed), Tally()
    while tally.kills < given.count:
        _part(draw, min(given.count, tally.kills + _PART), tally)
    print(tally.table())
    return 1 if tally.wrong else 0


def _part(draw: random.Random, until: int, tally: Tally) -> None:
    """Kill nodes of one cluster until there are so many kills in all, and judge its runs."""
    folder = Path(tempfile.mkdtemp(prefix="rota-successors-", dir="/tmp"))
    with killed_cluster(folder) as killing:
        told = tally.kills // 10
        while tally.kills < until:
            tally.moments.append(killing.kill(draw))
            if tally.kills // 10 > told:
                told = tally.kills // 10
                print(f"{tally.kills:4} kills, {time.monotonic() - tally.began_s:5.0f} s", flush=True)
        wrong = killing.settle()
    runs = [(name, run) for name, one in killing.seen.items() for run in one.runs]
    tally.seen["occurrences of tasks with parents"] += sum(bool(PARENTS[name]) for name, _ in runs)
    tally.seen["runs"] += len(runs)
    tally.seen["runs of bursts on other nodes than their owner's"] += sum(
        run["node"] != killing.owners[name] for name, run in runs if name.startswith("burst-")
    )
    tally.seen.update(f"attempts {attempt['state']}" for _, run in runs for attempt in run["attempts"])
    tally.wrong += wrong
    for line in wrong:
        print(f"WRONG {line}", flush=True)
    if wrong:
        print(f"see {folder}", flush=True)
    else:
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
