"""Make the rows to write from the rows of the source."""

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final

from spark_tasks.transform.params import SOURCE, Transform
from tasks.kind import Unretryable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GROUP: Final = "rota.transforms"
"""The entry-point group of functions."""


class TransformUnfit(Unretryable):
    """The transform cannot be carried out: its SQL, its function, or a column that it names."""


def transformed(how: Transform | None, source: "DataFrame", lookups: Mapping[str, "DataFrame"]) -> "DataFrame":
    """The rows to write. Nothing is read yet. Raises `TransformUnfit`, and what a function raises."""
    from pyspark.errors import AnalysisException, ParseException

    if how is None:
        return source
    if how.function is not None:
        made: DataFrame = _function(how.function)(source, lookups, how.args)
        return made
    assert how.sql is not None
    for view, rows in {SOURCE: source, **lookups}.items():
        rows.createOrReplaceTempView(view)
    try:
        return source.sparkSession.sql(how.sql)
    except (AnalysisException, ParseException) as error:
        said = " ".join(str(error).partition(";")[0].split("==")[0].split())
        raise TransformUnfit(f"transform.sql: {said}") from None


def _function(named: str) -> Any:
    for entry in entry_points(group=GROUP):
        if entry.name == named:
            return entry.load()
    there = ", ".join(sorted(entry.name for entry in entry_points(group=GROUP))) or "none"
    raise TransformUnfit(f"this member has no function {named!r} in the entry-point group {GROUP}; it has {there}")
