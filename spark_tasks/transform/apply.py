"""Make the rows to write from the rows of the source."""

import re
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final

from spark_tasks.sql import checked
from spark_tasks.sql.judging import SqlRefused
from spark_tasks.transform.params import SOURCE, Transform
from tasks.kind import Unretryable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GROUP: Final = "rota.transforms"
"""The entry-point group of functions."""


_ADVICE: Final = re.compile(r" Verify the spelling .* IF EXISTS\.| SQLSTATE: \w{5}")
"""What Spark says beside what is wrong: advice on its catalog, which no transform has, and a code."""


class TransformUnfit(Unretryable):
    """The transform cannot be carried out: its SQL, its function, or a column that it names."""


def transformed(how: Transform | None, source: "DataFrame", lookups: Mapping[str, "DataFrame"]) -> "DataFrame":
    """The rows to write. Nothing is read yet. Raises `TransformUnfit`, and what a function raises."""
    if how is None:
        return source
    made: DataFrame
    if how.function is not None:
        made = _function(how.function)(source, lookups, how.args)
    else:
        assert how.sql is not None
        made = _queried(how.sql, source, lookups)
        check_distinct(made.columns)
    return made


def _queried(sql: str, source: "DataFrame", lookups: Mapping[str, "DataFrame"]) -> "DataFrame":
    from pyspark.errors import AnalysisException, ParseException

    views = {SOURCE: source, **lookups}
    for view, rows in views.items():
        rows.createOrReplaceTempView(view)
    try:
        return checked.query(source.sparkSession, sql, list(views))
    except SqlRefused as error:
        raise TransformUnfit(f"transform.sql: {error}") from None
    except (AnalysisException, ParseException) as error:
        said = _ADVICE.sub("", " ".join(str(error).partition(";")[0].split("==")[0].split()))
        raise TransformUnfit(f"transform.sql: {said}") from None


def check_distinct(columns: Sequence[str]) -> None:
    """Raise `TransformUnfit` if two columns have one name. Whether case tells names apart, the sink knows."""
    if twice := [column for column in columns if columns.count(column) > 1]:
        raise TransformUnfit(f"transform.sql gives two columns the name {twice[0]!r}: rename one by AS")


def _function(named: str) -> Any:
    for entry in entry_points(group=GROUP):
        if entry.name == named:
            return entry.load()
    there = ", ".join(sorted(entry.name for entry in entry_points(group=GROUP))) or "none"
    raise TransformUnfit(f"this member has no function {named!r} in the entry-point group {GROUP}; it has {there}")
