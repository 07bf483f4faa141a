"""`python -m spark_tasks.spark.make_class_cache`: makes the cache of Spark's classes (`class_cache`), once per machine.

A session runs a few jobs like those of tasks, and its JVM writes the classes that it has loaded. The cache is kept only
if another session starts with it. It is removed when a cache for another Java or pyspark replaces it.
"""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_tasks.spark import class_cache
from spark_tasks.spark.java import Java, NoJava, find_java
from spark_tasks.spark.session import JVM_OPTIONS, MASTER, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MODULE: Final = "spark_tasks.spark.make_class_cache"

ENDS_S: Final = 180.0
"""How long a JVM may take to write the cache; it takes 10 to 20 s on two cores."""


class NotMade(Exception):
    """This Java wrote no cache, or Spark does not start with the cache that it wrote."""


def main(arguments: list[str] | None = None) -> int:
    """Make the cache, unless it exists, and print its path. Returns the process's exit status."""
    parser = argparse.ArgumentParser(prog="python -m spark_tasks.spark.make_class_cache", description=__doc__)
    parser.add_argument("--again", action="store_true", help="also if there is one")
    options = parser.parse_args(arguments)
    import pyspark

    try:
        java = find_java(os.environ)
        file = class_cache.cache_file(java, pyspark.__version__)
        if file.exists() and not options.again:
            print(f"the cache of Spark's classes is there: {file}")
            return 0
        print("making a cache of Spark's classes, so that sessions start sooner (up to a minute) ...", flush=True)
        plain_s, cached_s = make(java, file)
    except (NoJava, NotMade, OSError) as error:
        print(f"no cache was made: {error}. Spark works without it, and starts more slowly", file=sys.stderr)
        return 1
    size_mib = file.stat().st_size / 2**20
    print(f"a session starts in {cached_s:.1f} s, and took {plain_s:.1f} s before: {file}, {size_mib:.0f} MiB")
    return 0


def make(java: Java, file: Path) -> tuple[float, float]:
    """Make the cache `file`. Returns how many seconds a session needs to start and run a first job, without the cache
    and with it.

    Raises `NotMade` and OSError.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=file.parent) as folder:
        made = Path(folder) / file.name
        _session_s(Path(folder) / "making", class_cache.making(java, made), "work")
        if not made.is_file():
            raise NotMade(f"the Java at {java.home} wrote none")
        plain_s = _session_s(Path(folder) / "without", [], "start")
        cached_s = _session_s(Path(folder) / "with", class_cache.using(java, made), "start")
        for old in file.parent.glob("spark-classes-*"):
            old.unlink()
        made.rename(file)
    return plain_s, cached_s


def _session_s(scratch: Path, options: Sequence[str], what: str) -> float:
    """Return how many seconds a session with those JVM options needs to finish its first job, in a process of
    its own.
    """
    environ = {name: value for name, value in os.environ.items() if name != MASTER} | {JVM_OPTIONS: shlex.join(options)}
    code = f"from {_MODULE} import run_session; run_session(*{[str(scratch), what]!r})"
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotMade(f"Spark did not start: {(done.stderr or done.stdout)[-2000:]}")
    return float(done.stdout.split()[-1])


def run_session(scratch: str, what: str) -> None:
    """Start a session, print how long it took to do its first job, do `what`, and let the JVM end by itself."""
    from pyspark import SparkContext

    began_s = time.monotonic()
    with spark_session("rota", Path(scratch)) as spark:
        spark.range(1).selectExpr("count(1)").collect()
        took_s = time.monotonic() - began_s
        if what == "work":
            _work(spark, Path(scratch))
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(ENDS_S)
    print(took_s)


def _work(spark: "SparkSession", folder: Path) -> None:
    """Use the classes that tasks use: read and write files, join, aggregate, and count on the way."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    columns = "n BIGINT, text STRING, at TIMESTAMP, amount DOUBLE, day DATE, price DECIMAL(10, 2)"
    rows = spark.range(5_000).selectExpr(
        "id AS n",
        "concat('row ', id % 7) AS text",
        "timestamp_seconds(id * 60) AS at",
        "id / 7 AS amount",
        "date_add(DATE'2026-01-01', CAST(id % 90 AS INT)) AS day",
        "CAST(id % 1000 AS DECIMAL(10, 2)) AS price",
    )
    rows.write.csv(f"{folder}/csv", header=True)
    rows.write.json(f"{folder}/json")
    for mode in ("FAILFAST", "PERMISSIVE"):
        read = spark.read.option("mode", mode).option("enforceSchema", False).schema(columns)
        seen = Observation()
        counted = read.csv(f"{folder}/csv", header=True).observe(seen, f.count(f.lit(1)).alias("rows"))
        counted.write.mode("overwrite").parquet(f"{folder}/parquet")
        assert seen.get["rows"] == 5_000
    spark.read.json(f"{folder}/json").createOrReplaceTempView("old")
    spark.read.parquet(f"{folder}/parquet").createOrReplaceTempView("source")
    totals = spark.sql(
        "SELECT source.text, source.day, count(*) AS rows, sum(source.price) AS price, max(old.at) AS last "
        "FROM source JOIN old ON old.n = source.n WHERE source.amount > 1 GROUP BY source.text, source.day"
    )
    totals.write.parquet(f"{folder}/totals")
    totals.orderBy("price").limit(20).collect()


if __name__ == "__main__":
    sys.exit(main())
