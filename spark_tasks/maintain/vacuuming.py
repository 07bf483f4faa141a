"""Removes files that have not been part of a table for long enough.

deltalake decides which files: a file that was removed from the table longer than `keep_h` ago, and with `full` also a
file that the log does not name and that was written longer than `keep_h` ago. The files of a running attempt are
younger than that. Files and folders whose names begin with `_`, such as Delta's log and the ledger, are left alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import unquote

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from spark_tasks.maintain.errors import KeepTooShort
from spark_tasks.maintain.table import FOLDER, MaintainedTable
from spark_tasks.storage.errors import store_errors
from spark_tasks.table.delta import LOG, TableUnfit
from spark_tasks.table.ledger import mark_named

STATED: Final = "delta.deletedFileRetentionDuration"
"""The table property that says how long files are kept."""


@dataclass(frozen=True)
class RemovedFiles:
    """The number and size of the files that were, or would be, removed."""

    files: int = 0
    size_bytes: int = 0


def vacuum(table: MaintainedTable, token: int, keep_h: int, *, full: bool, dry_run: bool) -> RemovedFiles:
    """Remove the files; with `dry_run` only count them. Raises `KeepTooShort`, `TableInUse` and `TableUnfit`.

    An attempt that was paused for longer than `keep_h` might still commit such files. So the attempt with this token
    first becomes the holder of the table, after which the rewrites of every other attempt are refused.
    """
    found = _removable(table, table.handle(), keep_h, full=full)
    if not found or dry_run:
        return _sum(found)
    table.hold(token)
    handle = table.handle()
    table.check_held(handle, token)
    found = _removable(table, handle, keep_h, full=full)
    _vacuumed(table, handle, keep_h, full=full, dry_run=False)
    _remove_empty(table, list(found))
    table.sync_log()
    return _sum(found)


def _sum(found: Mapping[str, int]) -> RemovedFiles:
    return RemovedFiles(len(found), sum(found.values()))


def _removable(table: MaintainedTable, handle: DeltaTable, keep_h: int, *, full: bool) -> dict[str, int]:
    """Return the sizes of the files that deltalake would remove, by their paths in the table."""
    names = _vacuumed(table, handle, keep_h, full=full, dry_run=True)
    if not names:
        return {}
    _check_inside(table, names)
    live = {file.path for file in table.data_files(handle)}
    if hit := sorted(live & {*names, *map(unquote, names)}):
        raise TableUnfit(f"deltalake would remove {hit[0]} of {table.shown}, which is part of the table")
    sizes = _sizes(table)
    return {name: sizes[name] for name in names if name in sizes}  # deltalake also names files that no longer exist


def _vacuumed(table: MaintainedTable, handle: DeltaTable, keep_h: int, *, full: bool, dry_run: bool) -> list[str]:
    stated = handle.metadata().configuration.get(STATED)
    try:
        with store_errors(table.place):
            # deltalake assumes a week if the table has no such property.
            return handle.vacuum(keep_h, dry_run=dry_run, full=full, enforce_retention_duration=stated is not None)
    except DeltaError as error:
        if "retention" in str(error).lower() and stated is not None:
            raise KeepTooShort(
                f"{table.shown} has the property {STATED} = {stated}, and the task's `keep_h` is {keep_h}: give it at "
                "least as many hours"
            ) from None
        raise


def _check_inside(table: MaintainedTable, names: Sequence[str]) -> None:
    """Raise `TableUnfit` if a file to be removed is no data file, or is outside the table by way of a symlink."""
    hidden = [name for name in names if name.startswith((f"{LOG}/", "_rota/"))]
    if hidden:
        raise TableUnfit(f"deltalake would remove {hidden[0]} of {table.shown}, which is not a data file")
    if table.place.is_local:
        root = Path(table.place.path).resolve()
        for folder in sorted({(root / name).parent for name in names}):
            if not folder.resolve().is_relative_to(root):
                raise TableUnfit(f"{folder} is, or is behind, a link that leads out of the table: remove the link")


def _sizes(table: MaintainedTable) -> Mapping[str, int]:
    """Return the sizes of all files of the table, by their paths in it."""
    place = table.place
    with store_errors(place):
        found = place.files.find(place.path, detail=True)
    root = place.path.rstrip("/") + "/"
    return {path.removeprefix(root): int(about["size"] or 0) for path, about in found.items()}


def _remove_empty(table: MaintainedTable, removed: Sequence[str]) -> None:
    """Remove folders of batches that have become empty. A running ingest may list them, but writes only into new
    folders.
    """
    if not table.place.is_local:
        return
    root = Path(table.place.path)
    for name in removed:
        for folder in batch_folders(name):
            try:
                (root / folder).rmdir()
            except OSError:
                break  # it is not empty, or was removed already


def batch_folders(name: str) -> list[str]:
    """Return the folder of the batch or maintenance that wrote the file `name`, and the folders between it and the
    file.

    The innermost is the first.

    >>> batch_folders("flights/00000007-42/year=2013/part-0.parquet")
    ['flights/00000007-42/year=2013', 'flights/00000007-42']
    >>> batch_folders("flights/00000007-42.widened/part-0.parquet"), batch_folders("year=2013/part-0.parquet")
    (['flights/00000007-42.widened'], [])
    >>> batch_folders("tidy/maintain-7-ab/bin-00001-00000.snappy.parquet")
    ['tidy/maintain-7-ab']
    """
    folders = [each for each in PurePosixPath(name).parents if len(each.parts) >= 2]
    if not folders:
        return []
    own = folders[-1].parts[1]
    if not own.startswith(FOLDER) and mark_named(own.partition(".")[0]) is None:
        return []
    return [each.as_posix() for each in folders]
