"""Parses the changes in a version of a Delta table from the version's entry in the table's log (pure).

An entry has one action in each line. Files that are added or removed with `dataChange: false` hold the same rows as
before, as after a compaction. If the change data feed is on, a version that updated or deleted rows names change files
(`cdc`), and only these files contain its changes. If a version names no change files, the rows of its added files were
inserted, and the rows of its removed files were deleted.

Source: the Delta protocol, sections "Actions" and "Add CDC File".
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

from spark_tasks.contracts.source import SourceUnfit

FEED: Final = "delta.enableChangeDataFeed"
MAPPING: Final = "delta.columnMapping.mode"

READER_VERSION_MAX: Final = 3
READER_FEATURES: Final = frozenset({"timestampNtz", "vacuumProtocolCheck", "v2Checkpoint"})
"""The protocol features that deltalake handles, so that a reader of the plain Parquet files may ignore them."""

INSERTED: Final = "insert"
DELETED: Final = "delete"
BEFORE_UPDATE: Final = "update_preimage"
"""Types of changes, as the change data feed names them. Rows of all other types show the state after the change."""


@dataclass(frozen=True)
class TableFile:
    """A Parquet file of a table: its path in the table, and the values of the columns that it does not hold.

    A value that is text is spelled as in Delta's log; other values have the column's type.
    """

    path: str
    size_bytes: int
    partition: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class VersionEntry:
    """One version of a table, from its entry in the log."""

    #: The number of the version.
    version: int
    #: The files of the change data feed (`cdc`).
    changes: tuple[TableFile, ...] = ()
    #: The added files that change the table's rows.
    added: tuple[TableFile, ...] = ()
    #: The removed files that change the table's rows.
    removed: tuple[TableFile, ...] = ()
    #: Whether the change data feed is on from this version on; None: as before.
    feed: bool | None = None


@dataclass(frozen=True)
class ChangedRows:
    """A file whose rows a version changed. `change` is the type of all its changes; None: each row has its own type."""

    file: TableFile
    version: int
    change: str | None


def feed_is_on(configuration: Mapping[str, Any]) -> bool:
    """Whether a table with these properties writes its change data feed."""
    return str(configuration.get(FEED, "")).lower() == "true"


def entry(version: int, text: bytes, shown: str) -> VersionEntry:
    """Parse the log entry of that version of the table `shown`. Raises `SourceUnfit` if it cannot be read."""
    files: dict[str, list[TableFile]] = {"cdc": [], "add": [], "remove": []}
    feed = None
    try:
        for action in (json.loads(line) for line in text.splitlines() if line.strip()):
            if "metaData" in action:
                feed = feed_is_on(action["metaData"].get("configuration") or {})
            for kind, some in files.items():
                about = action.get(kind)
                if about is not None and (kind == "cdc" or about.get("dataChange", True)):
                    some.append(_file(about))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceUnfit(f"{shown}: version {version} of the log cannot be read: {error}") from None
    return VersionEntry(version, tuple(files["cdc"]), tuple(files["add"]), tuple(files["remove"]), feed)


def _file(about: Mapping[str, Any]) -> TableFile:
    if about.get("deletionVector"):
        raise ValueError(f"{about['path']} has a deletion vector")
    return TableFile(
        path_in_table(unquote(about["path"])), int(about.get("size") or 0), about.get("partitionValues") or {}
    )


def path_in_table(path: str) -> str:
    """Return the path of a file in its table. Raises `ValueError` for a path outside the table, as in a shallow clone.

    >>> path_in_table("year=2013/part-0.parquet")
    'year=2013/part-0.parquet'
    """
    if "://" in path or path.startswith(("/", "file:")) or ".." in path.split("/") or "\0" in path:
        raise ValueError(f"{path} is not in the table's own folder, as in a shallow clone: copy the table")
    return path


def changed(
    entries: Iterable[VersionEntry], feed: bool, *, read_feed: bool, skip: bool, shown: str
) -> list[ChangedRows]:
    """Return the files with the rows that the versions changed, in the order of the versions.

    `feed` says whether the change data feed is on before the first version. With `read_feed` all changes are returned,
    else only appended rows. If the changes of a version cannot be determined, `skip` leaves the version out; without
    `skip`, `SourceUnfit` is raised.
    """
    found: list[ChangedRows] = []
    for each in entries:
        feed = each.feed if each.feed is not None else feed
        if each.changes and read_feed:
            found += [ChangedRows(file, each.version, None) for file in each.changes]
        elif not each.removed or (read_feed and feed):
            found += [ChangedRows(file, each.version, DELETED) for file in each.removed]
            found += [ChangedRows(file, each.version, INSERTED) for file in each.added]
        elif not skip:
            raise SourceUnfit(_rewritten(each.version, shown, read_feed=read_feed))
    return found


def _rewritten(version: int, shown: str, *, read_feed: bool) -> str:
    ways = "set `on_rewrite: skip`, which leaves out all that this version did, or start anew with another task name"
    if read_feed:
        return f"{shown}: version {version} updated or deleted rows while `{FEED}` was not true: {ways}"
    return (
        f"{shown}: version {version} updated or deleted rows: give `tombstone`, for which `{FEED}` must be true, {ways}"
    )


def feed_after(entries: Sequence[VersionEntry], feed: bool) -> bool:
    """Whether the change data feed is on after these versions."""
    said = [each.feed for each in entries if each.feed is not None]
    return said[-1] if said else feed


def why_not_plain(reader_version: int, reader_features: Iterable[str], configuration: Mapping[str, Any]) -> str | None:
    """Return the reason why a table cannot be read as plain Parquet files; None if it can.

    >>> why_not_plain(1, [], {})
    >>> why_not_plain(3, ["deletionVectors"], {})  # doctest: +ELLIPSIS
    'it has deletion vectors, ...
    """
    features = set(reader_features)
    if "deletionVectors" in features:
        return (
            "it has deletion vectors, which this source does not read: set `delta.enableDeletionVectors` to false, "
            "purge the table (REORG TABLE ... APPLY (PURGE)) and drop the feature deletionVectors"
        )
    if "columnMapping" in features or str(configuration.get(MAPPING, "none")) != "none":
        return (
            "it maps columns to other names in its files (columnMapping), which this source does not read: write the "
            "table anew without `delta.columnMapping.mode`"
        )
    if reader_version > READER_VERSION_MAX:
        return f"it needs a reader of version {reader_version}, and this source is one of version {READER_VERSION_MAX}"
    if more := sorted(features - READER_FEATURES):
        return f"it has {', '.join(more)}, which this source does not read"
    return None
