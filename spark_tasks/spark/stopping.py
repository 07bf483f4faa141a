"""Cancel Spark's jobs once an attempt should stop."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from spark_tasks.spark.session import spark_session
from tasks.kind import Context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECK_S = 0.2
"""How often a running Spark job checks whether the attempt should stop."""


@contextmanager
def session_of(ctx: Context[Any]) -> "Iterator[SparkSession]":
    """The session of an attempt. Its jobs are cancelled once the attempt should stop."""
    with spark_session(f"{ctx.task} {ctx.run_id}", ctx.scratch) as spark, stopping(ctx, spark):
        yield spark


@contextmanager
def stopping(ctx: Context[Any], spark: "SparkSession") -> Iterator[None]:
    """While the block lasts, cancel Spark's running jobs once the attempt should stop."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(CHECK_S):
            if ctx.cancelled:
                spark.sparkContext.cancelAllJobs()

    watcher = threading.Thread(target=watch, name="stop-watch", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
