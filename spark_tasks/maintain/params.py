"""The params of the kind `maintain`: which table to maintain, and in which shape to keep it."""

from typing import TYPE_CHECKING, Final

from pydantic import Field, field_validator, model_validator

from spark_tasks.storage.stored import StoredTable

if TYPE_CHECKING:
    from typing import Self

KEEP_H: Final = 168
"""A week, in hours: for how long Delta by default keeps files that are no longer part of the table."""


class MaintainParams(StoredTable):
    """Which table to keep in shape, and how."""

    use = "destination"

    target_bytes: int = Field(
        default=128 << 20, ge=1 << 20, description="The size that data files should have, as they are stored"
    )
    min_files: int = Field(
        default=8,
        ge=2,
        description="Files of less than half the target size are merged once a partition has this many of them",
    )
    cluster_by: list[str] = Field(
        default=[],
        max_length=8,
        description="The columns by which rows are put near each other (Z-order), so that readers skip files. All rows "
        "of a partition are sorted anew once a fifth of its bytes came since the last time",
        examples=[["origin", "time_hour"]],
    )
    keep_h: int = Field(
        default=KEEP_H,
        ge=1,
        le=24 * 3660,
        description="How many hours files are kept that are not, or not yet, part of the table: more than the longest "
        "attempt that writes it and the longest query that reads it",
    )
    longest_attempt_h: float | None = Field(
        default=None,
        ge=0,
        description="The longest that an attempt or a query on this table takes, in hours. Required for a `keep_h` "
        f"of less than {KEEP_H}, which must be greater",
    )
    full: bool = Field(
        default=False,
        description="Whether files that the table's log does not name are removed as well: those of attempts that did "
        "not commit, and those that a checkpoint of the log has forgotten. Needs a list of all files",
    )
    memory_bytes: int = Field(
        default=512 << 20,
        ge=64 << 20,
        description="About the memory for the rows that are held at once. A sort puts the others into the scratch "
        "folder",
    )
    dry_run: bool = Field(default=False, description="Whether to change nothing, and only say what would be done")

    @field_validator("cluster_by")
    @classmethod
    def _each_once(cls, columns: list[str]) -> list[str]:
        if twice := sorted({name for name in columns if columns.count(name) > 1}):
            raise ValueError(f"names {', '.join(twice)} more than once")
        return columns

    @model_validator(mode="after")
    def _keeps_long_enough(self) -> "Self":
        if self.longest_attempt_h is None and self.keep_h < KEEP_H:
            raise ValueError(
                f"a `keep_h` of {self.keep_h}, less than {KEEP_H}, needs `longest_attempt_h`: the files of an attempt "
                "or a query that takes longer than `keep_h` would be removed while it works"
            )
        if self.longest_attempt_h is not None and self.keep_h <= self.longest_attempt_h:
            raise ValueError(
                f"`keep_h` is {self.keep_h}, and must be greater than `longest_attempt_h` ({self.longest_attempt_h:g})"
            )
        return self
