"""Says what an archive of a server's log holds, and checks all of it, for people."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from tasks.backup.archive import Content, Damaged, Progress, check_stored, quiet, stored_content
from tasks.backup.encryption import BackupKeys
from tasks.backup.manifest import Manifest, NoBackup
from tasks.places.place import Place
from tasks.postgres.wal_position import WalPosition, lsn_text
from tasks.wal.archive import archived_systems, chapter_segments, read_archive
from tasks.wal.counted import Counted
from tasks.wal.pages import StoredWal, WalEnd
from tasks.wal.restore import Moment, NotRestorable, ancestors, choose_base


@dataclass(frozen=True, kw_only=True)
class ArchivedTimeline:
    """The log of one timeline in an archive."""

    #: The number of the timeline.
    timeline: int
    #: The LSN of the first byte that is stored.
    start: int
    #: The LSN after the last byte that is stored.
    end: int
    #: The ranges between them that are not stored.
    missing: tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True)
class RestorableBackup:
    """A physical backup, and to which moments it can be restored."""

    #: The URL of the backup.
    url: str
    #: The earliest moment: when the backup was finished.
    since: datetime
    #: The same moment as an LSN, at which recovery has to come at least.
    lsn: int
    #: Why the archived log does not lead from it to the latest moment; "": it does.
    why_not: str
    #: If it does not: the time before the gap up to which it can be restored; None: not known.
    until: datetime | None


@dataclass(frozen=True, kw_only=True)
class ArchiveReport:
    """What the archive of one database system holds."""

    #: The URL of the archive.
    url: str
    #: The system identifier.
    system: str
    #: The cluster whose task archives the log; "": not recorded.
    cluster: str
    #: The timelines with stored log, in order.
    timelines: tuple[ArchivedTimeline, ...]
    #: The position up to which the log is archived; None: no log is archived.
    position: WalPosition | None
    #: When that position was archived.
    position_at: datetime | None
    #: The physical backups of the system, the newest first.
    backups: tuple[RestorableBackup, ...]


@dataclass(frozen=True, kw_only=True)
class LogCheck:
    """The result of reading all stored log of one system."""

    #: The URL of the archive.
    url: str
    #: The number of objects that were read.
    objects: int
    #: The size of their content, in bytes.
    read_bytes: int
    #: Sentences about objects that are missing or damaged, and ranges that are not there; empty: the archive is good.
    problems: tuple[str, ...]
    #: Sentences about ranges that the server had removed before they were archived.
    gaps: tuple[str, ...]


def describe_archives(
    url: str, options: dict[str, Any] | None, backups: Sequence[Manifest] = ()
) -> list[ArchiveReport]:
    """Describe the archives of the log at `url` (DESTINATION/TASK): one for each system, usually one.

    `backups` are those whose moments are to be told. Raises `NoBackup` if there is none, and `Damaged`.
    """
    return [_described(place, system, read_archive(place), backups) for system, place in _archives(url, options)]


def _archives(url: str, options: dict[str, Any] | None) -> list[tuple[str, Place]]:
    place = Place(url, options)
    systems = archived_systems(place)
    if not systems:
        raise NoBackup(f"{url} holds no archive of a server's log: give DESTINATION/TASK of a task of kind wal")
    return [(system, place.inside(system)) for system in systems]


def _described(place: Place, system: str, counted: Counted, backups: Sequence[Manifest]) -> ArchiveReport:
    return ArchiveReport(
        url=place.url,
        system=system,
        cluster=counted.cluster,
        timelines=tuple(_timelines(counted)),
        position=counted.position,
        position_at=counted.position_at,
        backups=tuple(_restorable(place, system, counted, backups)),
    )


def _timelines(counted: Counted) -> Iterator[ArchivedTimeline]:
    starts: dict[int, int] = {}
    pieces = (piece for each in counted.pieces.values() for piece in each)
    stored = ((one.timeline, one.start) for one in (*counted.segments.values(), *pieces))
    for timeline, start in (*stored, *((one.timeline, one.start) for one in counted.chapters)):
        starts[timeline] = min(start, starts.get(timeline, start))
    for timeline, start in sorted(starts.items()):
        end = counted.end_of(timeline) or start
        missing = tuple(_joined(counted.missing(timeline, start, end)))
        yield ArchivedTimeline(timeline=timeline, start=start, end=end, missing=missing)


def _joined(ranges: Iterator[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield ranges, of which those that touch are one.

    >>> list(_joined(iter([(1, 3), (3, 5), (7, 9)])))
    [(1, 5), (7, 9)]
    """
    held: tuple[int, int] | None = None
    for first, last in ranges:
        if held is not None and held[1] == first:
            held = held[0], last
        else:
            if held is not None:
                yield held
            held = first, last
    if held is not None:
        yield held


def _restorable(place: Place, system: str, counted: Counted, backups: Sequence[Manifest]) -> Iterator[RestorableBackup]:
    forks = ancestors(place, counted, counted.position.timeline) if counted.position else ()
    for backup in sorted(backups, key=lambda each: each.finished, reverse=True):
        if backup.wal is None or backup.wal.system != system:
            continue
        why_not, until = "", None
        try:
            choose_base([backup], counted, system, Moment(), forks)
        except NotRestorable as error:
            why_not = str(error).partition("cannot be restored: ")[2]
            after = [gap.since for gap in counted.gaps if gap.since is not None and gap.start >= backup.wal.end]
            until = min(after, default=None)
        yield RestorableBackup(url=backup.url, since=backup.finished, lsn=backup.wal.end, why_not=why_not, until=until)


def check_archives(
    url: str, options: dict[str, Any] | None, progress: Progress = quiet, keys: BackupKeys | None = None
) -> list[LogCheck]:
    """Read and check every object of the archives of the log at `url`. `progress` gets the bytes of content so far.

    Without `keys`, only the checksums of encrypted objects are checked. Raises `NoBackup` if there is no archive,
    `Damaged` if its pages cannot be read, and `NoIdentity` and `BadIdentity` if the keys do not fit.
    """
    checks: list[LogCheck] = []
    for _, place in _archives(url, options):
        before = sum(check.read_bytes for check in checks)
        checks.append(_checked(place, read_archive(place), partial(_advance_from, before, progress), keys))
    return checks


def _checked(place: Place, counted: Counted, progress: Progress, keys: BackupKeys | None) -> LogCheck:
    note = counted.encryption
    identities = None if note is None or keys is None else keys.identities_of(note, place.url)
    problems: list[str] = []
    objects = read_bytes = 0
    for stored in _all_objects(place, counted, problems):
        objects += 1
        try:
            if stored.file.encrypted and identities is None:
                check_stored(place, stored.file, quiet)
            else:
                Content(stored_content(place, stored.file, quiet, identities)).drain()
        except Damaged as error:
            problems.append(str(error))
        else:
            read_bytes += stored.file.size_bytes
            progress(read_bytes)
    told = [(gap.start, gap.end) for gap in counted.gaps]
    removed = counted.removed or WalEnd(timeline=0, lsn=0)
    for timeline in _timelines(counted):
        for first, last in timeline.missing:
            if timeline.timeline <= removed.timeline and last <= removed.lsn:
                continue  # between ranges that old backups need
            if not any(start <= first and last <= end for start, end in told):
                lacking = f"{lsn_text(first)} to {lsn_text(last)} of timeline {timeline.timeline}"
                problems.append(f"{place.url} lacks the log from {lacking}")
    gaps = tuple(f"the server had removed {lsn_text(first)} to {lsn_text(last)}" for first, last in told)
    return LogCheck(url=place.url, objects=objects, read_bytes=read_bytes, problems=tuple(problems), gaps=gaps)


def _advance_from(before_bytes: int, progress: Progress, done_bytes: int) -> None:
    progress(before_bytes + done_bytes)


def _all_objects(place: Place, counted: Counted, problems: list[str]) -> Iterator[StoredWal]:
    """Yield the entries of all objects that count. Chapters that cannot be read are added to `problems`."""
    for chapter in counted.chapters:
        try:
            yield from chapter_segments(place, chapter).values()
        except Damaged as error:
            problems.append(str(error))
    yield from counted.segments.values()
    for pieces in counted.pieces.values():
        yield from pieces
    yield from counted.histories.values()
