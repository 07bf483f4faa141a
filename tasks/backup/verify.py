"""Read a backup back and say whether it could be restored: its sums, its frames, and what is inside."""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.backup import archive
from tasks.backup.destination import Place
from tasks.backup.manifest import FileEntry, Manifest, newest
from tasks.backup.sources import postgres, sqlite, unpack
from tasks.backup.sources.postgres_tools import PostgresFailed


@dataclass(frozen=True)
class Report:
    """What was found. `problems` is empty for a backup that is good; `remarks` say what could not be checked here."""

    manifest: Manifest
    problems: tuple[str, ...]
    remarks: tuple[str, ...]
    read_bytes: int
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether the backup is good."""
        return not self.problems


def verify(url: str, options: dict[str, Any] | None = None, progress: archive.Progress = archive.quiet) -> Report:
    """Read the backup at `url` (of a task's folder: the newest) through, and check it.

    Every file's sums and zstd frame; then a PostgreSQL dump's table of contents by pg_restore, an SQLite database by
    its own check (in a temporary file), a folder's archive member by member. Raises `NoBackup` if there is none.
    """
    began_s = time.monotonic()
    manifest = newest(url, options)
    place = Place(manifest.url, options)
    problems: list[str] = []
    remarks = list(manifest.remarks)
    read_bytes = 0
    with tempfile.TemporaryDirectory(prefix="rota-verify-") as scratch:
        for entry in manifest.files:
            try:
                found = _check(manifest, place, entry, Path(scratch), progress)
            except (archive.Damaged, PostgresFailed) as error:
                problems.append(str(error))
                continue
            read_bytes += entry.stored_bytes
            remarks += [remark for remark in found if remark not in remarks]
    seconds = time.monotonic() - began_s
    return Report(manifest, tuple(problems), tuple(remarks), read_bytes, seconds)


def _check(manifest: Manifest, place: Place, entry: FileEntry, scratch: Path, progress: archive.Progress) -> list[str]:
    """Remarks. Raises `Damaged` or `PostgresFailed`."""
    content = archive.Content(archive.load(place, entry, progress))
    match manifest.source_type:
        case "postgres":
            remark = postgres.check(content, scratch, manifest.tools["pg_dump"])
            return [] if remark is None else [remark]
        case "sqlite":
            return sqlite.check(content, scratch)
        case "folder":
            unpack.check(content)
            return []
