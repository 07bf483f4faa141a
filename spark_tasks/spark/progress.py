"""Texts about the progress of Spark's present job, from Spark's status, and about the time that a batch took."""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_S: Final = 1.0
"""The seconds between two checks of Spark's status. A check is a few calls to its JVM, of less than a millisecond."""

_log = logging.getLogger("rota.spark")


class StageTasks(NamedTuple):
    """The number of a stage's tasks that are done, and the number of all its tasks."""

    done: int
    total: int


def job_text(stages: Sequence[StageTasks | None]) -> str:
    """Return the progress of a job with these stages, as text. None is a stage that has not begun.

    >>> job_text([StageTasks(8, 8), StageTasks(3, 8), None])
    'stage 2 of 3, 3 of 8 tasks'
    >>> job_text([None])
    'stage 1 of 1'
    """
    over = sum(stage is not None and stage.done >= stage.total for stage in stages)
    at = next((stage for stage in stages if stage is not None and stage.done < stage.total), None)
    tasks = "" if at is None else f", {at.done} of {at.total} tasks"
    return f"stage {min(over + 1, len(stages))} of {len(stages)}{tasks}"


@contextmanager
def followed(spark: "SparkSession", tell: Callable[[str], None]) -> Iterator[None]:
    """Within the block, call `tell` from a thread each time Spark's latest job has made progress (`job_text`)."""
    over = threading.Event()
    tracker = spark.sparkContext.statusTracker()

    def watch() -> None:
        told = ""
        while not over.wait(POLL_S):
            try:
                text = _latest_job(tracker)
            except Exception as error:  # noqa: BLE001 - the session or its JVM has ended, which the attempt reports
                _log.debug("the status of Spark's jobs cannot be read any more: %s", error)
                return
            if text and text != told:
                told = text
                tell(text)

    watcher = threading.Thread(target=watch, name="job-watch", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _latest_job(tracker: Any) -> str:
    """Return the `job_text` of the latest active job; "" if no job is active."""
    active = tracker.getActiveJobsIds()
    job = tracker.getJobInfo(max(active)) if active else None
    if job is None:
        return ""
    found = [tracker.getStageInfo(stage) for stage in sorted(job.stageIds)]
    return job_text([None if one is None else StageTasks(one.numCompletedTasks, one.numTasks) for one in found])


def speed_text(rows: int, seconds: float) -> str:
    """Return the time that a batch took, and its rows per second, as text.

    >>> speed_text(1_500_000, 12.5)
    '12.5 s, 120,000 rows a second'
    """
    return f"{seconds:.1f} s, {rows / max(seconds, 0.001):,.0f} rows a second"
