"""`python -m tests.integration.drills --count 100`: as many spoilt and as many good backups, each drilled."""

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.integration.drills.backups import good_backups
from tests.integration.drills.trials import trials


def main() -> int:
    """Print a line for each drill. Returns 1 if one was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration.drills", description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="how many of each")
    parser.add_argument("--first", type=int, default=0, help="the number of the first one")
    given = parser.parse_args()
    numbers = range(given.first, given.first + given.count)
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="rota-drills-", dir="/tmp") as folder, ExitStack() as stack:
        good = stack.enter_context(good_backups(Path(folder) / "made"))
        for spoilt in (True, False):
            began_s, right = time.monotonic(), 0
            for trial in trials(good, Path(folder), numbers, spoilt=spoilt):
                right += trial.is_right
                print(f"{trial.number:4} {'ok   ' if trial.is_right else 'WRONG'} {trial.what}: {trial.said[-160:]}")
            took_s = time.monotonic() - began_s
            print(f"{right} of {len(numbers)} {'spoilt' if spoilt else 'good'} ones told, in {took_s:.0f} s")
            wrong += len(numbers) - right
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
