"""Chains of backups (pure): which earlier backup the next one continues, and which backups an incremental one needs.

An incremental backup holds what has changed since another backup, its parent. Its manifest names all backups that it
needs, from the full one on, each with the checksum of the server's manifest in it. So a parent that was replaced is
noticed.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from tasks.backup.manifest import FileEntry, Manifest, NoBackup, ParentBackup, begun
from tasks.postgres.replication import ServerIdentity

SERVER_MANIFEST_FILE: Final = "backup_manifest.zst"
"""The name of the object with the server's manifest."""

OLDEST_INCREMENTAL: Final = 17
"""The oldest major version of PostgreSQL that makes incremental backups."""


_EARLY: Final = timedelta(hours=1)
"""How much before its time a full backup is made, so that it does not wait for the next run."""


class BrokenChain(NoBackup):
    """A backup that an incremental one needs is missing, or is another one."""


class NextBackup(NamedTuple):
    """Whether the next backup is incremental."""

    #: The backup that it continues; None: it is a full one.
    parent: Manifest | None
    #: Why it is a full one although no full one is due; None: nothing has to be said.
    remark: str | None = None


def next_backup(
    chain: Sequence[Manifest], full_every: int | timedelta | None, now: datetime, server: ServerIdentity
) -> NextBackup:
    """Decide whether the next backup is full. `chain`: the newest backup, and before it those that it needs.

    `full_every` is how many backups a chain may have, or how long after its full one the next full one is due; None:
    all are full.
    """
    if full_every is None:
        return NextBackup(None)
    if server.major < OLDEST_INCREMENTAL:
        return _told(f"PostgreSQL {server.version} makes none, which version {OLDEST_INCREMENTAL} and later do")
    if not server.summarizes:
        return _told("the server's setting `summarize_wal` is off")
    if not chain or _is_due(chain, full_every, now):
        return NextBackup(None)
    newest = chain[-1]
    if server_manifest(newest) is None or newest.wal is None:
        return _told(f"{newest.url} has no manifest of the server, which a build before this one did not keep")
    if newest.wal.system != server.system:
        return _told(f"{newest.url} is of another system, {newest.wal.system}")
    if newest.wal.timeline != server.timeline:
        return _told(f"the server went from timeline {newest.wal.timeline} to {server.timeline} since {newest.url}")
    return NextBackup(newest)


def _told(why: str) -> NextBackup:
    return NextBackup(None, full_because(why))


def full_because(why: str) -> str:
    """Return the remark of a backup that was to be incremental, and is full."""
    return f"this backup is full, not incremental: {why}"


def _is_due(chain: Sequence[Manifest], full_every: int | timedelta, now: datetime) -> bool:
    if isinstance(full_every, int):
        return len(chain) >= full_every
    # A schedule's runs do not begin to the second: the one a week after a full backup must not miss the week.
    return now - chain[0].created >= full_every - min(_EARLY, full_every / 10)


def server_manifest(manifest: Manifest) -> FileEntry | None:
    """Return the entry of the object with the server's manifest; None for a backup without one."""
    return next((entry for entry in manifest.files if entry.plain_name == SERVER_MANIFEST_FILE), None)


def parents_of_next(chain: Sequence[Manifest]) -> tuple[ParentBackup, ...]:
    """Return the record of the backups that an incremental one after `chain` needs."""
    found = [(manifest.name, server_manifest(manifest)) for manifest in chain]
    return tuple(ParentBackup(name=name, sha256=entry.sha256) for name, entry in found if entry is not None)


def chain_of(manifest: Manifest, read: Callable[[str], Manifest | None]) -> tuple[Manifest, ...]:
    """Return the backups that restoring `manifest` needs: the full one first, `manifest` itself last.

    `read` returns the manifest of a backup of the same task by the name of its folder. Raises `BrokenChain`.
    """
    found: list[Manifest] = []
    for number, parent in enumerate(manifest.parents):
        needed = f"{manifest.url} is incremental and needs the backup {parent.name}"
        if begun(parent.name) is None:
            raise BrokenChain(f"{manifest.url}: its manifest names a parent {parent.name!r}, which is no backup's name")
        try:
            other = read(parent.name)
        except NoBackup as error:
            raise BrokenChain(f"{needed}, whose manifest is damaged: {error}") from None
        if other is None:
            raise BrokenChain(f"{needed}, which is not there: restore an earlier backup, or another copy of it")
        entry = server_manifest(other)
        if entry is None or entry.sha256 != parent.sha256 or other.parents != manifest.parents[:number]:
            raise BrokenChain(f"{needed}, but the backup of that name is another one: it was replaced")
        found.append(other)
    return (*found, manifest)


def needed_by(kept: Collection[str], backups: Sequence[Manifest]) -> Mapping[str, list[str]]:
    """Return, for each backup that backups in `kept` need, the names of those. All are names of backups' folders."""
    found: dict[str, list[str]] = {}
    for backup in backups:
        for parent in backup.parents if backup.name in kept else ():
            found.setdefault(parent.name, []).append(backup.name)
    return found


def with_parents(kept: Collection[str], backups: Sequence[Manifest]) -> set[str]:
    """Return the names in `kept`, and of the backups that those need."""
    return {*kept, *needed_by(kept, backups)}
