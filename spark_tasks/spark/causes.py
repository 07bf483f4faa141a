"""What Spark's exceptions say."""

from collections.abc import Iterator
from typing import Any


def messages(error: Exception) -> Iterator[str]:
    """The messages of a Java exception and its causes, outermost first; that of any other error."""
    cause: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if cause is None:
        yield str(error)
    while cause is not None:
        yield str(cause.getMessage())
        cause = cause.getCause()
