"""The files that hold a table's rows at one version of its log, as needed for a commit that removes some of them.

deltalake itself encodes the paths in a commit. If another program has encoded a file's path in another way, deltalake's
entry does not match it, and the commit does not remove the file from the table.
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
    """Decode a file's path from the log. Returns None if deltalake would encode the path in another way.

    >>> spelled_path("at=05%253A00/part%200.parquet")
    'at=05%3A00/part 0.parquet'
    >>> spelled_path("at=ü/part-0.parquet"), spelled_path("at=%3D/part-0.parquet")
    (None, None)
    """
    path = unquote(spelled)
    return path if quote(path, safe=_PLAIN) == spelled else None


_READABLE: Final = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
"""The features of a table's protocol with which its rows are still exactly those in its Parquet files."""


@dataclass(frozen=True)
class LiveFile:
    """A file with rows of the table."""

    #: The path in the table, decoded.
    path: str
    #: The size.
    size_bytes: int
    #: The values of its partition columns, by column.
    partition: Mapping[str, Any]
    #: The lowest value of each column in `bounded`, by column; None or absent if it is unknown.
    lowest: Mapping[str, Any]
    #: The highest value of each column in `bounded`, by column; None or absent if it is unknown.
    highest: Mapping[str, Any]

    def remove(self) -> RemoveAction:
        """Return the log entry that removes the file."""
        values = {name: partition_text(value) for name, value in self.partition.items()}
        return RemoveAction(self.path, True, time.time_ns() // 1_000_000, self.size_bytes, values)


def live_files(handle: DeltaTable, bounded: Collection[str] = ()) -> list[LiveFile]:
    """Return the files of the table at the version of `handle`, with the least and greatest values of the columns
    `bounded`.

    Raises `TableUnfit` if a commit could not remove one of them.
    """
    import pyarrow as pa

    found = pa.table(handle.get_add_actions())
    by = handle.metadata().partition_columns
    # deltalake returns paths as the log encodes them, but expects decoded paths in a commit.
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
    """Return, for each file, the values of the fields `names` of the column `struct`, without fields that `struct`
    lacks.
    """
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
    """Return the features, such as deletion vectors, with which the table's rows differ from those in its files."""
    protocol, settings = handle.protocol(), handle.metadata().configuration
    found = set(protocol.reader_features or ()) - _READABLE
    if settings.get("delta.columnMapping.mode", "none") != "none":
        found.add("columnMapping")
    return sorted(found)
