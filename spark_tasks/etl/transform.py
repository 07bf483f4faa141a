"""The transform of a source's rows: Spark SQL, or a Python function from an entry point."""

import re
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, model_validator

from spark_tasks.sql import checked
from spark_tasks.sql.judging import SqlRefused
from spark_tasks.sql.lexing import check_balanced
from tasks.kind import Unretryable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_BEGINS: Final = re.compile(
    r"(?:[\s(]|--[^\n]*(?:\n|$)|/\*(?:(?!/\*|\*/).)*\*/)*+(?:(?:select|with|from|values|table)\b|/\*)",
    re.IGNORECASE | re.DOTALL,
)
"""Matches the beginning of a query after its comments. Also matches a nested comment, so that Spark's parser checks the
query.
"""


def check_query_text(sql: str) -> str:
    r"""Return `sql` unchanged if it begins as a query does. Raises `ValueError` if it does not.

    >>> check_query_text("-- by day\nWITH a AS (SELECT 1) SELECT * FROM a")[:10]
    '-- by day\n'
    >>> check_query_text("SELEC * FROM source")
    Traceback (most recent call last):
    ValueError: it must be a query, which begins with SELECT, WITH, FROM, VALUES or TABLE
    """
    if _BEGINS.match(sql) is None:
        raise ValueError("it must be a query, which begins with SELECT, WITH, FROM, VALUES or TABLE")
    return check_balanced(sql)


SOURCE: Final = "source"
"""The name of the view with the source's rows."""

_VIEW: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


def _view_name(text: str) -> str:
    if not _VIEW.fullmatch(text) or text.lower() == SOURCE:
        raise ValueError(f"{text!r} cannot name a view: letters, digits and '_', and not {SOURCE!r}")
    return text


ViewName = Annotated[str, AfterValidator(_view_name)]


class Transform(BaseModel):
    """How the rows to write are made. Give `sql` or `function`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sql: Annotated[str, AfterValidator(check_query_text)] | None = Field(
        default=None,
        min_length=1,
        max_length=50_000,
        description="A query in Spark SQL over the view `source` and the views of the lookups",
        examples=["SELECT carrier, count(*) AS flights FROM source GROUP BY carrier"],
    )
    function: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="The name of an entry point in the group `rota.transforms`: a function that is called with the "
        "source's DataFrame, a mapping of the lookups' DataFrames and `args`, and returns a DataFrame",
    )
    args: dict[str, JsonValue] = Field(default={}, description="What the function is given as `args`")

    @model_validator(mode="after")
    def _one_of_both(self) -> "Transform":
        if (self.sql is None) == (self.function is None):
            raise ValueError("give either `sql` or `function`")
        if self.args and self.function is None:
            raise ValueError("`args` are for a `function`")
        return self


GROUP: Final = "rota.transforms"
"""The entry-point group of transform functions."""


_ADVICE: Final = re.compile(r" Verify the spelling .* IF EXISTS\.| SQLSTATE: \w{5}")
"""The parts of Spark's message to leave out: advice on its catalog, which no transform has, and a code."""


class TransformUnfit(Unretryable):
    """The transform cannot be carried out, because of its SQL, its function, or a column that it names."""


def transformed(how: Transform | None, source: "DataFrame", lookups: Mapping[str, "DataFrame"]) -> "DataFrame":
    """Return the rows to write, without reading any yet. Raises `TransformUnfit`, and the function's errors."""
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
    """Raise `TransformUnfit` if two columns have the same name. Names that differ in case only are left to the sink."""
    if twice := [column for column in columns if columns.count(column) > 1]:
        raise TransformUnfit(f"transform.sql gives two columns the name {twice[0]!r}: rename one by AS")


def _function(named: str) -> Any:
    for entry in entry_points(group=GROUP):
        if entry.name == named:
            return entry.load()
    there = ", ".join(sorted(entry.name for entry in entry_points(group=GROUP))) or "none"
    raise TransformUnfit(f"this member has no function {named!r} in the entry-point group {GROUP}; it has {there}")
