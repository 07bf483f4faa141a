"""Checks that the executors of a Spark cluster see the files that they will read and the folders that they will write
to.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tasks.kind import Failed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_S: Final = 10.0
"""How long an executor waits for a file, because a network file system may show the file later there than here."""


class NotSeen(Failed):
    """Executors do not see a file or a folder of this node."""


def check_seen(
    spark: "SparkSession", paths: Iterable[Path], fetched: Mapping[Path, str], wait_s: float = WAIT_S
) -> None:
    """Raise `NotSeen` unless the executors find these files, no smaller than here, and these folders.

    `fetched` has the sources of files that were fetched to this node. Paths that do not exist here are left out. Only
    the present executors check; an executor that joins later and does not see a file fails its part of a job.
    """
    wanted = [(str(path), path.stat().st_size if path.is_file() else 0) for path in paths if path.exists()]
    if not wanted:
        return
    context = spark.sparkContext
    tasks = 2 * max(1, context.defaultParallelism)
    missing = context.parallelize(range(tasks), tasks).mapPartitions(_looker(wanted, wait_s)).collect()
    if not missing:
        return
    host, path = min(missing)
    advice = "nodes and executors must mount the folders of sources and tables at the same paths"
    if source := fetched.get(Path(path)):
        advice = f"{source} was fetched there, so set ROTA_SPARK_SHARED to a folder that nodes and executors see"
    raise NotSeen(f"an executor on {host} does not see {path} as this node does: {advice}")


def _looker(wanted: list[tuple[str, int]], wait_s: float) -> Callable[[Iterable[int]], Iterable[tuple[str, str]]]:
    """Return the function that executors run. It uses no module of this package, because they may not have it."""

    def look(_: Iterable[int]) -> Iterator[tuple[str, str]]:
        import os
        import socket
        import time

        def sees(path: str, size_bytes: int) -> bool:
            try:
                about = os.stat(path)  # noqa: PTH116
            except OSError:
                return False
            return bool(about.st_size >= size_bytes)

        end_s = time.monotonic() + wait_s
        for path, size_bytes in wanted:
            while not sees(path, size_bytes):
                if time.monotonic() >= end_s:
                    yield socket.gethostname(), path
                    return
                time.sleep(0.2)

    return look
