"""Writes the content of a backup: the objects of its source. Also declares the errors of an attempt."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

import zstandard

from tasks.backup.archive import ObjectSink
from tasks.backup.encryption import Encryption
from tasks.backup.manifest import FileEntry, Manifest
from tasks.backup.objects import NewObjects
from tasks.backup.pace import ReadingPace
from tasks.backup.params import BackupParams
from tasks.backup.sources.source import EarlierChain, SourceNotes, SourceWork
from tasks.errors import Unretryable
from tasks.kind import Context, Failed
from tasks.places.place import Place
from tasks.version import version


class BackupStopped(Exception):
    """The attempt was asked to stop. It made no backup, and removed the files that it had written."""


class Vanished(Failed):
    """Files that this attempt wrote were removed or changed before the backup was complete."""


ENVIRONMENT: Final = {"RUN_BACKUP_THREADS": "ROTA_BACKUP_THREADS"}
"""The settings of a node that an attempt needs, by the variables in its environment."""

_THREADS_MAX: Final = 64


class BadSetting(Unretryable):
    """The setting ROTA_BACKUP_THREADS of the node is not a number of threads."""


def backup_threads(environ: Mapping[str, str]) -> int:
    """Return the number of threads that compress: the node's setting, else the cores. Raises `BadSetting`.

    >>> backup_threads({"RUN_BACKUP_THREADS": "3"})
    3
    """
    text = environ.get("RUN_BACKUP_THREADS")
    if text is None:
        return min(len(os.sched_getaffinity(0)), _THREADS_MAX)
    if not (text.isascii() and text.isdecimal() and int(text) <= _THREADS_MAX):
        raise BadSetting(f"ROTA_BACKUP_THREADS is {text!r}: give a number from 0 (no threads) to {_THREADS_MAX}")
    return int(text)


class BackupContent:
    """Writes the content of one backup to `place`, through `sink` if it is given. It was begun at `created`."""

    def __init__(
        self,
        ctx: Context[BackupParams],
        place: Place,
        created: datetime,
        now: Callable[[], datetime],
        sink: ObjectSink | None = None,
    ) -> None:
        self._ctx = ctx
        self._source = ctx.params.source
        self.encryption = Encryption.of(ctx.params.encryption, ctx.secret)
        rate = ctx.params.bytes_per_s
        self._out = NewObjects(
            place,
            ctx.params.level,
            self._progress,
            self.encryption,
            sink,
            threads=backup_threads(os.environ),
            pace=None if rate is None else ReadingPace(rate),
        )
        self._size_bytes: int | None = None
        self._work = SourceWork(
            node=ctx.node,
            access=ctx.access,
            scratch=ctx.scratch,
            secret=ctx.secret,
            created=created,
            now=now,
            step=self._check,
            expect=self._expect,
        )

    def identity(self) -> dict[str, str]:
        """Return the source's identity facts. Raises the errors of `identity` in the source's module."""
        return self._source.identity(self._work)

    def adopt(self, earlier: Sequence[Place]) -> None:
        """Take over the whole objects of earlier attempts at the run from their folders. The attempts must be fenced.

        Raises the storage's errors.
        """
        self._out.adopt(earlier)
        if self._out.kept:
            self._ctx.log.info("objects that earlier attempts completed: %d", len(self._out.kept))

    def write(self, earlier: Callable[[], EarlierChain]) -> tuple[tuple[FileEntry, ...], SourceNotes]:
        """Write the content. Returns the files' entries for the manifest, and further notes for the manifest.

        `earlier` is that of `SourceWork`.
        """
        notes = self._source.dump(replace(self._work, earlier=earlier), self._out)
        return self._out.entries, notes

    @property
    def kept(self) -> Collection[FileEntry]:
        """The objects that earlier attempts completed, and that this one has taken over and not used yet."""
        return self._out.kept.values()

    def sealed(self, done: Manifest) -> Manifest:
        """Return the manifest as it is stored: of an encrypted backup, what tells of the content is encrypted."""
        if self.encryption is None:
            return done
        files = tuple(self.encryption.seal_entry(entry) if entry.sealed is None else entry for entry in done.files)
        return self.encryption.seal_manifest(done.model_copy(update={"files": files}))

    @property
    def tools(self) -> dict[str, str]:
        """The versions of Rota and of the libraries that compress and encrypt, for the manifest."""
        found = {"rota": version(), "zstandard": zstandard.__version__}
        return found if self.encryption is None else found | self.encryption.tools

    def _expect(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes

    def _progress(self, done_bytes: int) -> None:
        self._ctx.progress(done_bytes, self._size_bytes, "bytes")
        self._check()

    def _check(self) -> None:
        if self._ctx.cancelled:
            raise BackupStopped("asked to stop")
