"""Errors of an object store on Spark's executors, raised here as if they had occurred in this process."""

from collections.abc import Iterator
from contextlib import contextmanager

from spark_tasks.spark import causes
from spark_tasks.storage.errors import quoted_error


@contextmanager
def executor_errors() -> Iterator[None]:
    """Within the block, raise `NoBucket`, `NoPermission` and `StoreAway` for errors of Spark that quote them."""
    try:
        yield
    except Exception as error:
        named = quoted_error("\n".join(causes.messages(error)))
        if named is None:
            raise
        raise named from None
