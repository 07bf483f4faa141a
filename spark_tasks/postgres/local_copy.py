"""Copies the rows of a batch into Parquet files on this machine, for a Spark that runs on it.

Spark reads Parquet files without Python. To read from Python, it would start at least five Python processes before it
had the first row, and starting each takes as long as reading some hundred thousand rows. Executors on other machines do
not see the files, so they read from the database themselves (`partition`).
"""

import shutil
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

from spark_tasks.postgres.partition import adopt_snapshot, read_partition, stored, with_own_names
from spark_tasks.postgres.session import ServerAway, Session, session
from spark_tasks.postgres.source_columns import SourceColumns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STOP_CHECK_S: Final = 0.2
"""The time between two checks of whether the attempt should stop."""


class CopyStopped(Exception):
    """The attempt was asked to stop before all rows were copied."""


class LocalCopy:
    """The rows of a batch in files in `folder`, which only this object uses. `stopped` returns True if the attempt
    should stop.
    """

    def __init__(self, folder: Path, stopped: Callable[[], bool]) -> None:
        self.folder = folder
        self.stopped = stopped

    def load(
        self, spark: "SparkSession", uri: str, snapshot: str, queries: Sequence[str], columns: SourceColumns
    ) -> "DataFrame":
        """Copy the rows of the queries, replacing earlier copies, and return them. The files stay until `remove`.

        Raises the errors of `copy_out`.
        """
        self.remove()
        self.folder.mkdir(parents=True)
        copy_out(uri, snapshot, queries, columns, self.folder, spark.sparkContext.defaultParallelism, self.stopped)
        schema = columns.schema()
        return with_own_names(spark.read.schema(stored(schema)).parquet(str(self.folder)), schema)

    def remove(self) -> None:
        """Remove the files."""
        if self.folder.exists():
            shutil.rmtree(self.folder)


def copy_out(
    uri: str,
    snapshot: str,
    queries: Sequence[str],
    columns: SourceColumns,
    folder: Path,
    readers: int,
    stopped: Callable[[], bool],
) -> None:
    """Write the rows of each query, with the given columns, into a file of `folder`, by at most `readers` sessions.

    Each session holds one batch of ADBC's in memory, about 16 MiB. Raises `CopyStopped`, and the errors of
    `partition.read_partition`; then no statement is left running.
    """
    from pyarrow import parquet
    from pyspark.sql.pandas.types import to_arrow_schema

    waiting: SimpleQueue[tuple[int, str]] = SimpleQueue()
    for part in enumerate(queries):
        waiting.put(part)
    numbered = to_arrow_schema(stored(columns.schema()), timezone="UTC")
    over = threading.Event()

    def copy_some(opened: Session) -> None:
        while not over.is_set():
            try:
                number, query = waiting.get_nowait()
            except Empty:
                return
            with parquet.ParquetWriter(folder / f"{number:03}.parquet", numbered) as writer:
                for batch in read_partition(opened, query, columns, numbered):
                    if over.is_set():
                        return
                    writer.write_batch(batch)

    with ExitStack() as stack:
        sessions = [stack.enter_context(session(uri)) for _ in range(min(readers, len(queries)))]
        for opened in sessions:
            adopt_snapshot(opened, snapshot)
        pool = stack.enter_context(ThreadPoolExecutor(len(sessions)))
        copies = [pool.submit(copy_some, opened) for opened in sessions]
        try:
            _wait(copies, stopped)
        except BaseException:
            over.set()
            # Cancel again and again, because a statement may begin just after a cancel.
            while wait(copies, STOP_CHECK_S).not_done:
                for opened in sessions:
                    with suppress(ServerAway):  # the session's own thread reports it
                        opened.cancel()
            raise


def _wait(copies: "list[Future[None]]", stopped: Callable[[], bool]) -> None:
    left = set(copies)
    while left:
        done, left = wait(left, STOP_CHECK_S, FIRST_EXCEPTION)
        for one in done:
            one.result()
        if left and stopped():
            raise CopyStopped
