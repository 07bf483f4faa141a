"""Decides which parts of the archived log no backup needs any more, and removes them."""

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from tasks.backup.manifest import Manifest, survey
from tasks.places.place import Place
from tasks.postgres.wal_position import WalPosition
from tasks.wal.archive import ArchiveAway
from tasks.wal.pages import KeptRange
from tasks.wal.writer import ArchiveWriter, Ask, at_once


class NeededLog(NamedTuple):
    """The log that backups need: all from a position on, and ranges before it."""

    start: WalPosition
    kept: tuple[KeptRange, ...] = ()


def needed_log(backups: Sequence[Manifest], system: str, days: int | None, now: datetime) -> NeededLog | None:
    """Return the log that the physical backups of a system need; None: there is no such backup.

    With `days`, every moment of so many days before `now` can be restored; backups from before that need their own
    range only.
    """
    physical = [(each.finished, each.wal) for each in backups if each.wal is not None and each.wal.system == system]
    if not physical:
        return None
    physical.sort(key=lambda pair: pair[0])
    first = 0
    if days is not None:
        first = max((n for n, (at, _) in enumerate(physical) if at <= now - timedelta(days=days)), default=0)
    start = min(WalPosition(wal.timeline, wal.start) for _, wal in physical[first:])
    kept = (KeptRange(timeline=wal.timeline, start=wal.start, end=wal.end) for _, wal in physical[:first])
    return NeededLog(start, tuple(kept))


def remove_unneeded(
    writer: ArchiveWriter,
    backups: Place | None,
    system: str,
    log: logging.Logger,
    days: int | None,
    now: datetime,
    ask: Ask = at_once,
) -> None:
    """Remove log that no physical backup at `backups` needs at `now` (`needed_log`), and objects that no page names.

    No log is removed without `backups`, if there is no physical backup, or if a manifest cannot be read. Errors of the
    storage are only logged, so that archiving continues. `ask` is as in `ArchiveWriter.remove_before`. Raises `Fenced`.
    """
    needed = None if backups is None else _needed(backups, system, log, days, now)
    try:
        removed = writer.remove_before(*needed, ask) if needed is not None else 0
        swept = writer.sweep(ask)
    except ArchiveAway as error:
        log.warning("old log could not be removed: %s", error)
        return
    if removed or swept:
        log.info("removed %d objects that no backup needs, and %d that did not count", removed, swept)


def _needed(backups: Place, system: str, log: logging.Logger, days: int | None, now: datetime) -> NeededLog | None:
    """Return the log that backups need; None: there is no backup, or a manifest cannot be read."""
    try:
        found = survey(backups)
    except Exception as error:  # noqa: BLE001  storage libraries raise any exception
        log.warning("the backups at %s cannot be read, so no log is removed: %s", backups.url, error)
        return None
    if found.unreadable:
        log.warning("no log is removed, because a backup may need it: %s", found.unreadable[0])
        return None
    return needed_log(found.complete, system, days, now)
