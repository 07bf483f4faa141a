"""How quickly the Spark kinds work, beside plain PySpark scripts that do the same once, and how much memory they take.

    python -m bench.ingest [--rows 2000000] [--turns 3] [--large-rows 20000000] [--only local etl s3 memory]

`local`: CSV files into a Delta table in a folder, by the kind `ingest` and by `pipelines/plain_ingest.py`. `etl`: a
table of PostgreSQL, aggregated, into another one, by the kind `etl` and by `pipelines/plain_etl.py`. `s3`: the ingest
into a folder, and into an S3 API that works on the same two cores (moto's server). `memory`: the ingest of `--rows`
and of `--large-rows`.

Each turn runs both, the one and then the other first, each in a process of its own: its start and that of its JVM are
counted. The kinds start with the cache of Spark's classes, if there is one (`make bench` makes it); the scripts start
as pyspark does. What they wrote is compared after each turn. A task's attempt has a context without a cluster; a
cluster's checkpoints, three for a batch, take about as long as three `PUT`s of a task (`bench.api`). A ratio is of
medians. The processor time of a run, all its processes together, depends less on what else the machine does.
"""

import json
import logging
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.beginning import options_of
from bench.pipelines.rows import COLUMNS, CREATE_ORDERS, TOTALS, put_csv
from bench.pipelines.timing import TimedRun, timed
from examples.demo.postgres import Server, postgres_server
from spark_tasks.spark.java import java_home
from spark_tasks.storage.store import delta_options
from testkit.servers.object_store import ObjectStore, object_store

FILES: Final = 72
WARM_ROWS: Final = 1_000
PASSWORD: Final = "bench"
DATABASE: Final = "postgres"

Way = Callable[[int], TimedRun]
"""One way to do the work; called with the number of the turn."""


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parts: dict[str, Callable[[Path, Any], None]] = {"local": _local, "etl": _etl, "s3": _s3, "memory": _memory}
    parser = options_of(__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--large-rows", type=int, default=20_000_000)
    parser.add_argument("--only", nargs="+", choices=parts, default=list(parts))
    options = parser.parse_args(arguments)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # the S3 API logs each request
    for name in options.only:
        with tempfile.TemporaryDirectory() as folder:
            parts[name](Path(folder), options)


def _local(folder: Path, options: Any) -> None:
    source = _files(folder, options.rows)
    environ = {"JAVA_HOME": str(java_home(os.environ, folder))}

    def plain(turn: int) -> TimedRun:
        table = str(folder / f"plain-{turn}")
        return timed(["-m", "bench.pipelines.plain_ingest", str(source), table, COLUMNS], environ)

    task = partial(_ingest, folder, source)
    _warm(folder, source)
    found = _in_turn({"script": plain, "ingest": task}, options.turns, partial(_compare_tables, folder))
    _report(f"{options.rows:,} rows, {FILES} files, to a folder", found, "ingest", "script")


def _s3(folder: Path, options: Any) -> None:
    source = _files(folder, options.rows)
    with object_store() as store:

        def to_store(turn: int) -> TimedRun:
            more = {"table": store.url(f"turn-{turn}"), "options": store.references}
            return _attempt(folder, f"s3-{turn}", "ingest", _params(source, folder / "none") | more, store.secrets)

        def compare(turn: int) -> None:
            stored = delta_options(store.options, "us-east-1")
            _same(_sums(folder / f"task-{turn}"), _sums(store.url(f"turn-{turn}"), stored))
            _forget(store, f"turn-{turn}")
            shutil.rmtree(folder / f"task-{turn}")

        _warm(folder, source)
        ways: dict[str, Way] = {"folder": partial(_ingest, folder, source), "s3": to_store}
        found = _in_turn(ways, options.turns, compare)
    _report(f"{options.rows:,} rows, {FILES} files, to S3", found, "s3", "folder")


def _etl(folder: Path, options: Any) -> None:
    with postgres_server(PASSWORD) as server:
        server.sql(DATABASE, CREATE_ORDERS.format(rows=options.rows))
        environ = {"JAVA_HOME": str(java_home(os.environ, folder)), "PGPASSWORD": PASSWORD}
        url = server.url(DATABASE)

        def plain(turn: int) -> TimedRun:
            return timed(["-m", "bench.pipelines.plain_etl", url, f"plain_{turn}"], environ)

        def task(turn: int) -> TimedRun:
            end = {"type": "postgres", "url": url, "password": {"secret": "pg"}}
            params = {"source": end | {"table": "orders"}, "transform": {"sql": TOTALS}}
            params |= {"sink": end | {"table": f"task_{turn}", "mode": "replace"}}
            return _attempt(folder, f"etl-{turn}", "etl", params, {"pg": PASSWORD})

        found = _in_turn({"script": plain, "etl": task}, options.turns, partial(_compare_totals, server))
    _report(f"{options.rows:,} rows of PostgreSQL, aggregated", found, "etl", "script")


def _memory(folder: Path, options: Any) -> None:
    peaks = []
    for rows in (options.rows, options.large_rows):
        source = _files(folder, rows)
        run = _ingest(folder, source, rows)
        peaks.append(run.peak_mib)
        what = f"{rows:,} rows"
        print(f"{what:44} ingest    {run.wall_s:6.1f} s  driver and JVM at most {run.peak_mib:5.0f} MiB", flush=True)
        shutil.rmtree(source)
        shutil.rmtree(folder / f"task-{rows}")
    print(f"{'memory, many rows beside few':44} ratio     {peaks[1] / peaks[0]:6.2f}", flush=True)


def _files(folder: Path, rows: int) -> Path:
    source = folder / f"in-{rows}"
    size_bytes = put_csv(source, rows, FILES)
    print(f"{rows:,} rows in {FILES} files of {size_bytes / 2**20:,.0f} MiB in all", flush=True)
    return source


def _params(source: Path, table: Path) -> dict[str, Any]:
    given = {"source": f"{source}/*.csv", "format": "csv", "columns": COLUMNS}
    return given | {"table": str(table), "shared": True}


def _ingest(folder: Path, source: Path, turn: int) -> TimedRun:
    return _attempt(folder, f"ingest-{turn}", "ingest", _params(source, folder / f"task-{turn}"), {})


def _attempt(folder: Path, name: str, kind: str, params: Mapping[str, Any], secrets: Mapping[str, str]) -> TimedRun:
    """One attempt of a kind on Spark, in a process of its own, as a worker is one."""
    scratch = folder / f"scratch-{name}"
    given = {
        "kind": f"spark_tasks.{kind}.kind:{kind.capitalize()}",
        "params": params,
        "task": "bench",
        "run_id": "bench~1",
        "token": 1,
        "secrets": dict(secrets),
        "scratch": str(scratch),
    }
    file = folder / f"{name}.json"
    file.write_text(json.dumps(given))
    run = timed(["-m", "testkit.execution.one_attempt", str(file)], {})
    shutil.rmtree(scratch)
    return run


def _warm(folder: Path, source: Path) -> None:
    """Read the programs from the disk."""
    few = folder / "few"
    put_csv(few, WARM_ROWS, 1)
    _ingest(folder, few, 0)
    shutil.rmtree(folder / "task-0")


def _in_turn(ways: Mapping[str, Way], turns: int, compare: Callable[[int], None]) -> dict[str, list[TimedRun]]:
    """All ways in turn, `turns` times, each time in the other order; `compare` looks at what they wrote."""
    found: dict[str, list[TimedRun]] = {name: [] for name in ways}
    for turn in range(1, turns + 1):
        for name in list(ways)[:: 1 if turn % 2 else -1]:
            found[name].append(ways[name](turn))
        compare(turn)
    return found


def _compare_tables(folder: Path, turn: int) -> None:
    _same(_sums(folder / f"plain-{turn}"), _sums(folder / f"task-{turn}"))
    shutil.rmtree(folder / f"plain-{turn}")
    shutil.rmtree(folder / f"task-{turn}")


def _compare_totals(server: Server, turn: int) -> None:
    """The tables of a script and of a task are equal; amounts are sums of floats in another order."""
    shown = "SELECT customer, region, orders, round(amount::numeric, 2), last_at FROM {}_{}"
    mine, theirs = shown.format("task", turn), shown.format("plain", turn)
    differ = f"(({mine}) EXCEPT ALL ({theirs})) UNION ALL (({theirs}) EXCEPT ALL ({mine}))"
    _same("0", server.sql(DATABASE, f"SELECT count(*) FROM ({differ}) AS differ"))
    server.sql(DATABASE, f"DROP TABLE plain_{turn}, task_{turn}")


def _sums(table: Path | str, store: dict[str, str] | None = None) -> dict[str, Any]:
    """The number of a table's rows, and sums of some of its columns."""
    from deltalake import DeltaTable
    from pyarrow import compute

    rows = DeltaTable(str(table), storage_options=store).to_pyarrow_table(columns=["id", "distance", "delay", "note"])
    sums = {name: compute.sum(rows.column(name)).as_py() for name in ("id", "distance", "delay")}
    return sums | {"rows": rows.num_rows, "notes": compute.sum(compute.binary_length(rows.column("note"))).as_py()}


def _same(one: Any, other: Any) -> None:
    if one != other:
        raise RuntimeError(f"what was written differs: {one} and {other}")


def _forget(store: ObjectStore, name: str) -> None:
    """Remove a table: what the store holds is in this process's memory."""
    store.files.rm(store.url(name), recursive=True)


def _report(what: str, found: Mapping[str, list[TimedRun]], ours: str, beside: str) -> None:
    for name, runs in found.items():
        walls = [run.wall_s for run in runs]
        print(
            f"{what:44} {name:9} n={len(runs)}  median {statistics.median(walls):6.2f} s  min {min(walls):6.2f} s  "
            f"max {max(walls):6.2f} s  processors {statistics.median(run.cpu_s for run in runs):6.2f} s  "
            f"driver and JVM at most {max(run.peak_mib for run in runs):5.0f} MiB",
            flush=True,
        )
    medians = {name: statistics.median(run.wall_s for run in runs) for name, runs in found.items()}
    print(f"{what:44} {ours} works at {medians[beside] / medians[ours]:.2f} of the speed of {beside}", flush=True)


if __name__ == "__main__":
    main()
