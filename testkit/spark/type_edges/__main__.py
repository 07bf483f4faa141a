"""Draw many values and take them to each sink: python -m testkit.spark.type_edges [--values 100000]."""

import argparse
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from examples.demo.postgres import postgres_server
from spark_tasks.spark.session import spark_session
from testkit.spark.databases import PASSWORD, EtlDatabase
from testkit.spark.type_edges import SINKS
from testkit.spark.type_edges.drawn import DRAWS, differing
from testkit.spark.type_edges.pushing import Pushing, Sinks

PORTION = 400
"""How many rows are drawn for one run."""


def main() -> None:
    """Draw the values, and say what became of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--values", type=int, default=100_000, help="how many values to draw in all")
    parser.add_argument("--first", type=int, default=0, help="the number of the first portion")
    given = parser.parse_args()
    done, number, began_s = 0, given.first, time.monotonic()
    with (
        tempfile.TemporaryDirectory() as folder,
        postgres_server(PASSWORD) as server,
        ExitStack() as stack,
        spark_session("types", Path(folder) / "spark") as spark,
    ):
        server.sql("postgres", "CREATE DATABASE types")
        sinks = Sinks(EtlDatabase(server, "types", Path(folder)), Path(folder), stack)
        pushing = Pushing(spark, sinks, "postgres")
        while done < given.values:
            for sink in SINKS:
                wrong = differing(pushing, sink, PORTION, number)
                if wrong:
                    raise SystemExit("\n".join([f"{len(wrong)} values differ in {sink}:", *wrong[:20]]))
                done, number = done + PORTION * len(DRAWS), number + 1
            print(f"{done} values arrived equal; {done / (time.monotonic() - began_s):.0f} a second", flush=True)


main()
