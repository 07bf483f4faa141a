"""Verifies a backup: reads all of it, and checks its checksums, its compression and its content."""

import time
from dataclasses import dataclass, replace
from typing import Any

from tasks.backup import archive
from tasks.backup.chain import BrokenChain
from tasks.backup.encryption import BackupKeys
from tasks.backup.manifest import Manifest, newest_backup
from tasks.backup.objects import RestoreWatch, StoredObjects, needed_by_restore
from tasks.backup.params import source_class
from tasks.backup.scratch import private_folder
from tasks.backup.sources.postgres_tools import PostgresFailed
from tasks.places.place import Place


@dataclass(frozen=True)
class Report:
    """The result of verifying a backup."""

    #: The manifest of the backup.
    manifest: Manifest
    #: Sentences about defects of the backup; empty: the backup is good.
    problems: tuple[str, ...]
    #: Sentences about checks that could not be made on this machine, and the remarks of the manifest.
    remarks: tuple[str, ...]
    #: The size of the stored files that were read.
    read_bytes: int
    #: How long verifying took.
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether the backup is good."""
        return not self.problems


def verify(
    url: str,
    options: dict[str, Any] | None = None,
    watch: RestoreWatch = RestoreWatch(),  # noqa: B008  frozen
    keys: BackupKeys | None = None,
) -> Report:
    """Read and check the backup at `url` (the newest one if `url` is a task's folder).

    Checks every file's checksums and zstd frame, and then the content: pg_restore lists a PostgreSQL dump's table of
    contents, SQLite checks a temporary copy of a database, and a folder's archive is read member by member. Of an
    incremental backup, the backups that it needs are checked too. `keys` open an encrypted backup; without them only
    the checksums of its stored files are checked, with a remark. Raises `NoBackup` if there is no backup at `url`, and
    `NoIdentity` and `BadIdentity` if the keys do not fit.
    """
    manifest = newest_backup(url, options)
    began_s = time.monotonic()
    if manifest.encryption is not None and keys is None:
        found = _checksums(manifest, options, watch)
    else:
        found = _content(StoredObjects(manifest, options, watch, keys))
    return replace(found, seconds=time.monotonic() - began_s)


def _content(stored: StoredObjects) -> Report:
    manifest = stored.manifest
    problems: list[str] = []
    remarks = list(manifest.remarks)
    read_bytes = 0
    try:
        chain = stored.chain()
    except BrokenChain as error:
        problems.append(str(error))
        chain = [stored]
    with private_folder("rota-verify-") as scratch:
        for each, entry in [(one, entry) for one in chain for entry in one.manifest.files]:
            try:
                found = source_class(manifest).verify(each.content(entry), entry, each.manifest, scratch)
            except (archive.Damaged, PostgresFailed) as error:
                problems.append(str(error))
                continue
            read_bytes += entry.stored_bytes
            remarks += [remark for remark in found if remark not in remarks]
    return Report(manifest, tuple(problems), tuple(remarks), read_bytes, 0)


def _checksums(manifest: Manifest, options: dict[str, Any] | None, watch: RestoreWatch) -> Report:
    """Check the stored files of an encrypted backup without decrypting them."""
    assert manifest.encryption is not None
    problems: list[str] = []
    try:
        chain = needed_by_restore(manifest, options)
    except BrokenChain as error:
        problems.append(str(error))
        chain = (manifest,)
    read_bytes = 0
    for each, entry in [(one, entry) for one in chain for entry in one.files]:
        try:
            archive.check_stored(Place(each.url, options), entry, watch.advance)
        except archive.Damaged as error:
            problems.append(str(error))
            continue
        read_bytes += entry.stored_bytes
    remark = (
        f"only the checksums of the stored files were checked, since the backup is encrypted to "
        f"{', '.join(manifest.encryption.recipients)}: give --identity FILE to check the content"
    )
    return Report(manifest, tuple(problems), (remark,), read_bytes, 0)
