"""Histories by hand.

Many, with progress shown:      .venv/bin/python -m tests.simulation --histories 20000 [--first 500]
One, with its story:            .venv/bin/python -m tests.simulation --seed 7 [--keep=1,5] [--without margin]
"""

import argparse
import os
import sys
import time
from collections import Counter

from tests.simulation.history import tell
from tests.simulation.mutants import MUTANTS
from tests.simulation.plan import plan
from tests.simulation.pool import Line, share, work
from tests.simulation.rules import Rules


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--histories", type=int, default=0, help="how many, from --first on")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", help="only these of the seed's faults, by their places")
    parser.add_argument("--without", choices=sorted(MUTANTS), help="switch a rule off")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # a seed is a history only where strings hash alike
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulation", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    if asked.worker:
        work()
        return 0
    if asked.histories:
        return _many(asked.first, asked.histories)
    return _one(asked.seed, asked.keep, asked.without)


def _one(seed: int, keep: str | None, without: str | None) -> int:
    chosen = plan(seed)
    if keep is not None:
        chosen = chosen.only({int(place) for place in keep.split(",") if place})
    told = tell(chosen, MUTANTS[without] if without else Rules())
    print("\n".join(told.story))
    print(told.violation or f"no violation; {dict(sorted(told.counts.items()))}")
    return told.violation is not None


def _many(first: int, histories: int) -> int:
    begun_s = time.monotonic()
    broken: list[Line] = []
    counts: Counter[str] = Counter()
    done = [0]

    def each(line: Line) -> None:
        done[0] += 1
        counts.update(line.counts)
        if line.violation is not None:
            broken.append(line)
            print(f"\n{line.violation}", flush=True)
        if done[0] % 20 == 0 or done[0] == histories:
            took_s = time.monotonic() - begun_s
            left_s = took_s / done[0] * (histories - done[0])
            print(f"\r{done[0]} of {histories}, {len(broken)} broken, {left_s / 60:.0f} min left ", end="", flush=True)

    share([str(seed) for seed in range(first, first + histories)], each)
    print(f"\nseeds {first} to {first + histories - 1}, {time.monotonic() - begun_s:.0f} s: {len(broken)} violations")
    print(", ".join(f"{name} {count}" for name, count in counts.most_common(40)))
    return bool(broken)


if __name__ == "__main__":
    raise SystemExit(main())
