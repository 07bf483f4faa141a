"""Checks what the demo claims, independently of Rota's own answers."""

import csv
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from deltalake import DeltaTable
from pyarrow import parquet

KEY = ("year", "month", "day", "carrier", "flight", "origin", "dest", "sched_dep_time", "tailnum")


class NotProven(Exception):
    """The table differs from the files."""


def all_flights_once(table: Path, folders: Sequence[Path]) -> None:
    """Compare the Delta table with the CSV files, row by row of their keys. Raises `NotProven`."""
    expected: Counter[tuple[str, ...]] = Counter()
    for file in sorted(path for folder in folders for path in folder.glob("*.csv")):
        with file.open(newline="") as lines:
            rows = csv.reader(lines)
            header = next(rows)
            places = [header.index(name) for name in KEY]
            expected.update(tuple(row[place] for place in places) for row in rows)
    found: Counter[tuple[str, ...]] = Counter()
    for uri in DeltaTable(str(table)).file_uris():
        columns = parquet.read_table(uri.removeprefix("file://"), columns=list(KEY)).to_pydict()
        found.update(zip(*([_text(value) for value in columns[name]] for name in KEY), strict=True))
    if found != expected:
        missing, more = sum((expected - found).values()), sum((found - expected).values())
        raise NotProven(
            f"of {expected.total()} rows, {missing} are missing in the table, and {more} are in it too often"
        )


def _text(value: object) -> str:
    return "NA" if value is None else str(value)


def seconds_between(begun_s: float, time: str) -> float:
    """Seconds from `begun_s`, a time of this machine's clock, to a time in an answer of the API."""
    return datetime.fromisoformat(time).timestamp() - begun_s
