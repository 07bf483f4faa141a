"""A Parquet file of a batch, as it is named to the table's log."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Part:
    """A Parquet file: its path in the table, and what the log says of it.

    `stats` are Delta's, as JSON. `partition_values` are the texts of the partition columns, which the file does not
    hold.
    """

    path: str
    size_bytes: int
    modified_ms: int
    rows: int
    stats: str
    partition_values: Mapping[str, str | None] = field(default_factory=dict)


def part_from(value: Mapping[str, Any]) -> Part:
    """The part from which `dataclasses.asdict` made `value`, which has been through JSON."""
    return Part(**value)
