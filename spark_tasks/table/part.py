"""A Parquet file of a batch, as the table's log records it, and the folders into which such files are written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any, Final, Protocol

from tasks.places.place import Place

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from spark_tasks.table.ledger import Mark


@dataclass(frozen=True)
class Part:
    """A Parquet file, as the table's log records it."""

    #: The path in the table.
    path: str
    #: The size.
    size_bytes: int
    #: When it was written, in milliseconds since the epoch.
    modified_ms: int
    #: The number of rows.
    rows: int
    #: Delta's statistics, as JSON.
    stats: str
    #: The texts of the partition columns, which the file does not hold, by column.
    partition_values: Mapping[str, str | None] = field(default_factory=dict)


PartitionTexts = tuple[tuple[str, str | None], ...]
"""The columns by which a file is partitioned, and the texts of their values."""


PLAIN_PARTITIONS: Final = ("tinyint", "smallint", "int", "bigint", "string", "date", "boolean")
"""The types of partition columns whose values all writers write as the same text."""


def odd_partitions(columns: "StructType", by: Sequence[str]) -> list[str]:
    """Return the columns of `by` whose type `partition_text` does not accept, each with its type."""
    kinds = {name: columns[name].dataType for name in by}
    return [
        f"{name}, which is {kind.simpleString()}"
        for name, kind in kinds.items()
        if kind.simpleString() not in PLAIN_PARTITIONS
    ]


def partition_text(value: Any) -> str | None:
    """Return the text of a partition's value in the log. Raises `TypeError` for a type that writers write differently.

    >>> partition_text(True), partition_text(date(2026, 1, 5)), partition_text("a b")
    ('true', '2026-01-05', 'a b')
    >>> partition_text(None), partition_text("")  # Delta knows no empty text here
    (None, None)
    >>> partition_text(0.5)
    Traceback (most recent call last):
    TypeError: a partition's value must be text, an integer, a date or a boolean, and is 0.5
    """
    match value:
        case None | str():
            return value or None
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case date() if type(value) is date:
            return value.isoformat()
    raise TypeError(f"a partition's value must be text, an integer, a date or a boolean, and is {value!r}")


def part_from(value: Mapping[str, Any]) -> Part:
    """Return the part from its JSON value, which `dataclasses.asdict` made."""
    return Part(**value)


class PartsFolder(Protocol):
    """Where the rows of batches are written: folders in `place`."""

    @property
    def place(self) -> Place:
        """The place to which the paths of parts are relative."""

    def parquet_folder(self, mark: "Mark") -> str:
        """Return the folder for the files of the batch and attempt that `mark` names."""

    def partitioned_by(self) -> list[str]:
        """Return the partition columns. Rows with different values are written to different folders."""


@dataclass(frozen=True)
class PlainFolder:
    """The folder `name` in `place`, for one batch that is not partitioned."""

    place: Place
    name: str

    def parquet_folder(self, mark: "Mark") -> str:
        """Return the folder, the same for every batch (`PartsFolder`)."""
        return self.name

    def partitioned_by(self) -> list[str]:
        """Return no columns (`PartsFolder`)."""
        return []
