"""Decides which parts of the archived log no backup needs any more, and removes them."""

import logging
from collections.abc import Sequence

from tasks.backup.manifest import Manifest, survey
from tasks.places.place import Place
from tasks.postgres.wal_position import WalPosition
from tasks.wal.archive import ArchiveAway, ArchiveWriter


def needed_from(backups: Sequence[Manifest], system: str) -> WalPosition | None:
    """Return the position from which the physical backups of a system need the log; None: there is no such backup."""
    needed = [backup.wal for backup in backups if backup.wal is not None and backup.wal.system == system]
    return min((WalPosition(one.timeline, one.start) for one in needed), default=None)


def remove_unneeded(writer: ArchiveWriter, backups: Place | None, system: str, log: logging.Logger) -> None:
    """Remove log that is older than the oldest physical backup at `backups`, and objects that no page names.

    No log is removed without `backups`, if there is no physical backup, or if a manifest cannot be read. Errors of the
    storage are only logged, so that archiving continues. Raises `Fenced`.
    """
    start = None if backups is None else _oldest(backups, system, log)
    try:
        removed = writer.remove_before(start) if start is not None else 0
        swept = writer.sweep()
    except ArchiveAway as error:
        log.warning("old log could not be removed: %s", error)
        return
    if removed or swept:
        log.info("removed %d objects from before the oldest backup, and %d that did not count", removed, swept)


def _oldest(backups: Place, system: str, log: logging.Logger) -> WalPosition | None:
    """Return the position from which backups need the log; None: there is no backup, or a manifest cannot be read."""
    try:
        found = survey(backups)
    except Exception as error:  # noqa: BLE001  storage libraries raise any exception
        log.warning("the backups at %s cannot be read, so no log is removed: %s", backups.url, error)
        return None
    if found.unreadable:
        log.warning("no log is removed, because a backup may need it: %s", found.unreadable[0])
        return None
    return needed_from(found.complete, system)
