"""How a source finds new rows: the field `incremental` of the params of `etl`."""

from collections.abc import Mapping
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, model_validator

from spark_tasks.contracts.names import ColumnName


class Incremental(BaseModel):
    """How rows that are new since the last batch are found. Give one of `cursor`, `xmin`, `versions` and `files`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cursor: ColumnName | None = Field(
        default=None,
        description="postgres, sqlite, http: the column that grows with each insert and update, such as updated_at. "
        "Rows where it is null are not read",
    )
    lag_s: float = Field(
        default=60,
        ge=0,
        le=864_000,
        description="Rows whose cursor, and files whose last change, is younger than this wait for a later batch, in "
        "seconds. A row is lost only if its transaction commits more than `lag_s` after the time in its cursor; a file "
        "only if it comes into its folder more than `lag_s` after its last change. 0 for a cursor that is no time, "
        "which trusts that rows are committed in the order of the cursor",
    )
    xmin: bool = Field(
        default=False,
        description="postgres: find new and updated rows by the transactions that wrote them, as PostgreSQL's xmin "
        "says: no row is lost, however late it is committed, and none comes twice. Reads the whole table for each "
        "batch, and waits for the oldest open transaction that writes",
    )
    batch_rows: int | None = Field(
        default=None,
        ge=1,
        description="postgres, sqlite: about how many rows a batch has, by the cursor; null: all that is new. A run "
        "goes on until it has read what was new. The cursor needs an index",
    )
    parameter: str | None = Field(
        default=None,
        min_length=1,
        max_length=100,
        description="http: the query's parameter that takes the last batch's cursor, such as since; the API sends "
        "what is at or after it. null: it sends everything each time, and what is not new is left out",
    )
    versions: bool = Field(
        default=False,
        description="delta: the first batch has the rows of a version, and later ones what the versions after it bring",
    )
    batch_versions: int | None = Field(
        default=None, ge=1, description="delta: how many versions a batch has at most; null: all that are new"
    )

    files: bool = Field(
        default=False, description="files: read the files that were changed after those of the last batch"
    )

    @model_validator(mode="after")
    def _one_way(self) -> "Incremental":
        given = [name for name, value in self._ways().items() if value]
        if len(given) != 1:
            *most, last = (name if name == "cursor" else f"{name}: true" for name in self._ways())
            raise ValueError(f"give one of {', '.join(f'`{one}`' for one in most)} and `{last}`")
        for field, way in _NEEDS.items():
            if getattr(self, field) is not None and way != given[0]:
                raise ValueError(f"`{field}` needs `{way}`")
        return self

    def _ways(self) -> Mapping[str, bool]:
        given = {"xmin": self.xmin, "versions": self.versions, "files": self.files}
        return {"cursor": self.cursor is not None, **given}

    @property
    def way(self) -> str:
        """The name of the one field that is given: it says how new rows are found."""
        return next(name for name, given in self._ways().items() if given)


_NEEDS: Final[Mapping[str, str]] = {"batch_rows": "cursor", "parameter": "cursor", "batch_versions": "versions"}
"""The fields of `Incremental` that are valid only with another field, and the name of that field."""
