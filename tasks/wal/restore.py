"""Restores a server to a moment, from a physical backup and the archived log that follows it."""

import os
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tasks.backup.encryption import BackupKeys
from tasks.backup.manifest import Manifest, NoBackup, WalRange
from tasks.backup.restore import Restored, restore_manifest
from tasks.backup.sources.source import RestoreTarget
from tasks.places.place import Place
from tasks.postgres.wal_position import Fork, WalPosition, lsn_text, segment_start
from tasks.wal.archive import archived_ancestors, read_archive
from tasks.wal.counted import Counted
from tasks.wal.fetch import server_commands
from tasks.wal.reader import write_config

CONFIG: Final = "rota_wal.json"
"""The name of the restore_command's config in the data folder. The server removes it when it has recovered."""


class NotRestorable(Exception):
    """The backups and the archived log do not reach the requested moment."""


@dataclass(frozen=True, kw_only=True)
class Moment:
    """The moment to restore to: a time, or an LSN. If neither is given: the latest moment.

    `timeline`: the timeline to follow; None: that of the archive's end.
    """

    time: datetime | None = None
    lsn: int | None = None
    timeline: int | None = None

    def __str__(self) -> str:
        named = "the latest moment" if self.lsn is None else lsn_text(self.lsn)
        if self.time is not None:
            named = f"{self.time:%Y-%m-%d %H:%M:%S.%f%z}"
        return named if self.timeline is None else f"{named} of timeline {self.timeline}"

    def is_after(self, backup: Manifest, needed: WalRange) -> bool:
        """Whether recovery from `backup` can reach this moment, which must not be before the end of the backup."""
        if self.time is not None:
            return self.time >= backup.finished
        return self.lsn is None or self.lsn >= needed.end


@dataclass(frozen=True, kw_only=True)
class RestoredServer:
    """A data folder that `pg_ctl start` recovers."""

    #: The backup that it begins with.
    manifest: Manifest
    #: The path of the data folder.
    target: str
    #: The position up to which the log is archived, as text.
    archived: str
    #: When that was archived, by the clock of the member that did it; None: not recorded.
    archived_at: datetime | None
    #: How long the restore took.
    seconds: float


def choose_base(
    backups: Sequence[Manifest], counted: Counted, system: str, moment: Moment, forks: Sequence[Fork] = ()
) -> Manifest:
    """Return the newest physical backup from which the archived log leads to `moment`. Raises `NotRestorable`.

    `forks` are the ancestors of the timeline that the moment is on.
    """
    newest = archived_end(counted, moment)
    physical = [(backup, backup.wal) for backup in backups if backup.wal is not None]
    if not physical:
        raise NotRestorable("there is no physical backup: make one with a source of type postgres_physical")
    why = []
    for backup, needed in sorted(physical, key=lambda pair: pair[1].end, reverse=True):
        reached = newest
        if moment.timeline is None:  # the backup may be of a timeline that comes yet
            reached = max(newest, WalPosition(needed.timeline, 0))
        if needed.system != system:
            why.append(f"{backup.url} is of the system {needed.system}, and the log of {system}")
        elif not moment.is_after(backup, needed):
            why.append(f"{backup.url} was finished after it, at {backup.finished:%Y-%m-%d %H:%M:%S%z}")
        elif left := _left(reached.timeline, needed, forks):
            why.append(f"{backup.url} {left}")
        elif gaps := _gaps(counted, reached, needed, moment, forks):
            why.append(f"{backup.url}: the archive lacks {gaps}")
        else:
            return backup
    if moment.time is not None and any("the archive lacks" in each for each in why):
        why.append("a moment before what is lacking can be restored with --to-lsn")
    raise NotRestorable(f"{moment} cannot be restored: {'; '.join(why)}")


def archived_end(counted: Counted, moment: Moment) -> WalPosition:
    """Return the end of the archived log on the timeline of a moment. Raises `NotRestorable` if it has none."""
    if moment.timeline is None:
        return counted.position or WalPosition(0, 0)
    end = counted.end_of(moment.timeline)
    if end is None:
        raise NotRestorable(f"the archive has no log of timeline {moment.timeline}")
    return WalPosition(moment.timeline, end)


def _left(newest: int, needed: WalRange, forks: Sequence[Fork]) -> str:
    """Say in what way the log that leads to the timeline `newest` does not continue a backup; empty if it does."""
    end = {fork.timeline: fork.end for fork in forks}.get(needed.timeline)
    if needed.timeline > newest:
        return f"is of timeline {needed.timeline}, which comes after timeline {newest}"
    if needed.timeline < newest and (end is None or needed.end > end):
        at = "" if end is None else f" from {lsn_text(end)} on"
        return f"is of timeline {needed.timeline}, which the archived timeline {newest} does not continue{at}"
    return ""


def _gaps(counted: Counted, newest: WalPosition, needed: WalRange, moment: Moment, forks: Sequence[Fork]) -> str:
    """Return the ranges between a backup and a moment that the archive lacks, as text; empty if it lacks none.

    Checks from the backup's beginning on, through all timelines that follow, as far as the log is archived. The log
    behind a gap is not needed for a time at which all before the gap was archived already.
    """
    size = counted.segment_bytes
    upto = max(needed.end, newest.lsn)
    if moment.lsn is not None:
        if moment.lsn > upto:
            return f"{lsn_text(upto)} to {lsn_text(moment.lsn)}"
        upto = max(needed.end, moment.lsn)
    if moment.time is not None:
        later = (gap.start for gap in counted.gaps if gap.since is not None and gap.since > moment.time)
        upto = max(needed.end, min((upto, *later)))
    start = segment_start(needed.start, size) if size else needed.start
    missing: list[tuple[int, int]] = []
    for timeline, fork in [*((fork.timeline, fork.end) for fork in forks), (newest.timeline, upto)]:
        if timeline < needed.timeline:
            continue
        end = max(start, min(fork, upto))
        if timeline < newest.timeline and any(counted.missing(timeline, max(start, segment_start(end, size)), end)):
            # The next timeline repeats the segment in which this one ends.
            end = max(start, segment_start(end, size))
        missing += counted.missing(timeline, start, end)
        start = end
    return ", ".join(f"{lsn_text(first)} to {lsn_text(last)}" for first, last in missing)


def log_ends_at(lsn: int, counted: Counted, newest: int, forks: Sequence[Fork]) -> bool:
    """Whether the archived log that leads to the timeline `newest` ends at `lsn`.

    A server stops behind the first record from the requested LSN on, and refuses to start if the log has none. So to
    restore to the end of the log, no LSN is requested.
    """
    timelines = (*(fork.timeline for fork in forks), newest)
    return all(any(counted.missing(timeline, lsn, lsn + 1)) for timeline in timelines)


def restore_server(
    backups: Sequence[Manifest],
    target: Path,
    moment: Moment,
    wal_url: str,
    *,
    wal_options: dict[str, Any] | None = None,
    keys: BackupKeys | None = None,
    restore: Callable[[Manifest], Restored] | None = None,
) -> RestoredServer:
    """Make a data folder at `target` that a plain `pg_ctl start` recovers to `moment`.

    `backups` are the physical backups to choose from, `wal_url` is the archive of the log of one task
    (DESTINATION/TASK). `keys` open an encrypted archive. `restore` restores the chosen backup to `target`; None: it is
    restored from the place of its manifest, without options. The server becomes a primary of a timeline of its own once
    it has recovered. Raises `NotRestorable`, `TargetExists`, `Damaged`, `NoIdentity`, `BadIdentity`.
    """
    began_s = time.monotonic()
    if moment.time is not None and moment.time > datetime.now(UTC):
        raise NotRestorable(f"{moment} is in the future: leave the time out to restore to the latest moment")
    place, counted = open_archive(wal_url, wal_options)
    forks = ancestors(place, counted, archived_end(counted, moment).timeline)
    base = choose_base(backups, counted, place.url.rpartition("/")[2], moment, forks)
    encryption = counted.encryption
    opened = None if encryption is None else (keys or BackupKeys()).identities_of(encryption, place.url)
    restored = restore(base) if restore else restore_manifest(base, RestoreTarget(str(target)), keys=keys)
    assert base.wal is not None, "choose_base returns physical backups only"
    identities = "" if opened is None else opened.text
    if moment.lsn is not None and log_ends_at(moment.lsn, counted, archived_end(counted, moment).timeline, forks):
        moment = replace(moment, lsn=None)
    _recover_on_start(target, moment, place, counted, WalPosition(base.wal.timeline, base.wal.start), identities)
    return RestoredServer(
        manifest=restored.manifest,
        target=str(target),
        archived=str(counted.position),
        archived_at=counted.position_at,
        seconds=time.monotonic() - began_s,
    )


def open_archive(url: str, options: dict[str, Any] | None) -> tuple[Place, Counted]:
    """Return the archive of the log at `url` (DESTINATION/TASK) and what counts of it. Raises `NoBackup`, `Damaged`."""
    place = Place(url, options)
    systems = [name for name in place.folders() if name.isdecimal()]
    if len(systems) != 1:
        found = ", ".join(systems) or "none"
        raise NoBackup(f"{url} holds the log of one database system if it is an archive; found: {found}")
    inner = place.inside(systems[0])
    counted = read_archive(inner)
    if counted.position is None:
        raise NoBackup(f"{inner.url} holds no log yet")
    return inner, counted


def ancestors(place: Place, counted: Counted, timeline: int) -> tuple[Fork, ...]:
    """Return the ancestors of an archived timeline. Raises `Damaged`."""
    return archived_ancestors(place, counted, timeline) or ()


def _recover_on_start(
    target: Path, moment: Moment, place: Place, counted: Counted, begins: WalPosition, identities: str
) -> None:
    """Configure the server at `target` so that it recovers when it starts."""
    about = (target / "PG_VERSION").stat()
    write_config(target / CONFIG, place.url, place.options, counted, begins, identities)
    command, end_command = server_commands(target / CONFIG)
    lines = [
        f"restore_command = {_quoted(command)}",
        f"recovery_end_command = {_quoted(end_command)}",
        "recovery_target_action = 'promote'",
    ]
    if moment.time is not None:
        lines.append(f"recovery_target_time = '{moment.time.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f+00}'")
    if moment.timeline is not None:
        lines.append(f"recovery_target_timeline = '{moment.timeline}'")
    if moment.lsn is not None:
        lines.append(f"recovery_target_lsn = '{lsn_text(moment.lsn)}'")
    settings = target / "postgresql.auto.conf"
    with settings.open("a") as file:
        file.write("\n".join(["# To recover once, by rota backup restore", *lines, ""]))
    (target / "recovery.signal").touch(mode=0o600)
    if os.geteuid() == 0:
        for path in (target / CONFIG, settings, target / "recovery.signal"):
            os.chown(path, about.st_uid, about.st_gid)


def _quoted(text: str) -> str:
    """Return a value, quoted for PostgreSQL's configuration files."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def start_hint(target: str) -> str:
    """Return the command that starts the restored server, for users."""
    return f"pg_ctl -D {shlex.quote(target)} start"
