"""The demo's ETL: flights joined with planes and weather on Spark; delays by carrier and day, upserted."""

from typing import Any, Final

from examples.demo.postgres import Server
from examples.demo.proof import NotProven

SOURCE: Final = "shop"
SINK: Final = "warehouse"

DELAYS: Final = """
SELECT f.carrier, make_date(f.year, f.month, f.day) AS day, count(*) AS flights, count(f.dep_delay) AS departed,
  sum(f.arr_delay) AS arr_delay, sum(p.seats) AS seats, min(w.temp) AS coldest, max(w.visib) AS visib
FROM {flights} f LEFT JOIN planes p ON p.tailnum = f.tailnum
LEFT JOIN weather w ON w.origin = f.origin AND w.time_hour = f.time_hour
GROUP BY f.carrier, make_date(f.year, f.month, f.day)
"""
"""The query, in words that Spark and PostgreSQL have in common. Spark knows the flights as `source`."""

_COLUMNS: Final = "carrier, day, flights, departed, arr_delay, seats, coldest, visib"


def task(server: Server) -> dict[str, Any]:
    """The task. All three tables are read at one moment of the database."""

    def table(name: str, database: str = SOURCE) -> dict[str, Any]:
        password = {"secret": "pg_password"}
        return {"type": "postgres", "url": server.url(database), "password": password, "table": name}

    return {
        "name": "delays",
        "kind": "etl",
        "params": {
            "source": table("flights"),
            "lookups": {"planes": table("planes"), "weather": table("weather")},
            "transform": {"sql": DELAYS.format(flights="source")},
            "sink": {**table("delays", SINK), "mode": "upsert", "keys": ["carrier", "day"]},
        },
    }


def equal_to_plain_sql(server: Server) -> str:
    """Compare the delays with the same query in PostgreSQL, row by row; what was compared. Raises `NotProven`."""
    plain = server.sql(SOURCE, f"COPY ({DELAYS.format(flights='flights')} ORDER BY 1, 2) TO STDOUT")
    written = server.sql(SINK, f"COPY (SELECT {_COLUMNS} FROM delays ORDER BY 1, 2) TO STDOUT")
    if plain != written:
        differ = len(set(plain.splitlines()) ^ set(written.splitlines()))
        raise NotProven(f"the delays differ from those by plain SQL in {differ} rows")
    [flights, rows] = server.sql(SINK, "SELECT sum(flights), count(*) FROM delays").split("|")
    return f"{int(rows):,} rows of {int(flights):,} flights equal those of the same query in PostgreSQL"


def nothing(server: Server) -> str:
    """Change nothing in the source; what was changed."""
    return "all days"


def correct(server: Server) -> str:
    """Change some flights in the source; what was changed."""
    server.sql(SOURCE, "UPDATE flights SET arr_delay = 0 WHERE carrier = 'HA' AND arr_delay > 0")
    return "the late arrivals of Hawaiian Airlines are put right in the source"
