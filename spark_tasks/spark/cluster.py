"""An attempt on a Spark cluster: its share of the cluster, and one-sentence errors for faults of the cluster.

The driver is on this node, in the attempt's own processes, and the executors are on the cluster's machines. While the
node's lease has lapsed, the driver is frozen and the executors are not: they finish the work that they were given,
without an effect, because only the driver commits. Executors exit once the driver has been silent for an hour.
"""

import logging
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from spark_tasks.spark.master import SparkAway
from tasks.kind import Fenced, Unretryable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("rota.spark")

CORES: Final = "RUN_SPARK_CORES"
"""The environment variable that limits how many cores of a cluster an attempt takes."""

EXECUTOR_MEMORY: Final = "RUN_SPARK_EXECUTOR_MEMORY"
"""The environment variable that sets the heap of an executor."""

CORES_DEFAULT: Final = "2"

CHECK_S: Final = 5.0
CHECKS_MAX: Final = 60
"""Jobs are cancelled once this many checks in a row, `CHECK_S` seconds apart, have found no executor of the cluster.

The checks are counted, not the time, because this process may have been frozen in between.
"""

_MODULE: Final = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_PROGRAM: Final = re.compile(r'Cannot run program "([^"]+)"')


class ExecutorsUnfit(Unretryable):
    """The cluster's executors lack a program or a module that tasks need."""


def cluster_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return Spark's configuration for an attempt on a cluster, in addition to the configuration of every attempt.

    >>> cluster_settings({})["spark.cores.max"], "spark.executor.memory" in cluster_settings({})
    ('2', False)
    """
    chosen = {
        # Without this limit the first attempt takes all cores, and the next one waits until the first ends.
        "spark.cores.max": environ.get(CORES) or CORES_DEFAULT,
        # An attempt keeps its executors from its start to its end.
        "spark.dynamicAllocation.enabled": "false",
        # Executors are not frozen with their driver, so they must wait for a silent driver, for an hour.
        "spark.executor.heartbeatInterval": "60s",
        "spark.executor.heartbeat.maxFailures": "60",
    }
    if memory := environ.get(EXECUTOR_MEMORY):
        chosen["spark.executor.memory"] = memory
    return chosen


@contextmanager
def on_cluster(
    spark: "SparkSession", master: str, checks_max: int = CHECKS_MAX, check_s: float = CHECK_S
) -> Iterator[None]:
    """Within the block, cancel jobs that wait for executors in vain, and raise errors that name the cluster's fault.

    Raises `SparkAway` if there was no executor for `checks_max` checks or the master ended the application, and
    `ExecutorsUnfit` if executors lack a program or a module. Other errors of the block are raised unchanged.
    """
    watch = _ExecutorWatch(spark, checks_max, check_s)
    watch.start()
    try:
        yield
    except Fenced:
        raise
    except Exception as error:
        better = watch.fault(master) or executors_fault(error)
        if better is None:
            raise
        raise better from error
    finally:
        watch.stop()


def executors_fault(error: Exception) -> ExecutorsUnfit | None:
    """Return the error for a program or module that the executors lack, if `error` of Spark is about one; else None.

    >>> executors_fault(Exception("Job aborted: ModuleNotFoundError: No module named 'deltalake'"))
    ... # doctest: +ELLIPSIS
    ExecutorsUnfit("the executors' Python ... has no module 'deltalake': ...
    >>> executors_fault(ModuleNotFoundError("No module named 'deltalake'"))
    """
    said, python = str(error), os.environ.get("PYSPARK_PYTHON", "")
    remedy = (
        "install this package on the Spark workers, in the version of the nodes and with the same extras, or set "
        "PYSPARK_PYTHON on the nodes to the path of a Python there that has it"
    )
    if found := _MODULE.search(said):
        return ExecutorsUnfit(f"the executors' Python ({python}) has no module {found[1]!r}: {remedy}")
    if found := _PROGRAM.search(said):
        return ExecutorsUnfit(f"the executors have no program {found[1]}: {remedy}")
    return None


class _ExecutorWatch:
    """Checks, in a thread of its own, whether a session has executors while a job runs."""

    def __init__(self, spark: "SparkSession", checks_max: int, check_s: float) -> None:
        self._context = spark.sparkContext
        self._host = self._context.getConf().get("spark.driver.host")
        self._checks_max = checks_max
        self._check_s = check_s
        self._over = threading.Event()
        self._gave_up = False
        self._thread = threading.Thread(target=self._run, name="executor-watch", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and wait until it has ended."""
        self._over.set()
        self._thread.join()

    def fault(self, master: str) -> SparkAway | None:
        """Return the error for a fault of the cluster that stops all jobs; None if no such fault is known."""
        if self._gave_up:
            return SparkAway(
                f"the Spark cluster {master} gave this attempt no executor for {self._checks_max * self._check_s:g} s: "
                f"its workers are away, their cores or memory are taken, or they do not reach this node at {self._host}"
            )
        if self._ended():
            return SparkAway(
                f"the Spark cluster {master} ended this attempt's application: it was killed there, or its executors "
                f"ended one after another, as they do where they do not reach this node at {self._host}"
            )
        return None

    def _ended(self) -> bool:
        from py4j.protocol import Py4JError

        try:
            return bool(self._context._jsc.sc().isStopped())
        except Py4JError:
            return False  # the JVM has ended, which has nothing to do with the cluster

    def _run(self) -> None:
        from py4j.protocol import Py4JError

        starved = 0
        while not self._over.wait(self._check_s):
            try:
                starved = starved + 1 if self._starves() else 0
                if starved == 1:
                    _log.info("waiting for an executor of the Spark cluster")
                if starved >= self._checks_max:
                    self._gave_up = True
                    self._context.cancelAllJobs()
            except Py4JError as error:
                _log.info("Spark's executors are not watched any more: %s", str(error).partition("\n")[0])
                return  # the session has ended: the job that ran reports it

    def _starves(self) -> bool:
        if not self._context.statusTracker().getActiveJobsIds():
            return False
        with_driver = self._context._jsc.sc().getExecutorMemoryStatus().size()
        return int(with_driver) <= 1
