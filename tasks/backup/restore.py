"""Restores a backup into a folder, an SQLite file or a PostgreSQL database, completely or not at all."""

import glob
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from tasks.backup.archive import Damaged, PlaceFailed, TargetExists
from tasks.backup.chain import BrokenChain
from tasks.backup.encryption import BackupKeys
from tasks.backup.finding import FoundBackups
from tasks.backup.manifest import Manifest, NoBackup, SourceType, newest_backup
from tasks.backup.memory import keep_freed_memory
from tasks.backup.objects import RestoreWatch, StoredObjects, needed_by_restore
from tasks.backup.over_source import refuse_over_source
from tasks.backup.params import source_class
from tasks.backup.sources.data_folder import NoRoomToRestore
from tasks.backup.sources.mariadb import url as mariadb_url
from tasks.backup.sources.source import ALL_PARTS, RestoreParts, RestoreTarget
from tasks.errors import Failed
from tasks.postgres import url as postgres_url

_INTO: Final[Mapping[SourceType, tuple[tuple[str, ...], str]]] = {
    "postgres": (postgres_url.PREFIXES, "the URL of a database (postgresql://...)"),
    "mariadb": (mariadb_url.PREFIXES, f"the URL of a server, or of a database there ({mariadb_url.FORM})"),
}
"""The types of source whose backups are restored into a server: how its URL begins, and its form."""
_URLS: Final = tuple(prefix for prefixes, _ in _INTO.values() for prefix in prefixes)


class BadTarget(Exception):
    """The target does not fit the type of the backup."""


class TargetFailed(Failed):
    """The target cannot be written: its disk is full, or this user may not."""


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
    keys: BackupKeys | None = None,
    parts: RestoreParts = ALL_PARTS,
    tablespaces: Mapping[str, str] = MappingProxyType({}),
    over_source: bool = False,
    watch: RestoreWatch = RestoreWatch(),  # noqa: B008  frozen
) -> Restored:
    """Restore the backup at `url` (the newest one if `url` is a task's folder) into `target`.

    The arguments are the fields of `RestoreTarget`, and those of `restore_manifest`, which says what is raised.
    """
    to = RestoreTarget(
        name=target,
        overwrite=overwrite,
        password=password,
        parts=parts,
        tablespaces=tablespaces,
        over_source=over_source,
    )
    return restore_manifest(newest_backup(url, options), to, options, keys, watch)


def restore_found(
    found: FoundBackups,
    name: str | None,
    target: RestoreTarget,
    keys: BackupKeys | None = None,
    watch: RestoreWatch = RestoreWatch(),  # noqa: B008  frozen
    tell: Callable[[str], None] = lambda sentence: None,
) -> Restored:
    """Restore the backup of a name (None: the newest) from the first place that has it whole.

    If it is damaged there, or the place fails, the next place is read. `tell` gets a sentence for each place that was
    passed over. Raises the errors of `restore_manifest`, `NoBackup`, `TargetFailed` and `NoRoomToRestore`.
    """
    failed: Damaged | BrokenChain | PlaceFailed | None = None
    for manifest, place in found.whole(found.chosen(name), tell):
        if failed is not None:
            tell(f"{failed}; now {place.url} is read")
        try:
            with _target_named(manifest, target, place.options):
                return restore_manifest(manifest, target, place.options, keys, watch)
        except (Damaged, BrokenChain, PlaceFailed) as error:
            failed = error
        except TargetExists as error:
            # Of several databases, those before the damage are restored: another place cannot go on behind them.
            raise failed or error from None
    raise failed or NoBackup(f"{name} is at no destination")


def restore_manifest(
    manifest: Manifest,
    target: RestoreTarget,
    options: dict[str, Any] | None = None,
    keys: BackupKeys | None = None,
    watch: RestoreWatch = RestoreWatch(),  # noqa: B008  frozen
) -> Restored:
    """Restore the backup that `manifest` describes, completely or not at all.

    `target.name` is a path; for a PostgreSQL dump the URL of an existing database, with its `password` (or libpq's own
    means: PGPASSWORD, ~/.pgpass); for MariaDB the URL of a server, or of a database there, which need not exist.
    Several databases of PostgreSQL are restored into the server of that URL, unless `parts` names one. Existing content
    is replaced only with `overwrite`, and what was backed up only with `over_source`. Checksums are checked on the way,
    and the target does not change unless all are right. `keys` open an encrypted backup. Raises `BadTarget`,
    `TargetExists`, `Damaged`, `PlaceFailed`, `BrokenChain`, `NoIdentity`, `BadIdentity`, for PostgreSQL `NoTool`,
    `PostgresFailed`, `NoSuchPart`, `MissingRoles`, `NoTablespacePath` and `NoRoomToRestore`, for MariaDB
    `NoMariadbProgram` and `MariadbFailed`.
    """
    began_s = time.monotonic()
    keep_freed_memory()
    _check_fits(manifest, target)
    target = target._replace(overwrite=target.overwrite or target.over_source)
    stored = StoredObjects(manifest, options, watch, keys)
    stored.expect(entry for each in needed_by_restore(manifest, options) for entry in each.files)
    if not is_database(target.name):
        refuse_over_source(manifest, target)
    found = source_class(manifest).restore(stored, target)
    remarks = tuple(dict.fromkeys((*stored.manifest.remarks, *found)))
    return Restored(stored.manifest, target.name, remarks, manifest.size_bytes, time.monotonic() - began_s)


@contextmanager
def _target_named(manifest: Manifest, target: RestoreTarget, options: dict[str, Any]) -> Iterator[None]:
    """Raise `NoRoomToRestore` if a path has too little room, and `TargetFailed` for the block's errors of the path."""
    if is_database(target.name):
        yield
        return
    path = Path(target.name).resolve()
    begun = any(path.parent.glob(f".{glob.escape(path.name)}.*.packs"))  # by a restore that was interrupted
    if target.parts.path is None and not begun:
        needed_bytes = sum(each.size_bytes for each in needed_by_restore(manifest, options))
        free = shutil.disk_usage(_existing(path)).free
        if free < needed_bytes:
            raise NoRoomToRestore(f"a restore to {path} needs {needed_bytes:,} bytes; {free:,} are free there")
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        free = shutil.disk_usage(_existing(path)).free
        said = f"{error.strerror or error} ({free:,} bytes are free there)"
        raise TargetFailed(f"{path} cannot be written: {said}") from error


def _existing(path: Path) -> Path:
    return next(each for each in (path, *path.parents) if each.exists())


def _check_fits(manifest: Manifest, target: RestoreTarget) -> None:
    """Raise `BadTarget` if a target, or the parts that are to be restored, do not fit the type of the backup."""
    prefixes, wanted = _INTO.get(manifest.source_type, ((), "a path"))
    if not target.name.startswith(prefixes) if prefixes else is_database(target.name):
        raise BadTarget(f"a backup of type {manifest.source_type} is restored into {wanted}, not into {target.name}")
    parts = target.parts
    known = {
        "postgres": replace(parts, path=None),
        "mariadb": RestoreParts(database=parts.database),
        "folder": RestoreParts(path=parts.path),
    }
    if parts != known.get(manifest.source_type, ALL_PARTS):
        raise BadTarget(f"a backup of type {manifest.source_type} has no such parts: it is restored as a whole")
    if target.tablespaces and manifest.source_type != "postgres_physical":
        raise BadTarget(f"a backup of type {manifest.source_type} has no tablespaces to give new paths")


def is_database(target: str) -> bool:
    """Whether a target is a database or a server of databases, not a path."""
    return target.startswith(_URLS)
