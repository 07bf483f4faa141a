"""All Spark sessions of a test process run in one JVM, which ends on request."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def one_jvm() -> Iterator[None]:
    """End the JVM when the block does."""
    yield
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(timeout=60)
        SparkContext._gateway = None
        SparkContext._jvm = None
