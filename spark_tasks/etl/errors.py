"""The errors of an ETL task and of its Spark jobs. Its source, sink and transform raise errors of their own."""

import importlib
import re
from typing import Final

from spark_tasks.spark.causes import cause
from tasks.kind import Away, Failed, Unretryable


class EtlStopped(Exception):
    """The attempt was asked to stop. The batches that it has committed stay in the sink."""


class SinkReplaced(Unretryable):
    """The sink lacks a batch that this run has committed to it: it was replaced, or restored from an older copy."""


class CursorUnfit(Unretryable, Failed):
    """The cursor cannot be set: the source is read whole, the text is no cursor, or the sink cannot set one."""


class BatchFailed(Failed):
    """Spark could not carry out a batch. No row of the batch is visible."""


class BatchAway(Away, BatchFailed):
    """As `BatchFailed`, because a source or the sink does not answer any more."""


class BatchUnfit(Unretryable, BatchFailed):
    """As `BatchFailed`, and another attempt would encounter the same row or value again."""


_OURS: Final = re.compile(r"\b((?:spark_tasks|tasks)(?:\.\w+)+)\.([A-Z]\w*): ([^\n]+)")
"""Matches an exception of this project in the text of an error that was raised on an executor."""

_DATA: Final = frozenset(
    "ARITHMETIC_OVERFLOW CAST_INVALID_INPUT CAST_OVERFLOW CANNOT_PARSE_TIMESTAMP DIVIDE_BY_ZERO INVALID_ARRAY_INDEX "
    "NUMERIC_VALUE_OUT_OF_RANGE SCALAR_SUBQUERY_TOO_MANY_ROWS USER_RAISED_EXCEPTION".split()
)
"""The error conditions of Spark that the data causes, so that another attempt would encounter them again."""


def failure(error: Exception) -> BatchFailed:
    r"""Return the error of a batch whose Spark job raised `error`.

    >>> failure(Exception("Traceback ...\nspark_tasks.postgres.session.QueryUnfit: column n: no int\n\tat org..."))
    BatchUnfit('QueryUnfit: column n: no int')
    >>> failure(Exception("Traceback ...\nspark_tasks.postgres.session.ServerAway: timeout expired\n\tat org..."))
    BatchAway('ServerAway: timeout expired')
    >>> failure(Exception("[DIVIDE_BY_ZERO] Division by zero. Use `try_divide` SQLSTATE: 22012\n== SQL =="))
    BatchUnfit('DIVIDE_BY_ZERO: Division by zero. Use `try_divide`')
    """
    said = str(error)
    if ours := _OURS.search(said):
        return _like(ours[1], ours[2])(f"{ours[2]}: {ours[3]}"[:2000])
    found = cause(said)
    return (BatchUnfit if found.condition in _DATA else BatchFailed)(found.said)


def _like(module: str, name: str) -> type[BatchFailed]:
    """Return the error's class for a batch that failed because of this project's exception `name` of `module`."""
    try:
        raised = getattr(importlib.import_module(module), name, Exception)
    except ImportError:
        return BatchFailed
    return BatchAway if issubclass(raised, Away) else BatchUnfit if issubclass(raised, Unretryable) else BatchFailed
