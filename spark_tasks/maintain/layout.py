"""Decides which files of a table are rewritten together, and how (pure).

A *bin* is a set of files of one partition whose rows are written into new files. The bins of a *group* are committed
together.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Literal

from spark_tasks.storage.packing import packed

UNCLUSTERED_SHARE: Final = 0.2
"""A partition is clustered again once files that are not clustered have more than this share of its bytes."""

PartitionTexts = tuple[str | None, ...]
"""The values of a table's partition columns as text, in the order of these columns."""


@dataclass(frozen=True)
class DataFile:
    """A file with rows of the table, as the log names it."""

    #: The path in the table.
    path: str
    #: The size.
    size_bytes: int
    #: The number of rows; None: the log does not say.
    rows: int | None = None
    #: The values of its partition columns, as text.
    partition: PartitionTexts = ()
    #: When it was written, in milliseconds since the epoch.
    modified_ms: int = 0
    #: Whether deltalake can remove the file from the table. Other files stay as they are.
    movable: bool = True


@dataclass(frozen=True)
class Bin:
    """Files of one partition that are rewritten: `compact` merges them, `cluster` sorts their rows."""

    how: Literal["compact", "cluster"]
    files: tuple[DataFile, ...]

    @property
    def partition(self) -> PartitionTexts:
        """The partition of its files."""
        return self.files[0].partition

    @property
    def size_bytes(self) -> int:
        """The size of its files."""
        return sum(file.size_bytes for file in self.files)


def cluster_mark(columns: Sequence[str]) -> str:
    """Return the mark in the name of a file whose rows were sorted by these columns.

    >>> cluster_mark(["origin", "at"]) != cluster_mark(["at", "origin"])
    True
    """
    return "by-" + blake2b(json.dumps(list(columns)).encode(), digest_size=6).hexdigest()


def bins(files: Iterable[DataFile], mark: str | None, target_bytes: int, min_files: int) -> list[Bin]:
    """Group these files into bins. A file that is in shape is in no bin, and no file is in two bins.

    `mark` is in the names of files that are clustered already; None if the table is not to be clustered.

    >>> [bin.size_bytes for bin in bins([DataFile("a", 100), DataFile("b", 10), DataFile("c", 10)], None, 100, 2)]
    [20]
    >>> bins([DataFile("a-by-x.parquet", 100), DataFile("b", 10)], "by-x", 100, 2)
    []
    >>> [bin.how for bin in bins([DataFile("a-by-x.parquet", 100), DataFile("b", 50)], "by-x", 100, 2)]
    ['cluster']
    """
    partitions: dict[PartitionTexts, list[DataFile]] = {}
    for file in files:
        if file.movable:
            partitions.setdefault(file.partition, []).append(file)
    found: list[Bin] = []
    for partition in sorted(partitions, key=str):
        found += _bins_of(partitions[partition], mark, target_bytes, min_files)
    return found


def _bins_of(files: Sequence[DataFile], mark: str | None, target_bytes: int, min_files: int) -> Iterator[Bin]:
    if mark is not None:
        outside = sum(file.size_bytes for file in files if mark not in file.path.rpartition("/")[2])
        if outside > UNCLUSTERED_SHARE * sum(file.size_bytes for file in files):
            yield Bin("cluster", tuple(files))
            return
    small = [file for file in files if file.size_bytes < target_bytes / 2]
    if len(small) < min_files:
        return
    # Files that were written one after another often have similar rows.
    small.sort(key=lambda file: (file.modified_ms, file.path))
    for some in packed(small, target_bytes):
        if len(some) > 1:
            yield Bin("compact", some)


def groups(found: Iterable[Bin], target_bytes: int) -> Iterator[tuple[Bin, ...]]:
    """Form groups of about the target size, or of one larger bin, so that a thousand small partitions need
    few commits.
    """
    return packed(found, target_bytes)
