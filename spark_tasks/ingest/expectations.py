"""The expectations that a task has of each row, and the handling of rows that do not meet them."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from spark_tasks.files.faults import first_line
from spark_tasks.sql import checked
from spark_tasks.sql.judging import SqlRefused
from spark_tasks.sql.lexing import check_balanced
from tasks.errors import Unretryable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class ExpectationFailed(Unretryable):
    """A row does not meet an expectation, or the expectation is no SQL condition. Its batch was not committed."""


_QUERY: Final = re.compile(r"\s*(?:select|with|values|insert|delete|update|where)\b(?!\s*[(.=<>!])", re.IGNORECASE)


def _condition_text(sql: str) -> str:
    if _QUERY.match(sql):
        raise ValueError("it must be a condition, such as `distance > 0`, and not a query")
    if not sql.strip():
        raise ValueError("it must be a condition, such as `distance > 0`")
    return check_balanced(sql)


class Expectation(BaseModel):
    """A condition that each row should meet, and the handling of rows that do not."""

    model_config = ConfigDict(extra="forbid")

    sql: Annotated[str, AfterValidator(_condition_text)] = Field(
        min_length=1,
        max_length=2000,
        description="A condition in Spark's SQL on the columns of a row, without subqueries. Null is not true",
        examples=["distance > 0"],
    )
    on_fail: Literal["warn", "drop", "fail"] = Field(
        description="A row of which it is not true is, by warn, counted and written; by drop, counted and left out; "
        "by fail, the run fails before the batch is committed"
    )


Expectations = dict[Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}$")], Expectation]

_FLAG: Final = "_rota_expect_"


def flagged(rows: "DataFrame", expected: Mapping[str, Expectation]) -> "DataFrame":
    """Add a column for each expectation that says whether the row meets it. Raises `ExpectationFailed`."""
    from pyspark.sql import functions as f

    conditions: dict[str, Column] = {}
    for name, each in expected.items():  # parse all expectations before Spark analyses the first one
        with _refused(name):
            conditions[name] = checked.condition(rows.sparkSession, each.sql)
    for name, condition in conditions.items():
        with _refused(name):
            rows = rows.withColumn(_FLAG + name, f.coalesce(condition.cast("boolean"), f.lit(False)))
            checked.check_rows(rows)
    return rows


@contextmanager
def _refused(name: str) -> Iterator[None]:
    """Raise `ExpectationFailed` if the SQL of the expectation `name` is not allowed, or is invalid for Spark."""
    from pyspark.errors import PySparkException

    try:
        with checked.not_too_deep():
            yield
    except SqlRefused as error:
        raise ExpectationFailed(f"expect.{name}: {error}") from None
    except PySparkException as error:
        raise ExpectationFailed(f"expect.{name}: {first_line(str(error))}") from None


def failed(name: str) -> "Column":
    """Return the condition that a flagged row does not meet the expectation `name`."""
    from pyspark.sql import functions as f

    return ~f.col(_FLAG + name)


def dropped(expected: Mapping[str, Expectation]) -> "Column":
    """Return the condition that a flagged row is left out."""
    from pyspark.sql import functions as f

    found: Column = f.lit(False)
    for name, each in expected.items():
        if each.on_fail == "drop":
            found = found | failed(name)
    return found


def without_flags(rows: "DataFrame", expected: Iterable[str]) -> "DataFrame":
    """Return the rows without the columns that `flagged` has added."""
    return rows.drop(*(_FLAG + name for name in expected))


def check_failed(counts: Mapping[str, int], expected: Mapping[str, Expectation]) -> None:
    """Raise `ExpectationFailed` for expectations with `on_fail: fail` that some rows of a batch do not meet. Pure."""
    broken = [name for name, each in expected.items() if each.on_fail == "fail" and counts.get(name)]
    if broken:
        said = "; ".join(f"{name} ({expected[name].sql}) is not true of {counts[name]} rows" for name in broken)
        raise ExpectationFailed(f"{said}: the batch was not committed")
