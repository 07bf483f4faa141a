"""The files that hold a table's rows at one version of its log, as a commit needs them to take some away.

deltalake encodes the paths that a commit names by itself. If another program has spelled a file's path in another way,
deltalake's entry does not name that file: a commit that should take it out of the table leaves it in.
"""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from deltalake import DeltaTable
from deltalake.transaction import RemoveAction

from spark_tasks.table.delta import TableUnfit
from spark_tasks.table.part import partition_text

if TYPE_CHECKING:
    import pyarrow as pa

_PLAIN: Final = "/!$&'()+,:;=@~"
"""The characters that deltalake does not encode, beside letters, digits, `-`, `.` and `_`."""


def spelled_path(spelled: str) -> str | None:
    """The path of a file that the log spells so; None if deltalake would spell it in another way.

    >>> spelled_path("at=05%253A00/part%200.parquet")
    'at=05%3A00/part 0.parquet'
    >>> spelled_path("at=ü/part-0.parquet"), spelled_path("at=%3D/part-0.parquet")
    (None, None)
    """
    path = unquote(spelled)
    return path if quote(path, safe=_PLAIN) == spelled else None


_READABLE: Final = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
"""The features of a table's protocol that change nothing about which rows its Parquet files hold."""


@dataclass(frozen=True)
class LiveFile:
    """A file with rows of the table."""

    #: The path in the table, as the log spells it.
    path: str
    #: The size.
    size_bytes: int
    #: The values of its partition columns, by column.
    partition: Mapping[str, Any]
    #: The lowest values of those columns of which it is known, by column.
    lowest: Mapping[str, Any]
    #: The highest values of those columns of which it is known, by column.
    highest: Mapping[str, Any]

    def remove(self) -> RemoveAction:
        """The entry of the log that takes the file away."""
        values = {name: partition_text(value) for name, value in self.partition.items()}
        return RemoveAction(self.path, True, time.time_ns() // 1_000_000, self.size_bytes, values)


def live_files(handle: DeltaTable, bounded: Collection[str] = ()) -> list[LiveFile]:
    """The files of the table at the version of `handle`, with the bounds of the columns `bounded`.

    Raises `TableUnfit` if a commit could not take one of them away.
    """
    import pyarrow as pa

    found = pa.table(handle.get_add_actions())
    by = handle.metadata().partition_columns
    # deltalake gives paths as the log spells them, and takes them as they are.
    paths, sizes = map(_path, found.column("path").to_pylist()), found.column("size_bytes").to_pylist()
    partitions = _values(found, "partition", by)
    lows, highs = _values(found, "min", bounded), _values(found, "max", bounded)
    return [
        LiveFile(path, size, partition, low, high)
        for path, size, partition, low, high in zip(paths, sizes, partitions, lows, highs, strict=True)
    ]


def _path(spelled: str) -> str:
    path = spelled_path(spelled)
    if path is None:
        raise TableUnfit(
            f"the table's log spells the path {spelled!r} in a way in which deltalake cannot take the file out of the "
            "table, so its rows would be there twice: have the program that wrote it write its rows anew"
        )
    return path


def _values(found: "pa.Table", struct: str, names: Collection[str]) -> list[dict[str, Any]]:
    """For each file, the values of those fields of a struct that are there and not null."""
    from pyarrow import compute

    values: list[dict[str, Any]] = [{} for _ in range(found.num_rows)]
    if struct not in found.column_names:
        return values
    kind = found.schema.field(struct).type
    there = {field.name for field in kind}
    for name in names:
        if name in there:
            column = compute.struct_field(found.column(struct), name).to_pylist()
            for one, value in zip(values, column, strict=True):
                one[name] = value
    return values


def row_changing_features(handle: DeltaTable) -> list[str]:
    """The features because of which a table's rows are not simply those of its files; empty if there are none."""
    protocol, settings = handle.protocol(), handle.metadata().configuration
    found = set(protocol.reader_features or ()) - _READABLE
    if settings.get("delta.columnMapping.mode", "none") != "none":
        found.add("columnMapping")
    return sorted(found)
