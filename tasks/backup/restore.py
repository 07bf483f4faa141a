"""Restores a backup into a folder, an SQLite file or a PostgreSQL database, completely or not at all."""

import time
from dataclasses import dataclass
from typing import Any

from tasks.backup import archive
from tasks.backup.encryption import BackupKeys
from tasks.backup.manifest import Manifest, newest_backup
from tasks.backup.objects import StoredObjects
from tasks.backup.params import source_class
from tasks.backup.sources.source import RestoreTarget


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
) -> Restored:
    """Restore the backup at `url` (the newest one if `url` is a task's folder) into `target`.

    `target` is a path, or for a PostgreSQL dump the URL of an existing database, with its `password` (or libpq's own
    means: PGPASSWORD, ~/.pgpass). Existing content is replaced only with `overwrite`. Checksums are checked on the way,
    and the target does not change unless all are right. `keys` open an encrypted backup. Raises `NoBackup`,
    `BadTarget`, `TargetExists`, `Damaged`, `NoIdentity`, `BadIdentity`, and for PostgreSQL `NoTool` and
    `PostgresFailed`.
    """
    return restore_manifest(newest_backup(url, options), target, overwrite, options, password, progress, keys)


def restore_manifest(
    manifest: Manifest,
    target: str,
    overwrite: bool = False,
    options: dict[str, Any] | None = None,
    password: str | None = None,
    progress: archive.Progress = archive.quiet,
    keys: BackupKeys | None = None,
) -> Restored:
    """Restore the backup that `manifest` describes. The other arguments are those of `restore_backup`."""
    began_s = time.monotonic()
    to_database = target.startswith(("postgresql://", "postgres://"))
    if to_database != (manifest.source_type == "postgres"):
        wanted = "the URL of a database (postgresql://...)" if manifest.source_type == "postgres" else "a path"
        raise BadTarget(f"a backup of type {manifest.source_type} is restored into {wanted}, not into {target}")
    stored = StoredObjects(manifest, options, progress, keys)
    found = source_class(manifest).restore(stored, RestoreTarget(target, overwrite, password))
    remarks = tuple(dict.fromkeys((*stored.manifest.remarks, *found)))
    return Restored(stored.manifest, target, remarks, manifest.size_bytes, time.monotonic() - began_s)
