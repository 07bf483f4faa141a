"""What a task expects of each row, and what becomes of rows that are otherwise."""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from spark_tasks.files.faults import first_line
from tasks.errors import Unretryable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_FORBIDDEN: Final = re.compile(r"\b(select|table|reflect|java_method|try_reflect)\b", re.IGNORECASE)
"""Words of SQL that reach beyond a row: to other tables and files, and into Spark itself."""


class ExpectationFailed(Unretryable):
    """A row is not as the task expects, or the expectation is no SQL about the columns. Its batch was not committed."""


def _check_sql(sql: str) -> str:
    if found := _FORBIDDEN.search(sql):
        raise ValueError(f"it may not contain the word {found[0]!r}: it is about the columns of one row")
    return sql


class Expectation(BaseModel):
    """What is true of each row, and what becomes of a row of which it is not."""

    model_config = ConfigDict(extra="forbid")

    sql: Annotated[str, AfterValidator(_check_sql)] = Field(
        min_length=1,
        max_length=2000,
        description="A condition in Spark's SQL on the columns of a row. Null is not true",
        examples=["distance > 0"],
    )
    on_fail: Literal["warn", "drop", "fail"] = Field(
        description="A row of which it is not true is, by warn, counted and written; by drop, counted and left out; "
        "by fail, the run fails before the batch is committed"
    )


Expectations = dict[Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}$")], Expectation]

_FLAG: Final = "_rota_expect_"


def flagged(rows: "DataFrame", expected: Mapping[str, Expectation]) -> "DataFrame":
    """The rows, with a column for each expectation that says whether it is true. Raises `ExpectationFailed`."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as f

    for name, each in expected.items():
        try:
            rows = rows.withColumn(_FLAG + name, f.coalesce(f.expr(each.sql).cast("boolean"), f.lit(False)))
        except PySparkException as error:
            raise ExpectationFailed(f"expect.{name}: {first_line(str(error))}") from None
    return rows


def failed(name: str) -> "Column":
    """Whether the expectation `name` is not true of a flagged row."""
    from pyspark.sql import functions as f

    return ~f.col(_FLAG + name)


def dropped(expected: Mapping[str, Expectation]) -> "Column":
    """Whether a flagged row is to be left out."""
    from pyspark.sql import functions as f

    found: Column = f.lit(False)
    for name, each in expected.items():
        if each.on_fail == "drop":
            found = found | failed(name)
    return found


def without_flags(rows: "DataFrame", expected: Iterable[str]) -> "DataFrame":
    """The rows without the columns that `flagged` has added."""
    return rows.drop(*(_FLAG + name for name in expected))


def check_failed(counts: Mapping[str, int], expected: Mapping[str, Expectation]) -> None:
    """Raise `ExpectationFailed` for expectations with `on_fail: fail` that some rows of a batch do not meet. Pure."""
    broken = [name for name, each in expected.items() if each.on_fail == "fail" and counts.get(name)]
    if broken:
        said = "; ".join(f"{name} ({expected[name].sql}) is not true of {counts[name]} rows" for name in broken)
        raise ExpectationFailed(f"{said}: the batch was not committed")
