"""The params of a transform."""

import re
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, model_validator

from spark_tasks.transform.query import check_query_text

SOURCE: Final = "source"
"""The view of the source's rows."""

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
