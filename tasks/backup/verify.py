"""Verifies a backup: reads all of it, and checks its checksums, its compression and its content."""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.backup import archive
from tasks.backup.manifest import Manifest, newest_backup
from tasks.backup.objects import StoredObjects
from tasks.backup.params import source_class
from tasks.backup.sources.postgres_tools import PostgresFailed


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


def verify(url: str, options: dict[str, Any] | None = None, progress: archive.Progress = archive.quiet) -> Report:
    """Read and check the backup at `url` (the newest one if `url` is a task's folder).

    Checks every file's checksums and zstd frame, and then the content: pg_restore lists a PostgreSQL dump's table of
    contents, SQLite checks a temporary copy of a database, and a folder's archive is read member by member. Raises
    `NoBackup` if there is no backup at `url`.
    """
    began_s = time.monotonic()
    manifest = newest_backup(url, options)
    stored = StoredObjects(manifest, options, progress)
    problems: list[str] = []
    remarks = list(manifest.remarks)
    read_bytes = 0
    with tempfile.TemporaryDirectory(prefix="rota-verify-") as scratch:
        for entry in manifest.files:
            try:
                found = source_class(manifest).verify(stored.content(entry), entry, manifest, Path(scratch))
            except (archive.Damaged, PostgresFailed) as error:
                problems.append(str(error))
                continue
            read_bytes += entry.stored_bytes
            remarks += [remark for remark in found if remark not in remarks]
    seconds = time.monotonic() - began_s
    return Report(manifest, tuple(problems), tuple(remarks), read_bytes, seconds)
