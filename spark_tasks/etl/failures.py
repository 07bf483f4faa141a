"""What went wrong in a Spark job, in one sentence instead of the JVM's."""

import re
from typing import Final

from spark_tasks.etl.errors import BatchFailed, BatchUnfit

_OURS: Final = re.compile(r"\b(QueryUnfit|QueryFailed|ServerAway|SourceUnfit|SinkUnfit): ([^\n]+)")
"""What this project raises on executors."""

_PYTHON: Final = re.compile(r"^((?!org\.|java\.|scala\.|py4j\.|Caused by)[A-Za-z_][\w.]*): (.+)$", re.MULTILINE)
"""The last line of a Python traceback."""

_TRACEBACK: Final = "Traceback (most recent call last)"

_CONDITION: Final = re.compile(r"\[([A-Z_0-9.]+)\] ([^\n]+)")
"""An error condition of Spark, such as `[DIVIDE_BY_ZERO] Division by zero.`"""

_DATA: Final = frozenset(
    "ARITHMETIC_OVERFLOW CAST_INVALID_INPUT CAST_OVERFLOW CANNOT_PARSE_TIMESTAMP DIVIDE_BY_ZERO INVALID_ARRAY_INDEX "
    "NUMERIC_VALUE_OUT_OF_RANGE SCALAR_SUBQUERY_TOO_MANY_ROWS".split()
)
"""Conditions that come from the data, so that another attempt would meet them again."""


def failure(error: Exception) -> BatchFailed:
    r"""The error of a batch whose Spark job raised `error`.

    >>> failure(Exception("Traceback ...\nspark_tasks.postgres.session.QueryUnfit: column n: no int\n\tat org..."))
    BatchUnfit('QueryUnfit: column n: no int')
    >>> failure(Exception("[DIVIDE_BY_ZERO] Division by zero. Use `try_divide` SQLSTATE: 22012\n== SQL =="))
    BatchUnfit('DIVIDE_BY_ZERO: Division by zero. Use `try_divide`')
    >>> failure(Exception("Job aborted\nTraceback (most recent call last):\n  File ...\nKeyError: 'a'\n\n\tat org.x"))
    BatchFailed("KeyError: 'a'")
    """
    said = str(error)
    if ours := _OURS.search(said):
        return (BatchUnfit if ours[1].endswith("Unfit") else BatchFailed)(f"{ours[1]}: {ours[2]}"[:2000])
    if _TRACEBACK in said and (raised := _PYTHON.findall(said.partition(_TRACEBACK)[2])):
        kind, message = raised[0]
        return BatchFailed(f"{kind.rpartition('.')[2]}: {message}"[:2000])
    if condition := _CONDITION.search(said):
        message = condition[2].partition(" SQLSTATE: ")[0]
        final = condition[1].partition(".")[0] in _DATA
        return (BatchUnfit if final else BatchFailed)(f"{condition[1]}: {message}"[:2000])
    return BatchFailed(said.strip().partition("\n")[0][:2000])
