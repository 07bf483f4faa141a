"""Restores a backup into a folder, an SQLite file or a PostgreSQL database, completely or not at all."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from tasks.backup import archive
from tasks.backup.encryption import BackupKeys
from tasks.backup.manifest import Manifest, SourceType, newest_backup
from tasks.backup.objects import StoredObjects
from tasks.backup.params import source_class
from tasks.backup.sources.mariadb import url as mariadb_url
from tasks.backup.sources.source import ALL_PARTS, RestoreParts, RestoreTarget

_INTO: Final[Mapping[SourceType, tuple[tuple[str, ...], str]]] = {
    "postgres": (("postgresql://", "postgres://"), "the URL of a database (postgresql://...)"),
    "mariadb": (mariadb_url.PREFIXES, f"the URL of a server, or of a database there ({mariadb_url.FORM})"),
}
"""The types of source whose backups are restored into a server: how its URL begins, and its form."""
_URLS: Final = tuple(prefix for prefixes, _ in _INTO.values() for prefix in prefixes)


class BadTarget(Exception):
    """The target does not fit the type of the backup."""


@dataclass(frozen=True)
class Restored:
    """The result of restoring a backup."""

    #: The manifest of the backup.
    manifest: Manifest
    #: The target into which it was restored, as text.
    target: str
    #: Sentences about files that the backup lacks, and about checks that this machine could not make.
    remarks: tuple[str, ...]
    #: The size of the restored content.
    size_bytes: int
    #: How long restoring took.
    seconds: float


def restore_backup(
    url: str,
    target: str,
    overwrite: bool = False,
    options: dict[str, Any] | None = None,
    password: str | None = None,
    progress: archive.Progress = archive.quiet,
    keys: BackupKeys | None = None,
    parts: RestoreParts = ALL_PARTS,
    tablespaces: Mapping[str, str] = MappingProxyType({}),
) -> Restored:
    """Restore the backup at `url` (the newest one if `url` is a task's folder) into `target`.

    `target` is a path; for a PostgreSQL dump the URL of an existing database, with its `password` (or libpq's own
    means: PGPASSWORD, ~/.pgpass); for MariaDB the URL of a server, or of a database there, which need not exist.
    Several databases of PostgreSQL are restored into the server of that URL, unless `parts` names one. Existing content
    is replaced only with `overwrite`. Checksums are checked on the way, and the target does not change unless all are
    right. `keys` open an encrypted backup. `tablespaces` are new paths for those of a physical backup, by their names.
    Raises `NoBackup`, `BadTarget`, `TargetExists`, `Damaged`, `NoIdentity`, `BadIdentity`, for PostgreSQL `NoTool`,
    `PostgresFailed`, `NoSuchPart`, `MissingRoles`, `NoTablespacePath` and `NoRoomToRestore`, for MariaDB
    `NoMariadbProgram` and `MariadbFailed`.
    """
    manifest = newest_backup(url, options)
    return restore_manifest(manifest, target, overwrite, options, password, progress, keys, parts, tablespaces)


def restore_manifest(
    manifest: Manifest,
    target: str,
    overwrite: bool = False,
    options: dict[str, Any] | None = None,
    password: str | None = None,
    progress: archive.Progress = archive.quiet,
    keys: BackupKeys | None = None,
    parts: RestoreParts = ALL_PARTS,
    tablespaces: Mapping[str, str] = MappingProxyType({}),
) -> Restored:
    """Restore the backup that `manifest` describes. The other arguments are those of `restore_backup`."""
    began_s = time.monotonic()
    prefixes, wanted = _INTO.get(manifest.source_type, ((), "a path"))
    if not target.startswith(prefixes) if prefixes else target.startswith(_URLS):
        raise BadTarget(f"a backup of type {manifest.source_type} is restored into {wanted}, not into {target}")
    known = {
        "postgres": replace(parts, path=None),
        "mariadb": RestoreParts(database=parts.database),
        "folder": RestoreParts(path=parts.path),
    }
    if parts != known.get(manifest.source_type, ALL_PARTS):
        raise BadTarget(f"a backup of type {manifest.source_type} has no such parts: it is restored as a whole")
    if tablespaces and manifest.source_type != "postgres_physical":
        raise BadTarget(f"a backup of type {manifest.source_type} has no tablespaces to give new paths")
    stored = StoredObjects(manifest, options, progress, keys)
    found = source_class(manifest).restore(stored, RestoreTarget(target, overwrite, password, parts, tablespaces))
    remarks = tuple(dict.fromkeys((*stored.manifest.remarks, *found)))
    return Restored(stored.manifest, target, remarks, manifest.size_bytes, time.monotonic() - began_s)
