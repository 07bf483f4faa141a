"""Writes what the chain of this folder reads: flights of 2013, a file for each day of some months, and the airlines.

python -m examples.flights.data FOLDER [MONTH ...]
"""

import argparse
from pathlib import Path

from examples.demo import flights


def main() -> None:
    """Write the files, and say how many there are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("months", type=int, nargs="*", metavar="MONTH", help="1 to 12; none: all")
    given = parser.parse_args()
    files = flights.write_daily_files(given.folder, given.months or range(1, 13))
    flights.write_airlines(given.folder)
    print(f"{len(files)} files of flights and the airlines are in {given.folder}")


if __name__ == "__main__":
    main()
