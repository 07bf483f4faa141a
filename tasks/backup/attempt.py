"""One attempt at a backup: writes the backup to its folder, and then removes old backups."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from tasks.backup import lineage, manifest, retention
from tasks.backup.archive import Content, quiet, stored_content
from tasks.backup.chain import BrokenChain, chain_of
from tasks.backup.content import BackupContent, Vanished
from tasks.backup.copies import EMPTIED, BackupCopies
from tasks.backup.keep import rules_of
from tasks.backup.manifest import FileEntry, Manifest, printable
from tasks.backup.objects import remove_unnamed
from tasks.backup.params import BackupParams
from tasks.backup.sources.source import EarlierChain
from tasks.backup.unusual import BEFORE_MAX, unusual
from tasks.kind import Context, Fenced
from tasks.places.place import Place


@dataclass(frozen=True, kw_only=True)
class BackupAttempt:
    """An attempt at a backup, whose source has been checked and whose folder is known."""

    #: The attempt's context.
    ctx: Context[BackupParams]
    #: The folder of all backups of the task.
    task_place: Place
    #: The folder of this backup, in `task_place`.
    place: Place
    #: When the backup was begun.
    created: datetime
    #: Writes the content of the source into `place`.
    content: BackupContent
    #: The destinations beside the first.
    copies: BackupCopies
    #: The identity of the source.
    identity: dict[str, str]
    #: The lineage that the backup continues.
    held: lineage.Lineage
    #: Part of each checkpoint: the folders that attempts at this run have begun, and those that they were removing.
    begun: dict[str, Any]

    def completed(self, before: Sequence[str]) -> Manifest | None:
        """Return the backup that an earlier attempt at the run completed; None: make one.

        `before` names the folders that earlier attempts began. A backup without all its files does not count.
        """
        for name in reversed(before):
            by = manifest.begun(name)
            if by is None or by.token >= self.ctx.token:
                continue
            try:
                found = manifest.read_manifest(self.task_place.inside(name))
                if found is not None and found.run_id == self.ctx.run_id:
                    self._check_stored(found)
                    self._remove_unnamed(found)
                    return found
            except (manifest.NoBackup, Vanished) as error:
                self.ctx.log.warning("a backup of an earlier attempt is not used: %s", error)
        return None

    def adopt(self, before: Sequence[str]) -> None:
        """Take over the objects that earlier attempts completed. `before`: the folders that they began."""
        try:
            self.content.adopt(retention.unfinished(self.task_place, before, self.ctx.token))
        except Exception as error:  # noqa: BLE001  storage libraries raise any exception; then all is made anew
            self.ctx.log.warning("objects of earlier attempts are not used: %s: %s", type(error).__name__, error)

    def begin_copies(self, before: Sequence[str], done: Manifest | None) -> None:
        """Open the other destinations, and remove there what the earlier attempts in `before` left.

        `done` is the backup that an earlier attempt completed; None: the backup is yet to be written.
        """
        name = retention.name_of(self.place.url) if done is None else None
        complete = None if done is None else retention.name_of(done.url)
        left = [*before, *self.begun.get("removing", ())]
        self.copies.begin(self.task_place, name, self.held, self.identity, left, self.content.kept, complete)

    def write(self, now: Callable[[], datetime]) -> Manifest:
        """Write the content and, as the last step, the manifest. On any exception, remove all that was written."""
        ctx, source = self.ctx, self.ctx.params.source
        try:
            entries, notes = self.content.write(self._earlier)
            done = Manifest(
                task=ctx.task,
                run_id=ctx.run_id,
                attempt=ctx.attempt,
                token=ctx.token,
                created=self.created,
                finished=now(),
                source_type=source.type,
                source=source.model_dump(mode="json", exclude={"password"}),
                tools=self.content.tools | notes.tools,
                files=entries,
                remarks=tuple(map(printable, (*notes.remarks, *(said for entry in entries for said in entry.remarks)))),
                node=ctx.node,
                identity=self.identity,
                lineage=self.held.name,
                **notes.manifest,
            )
            # Raises `Fenced` if another attempt has taken the run over: then this one must not complete its backup.
            ctx.save_checkpoint(self.begun | {"finishing": self.place.url})
            # If this attempt was paused here and its run was taken over, the next attempt has removed the files.
            self._check_stored(done)
            self._check_parents(done)
            manifest.write_manifest(self.place, manifest.with_versions(self.content.sealed(done), self.place.versions))
        except Exception:
            self._discard()
            raise
        self._remove_unnamed(done)
        return manifest.with_versions(done, self.place.versions).model_copy(update={"url": self.place.url})

    def unusual(self, done: Manifest) -> list[str]:
        """Return what is unusual of the backup beside those before it, of the same source. Does not raise.

        A destination that holds nothing is new or was emptied on purpose, or its disk is not mounted.
        """
        own = retention.name_of(done.url)
        try:
            older = sorted(
                name for name in self.task_place.folders() if manifest.begun(name) is not None and name < own
            )
            found = manifest.survey(self.task_place, older[-BEFORE_MAX:])
        except Exception as error:  # noqa: BLE001  storage libraries raise any exception; the backup is complete
            self.ctx.log.warning("not compared with the backups before: %s: %s", type(error).__name__, error)
            return []
        succeeded_at = self.ctx.succeeded_at
        if not older and succeeded_at is not None and not self.ctx.params.copies:
            return [f"{self.task_place.url} held no backup, and a run succeeded at {succeeded_at:%F %R} UTC: {EMPTIED}"]
        return unusual(done, [backup for backup in found.complete if self.held.holds(backup)])

    def copy(self, done: Manifest) -> None:
        """Complete the backup at the other destinations. A destination that fails is owed the backup.

        Raises `BackupStopped`.
        """
        stored = done if done.token != self.ctx.token else self.content.sealed(done)
        self.copies.complete(self.task_place, stored, self.held)

    def prune(self, done: Manifest) -> retention.Pruned:
        """Remove old backups, if this attempt still holds the run and its backup is complete.

        Raises `Fenced` and `Vanished`: if this attempt was paused while it wrote its manifest, another one may have
        taken the run over and removed the files.
        """
        fenced: Fenced | None = None
        try:
            self.ctx.save_checkpoint(self.begun | {"finished": done.url})
        except Fenced as error:
            fenced = error
        try:
            self._check_stored(done)
            self._check_parents(done)
        except Vanished:
            self._discard()
            raise
        except Exception as error:  # noqa: BLE001  storage libraries raise any exception; it is reported
            if fenced is None:
                return retention.Pruned(failed=(f"{done.url}: {type(error).__name__}: {error}",))
        if fenced is not None:
            raise fenced
        kept = None if self.held.name is None else rules_of(self.ctx.params.keep)
        before = self.begun["begun"]
        removing, lock = set(self.begun.get("removing", ())), threading.Lock()

        def note(names: Sequence[str]) -> None:
            with lock:  # copies are pruned in threads
                removing.update(names)
                noted = retention.begun_by_now(before[:-1], before[-1], sorted(removing))
                self.ctx.save_checkpoint(noted | {"finished": done.url})

        token, now = self.ctx.token, done.finished
        pruned = retention.prune(self.task_place, done.url, token, self.held, kept, now, before, note)
        self.copies.prune(done, self.held, before, note)
        return pruned

    def _earlier(self) -> EarlierChain:
        """Return the newest backup of the source by an earlier run, and what it needs. Raises `BrokenChain`."""
        names = ((by.created, by.token, name) for name in self.task_place.folders() if (by := manifest.begun(name)))
        for _, token, name in sorted(names, reverse=True):
            try:
                found = manifest.read_manifest(self.task_place.inside(name))
            except manifest.NoBackup:
                continue  # the removal of old backups tells of it
            if found is None or token >= self.ctx.token or found.run_id == self.ctx.run_id:
                continue
            if found.source_type == self.ctx.params.source.type and self.held.holds(found):
                return EarlierChain(
                    chain_of(found, self._read), partial(self._content_of, self.task_place.inside(name))
                )
        return EarlierChain()

    def _content_of(self, place: Place, entry: FileEntry) -> Content:
        encryption = self.content.encryption
        return Content(stored_content(place, entry, quiet, None if encryption is None else encryption.metadata))

    def _read(self, name: str) -> Manifest | None:
        return manifest.read_manifest(self.task_place.inside(name))

    def _check_parents(self, done: Manifest) -> None:
        """Raise `Vanished` unless the backups that this one needs are still there."""
        try:
            chain_of(done, self._read)
        except BrokenChain as error:
            raise Vanished(f"another run has removed what this backup needs: {error}") from None

    def _check_stored(self, done: Manifest) -> None:
        """Raise `Vanished` unless every file exists with the size with which it was written."""
        place = self.task_place.inside(retention.name_of(done.url)) if done.url else self.place
        for file in done.files:
            try:
                found = place.size_bytes(file.name)
            except (FileNotFoundError, NotADirectoryError):
                now = "the file does not exist"
            else:
                if found is None or found == file.stored_bytes:
                    continue
                now = f"the file has {found} bytes"
            raise Vanished(
                f"{place.url}/{file.name}: {file.stored_bytes} bytes were written, and now {now}: another attempt "
                "or another program has removed or changed it; this attempt makes no backup"
            )

    def _remove_unnamed(self, done: Manifest) -> None:
        """Remove what is in the folder of a complete backup beside it. A failure is only logged: it spoils nothing."""
        place = self.task_place.inside(retention.name_of(done.url)) if done.url else self.place
        try:
            remove_unnamed(place, done.files)
        except Exception as error:  # noqa: BLE001  storage libraries raise any exception
            self.ctx.log.warning("%s: files that are not needed stay: %s: %s", place.url, type(error).__name__, error)

    def _discard(self) -> None:
        """Remove the files that were written. A failure is only logged: the caller raises the attempt's own error."""
        self.ctx.log.info("removing what was written to %s", self.place.url)
        try:
            retention.remove(self.place)
        except Exception as error:  # noqa: BLE001  storage libraries raise any exception
            self.ctx.log.warning("%s could not be removed: %s: %s", self.place.url, type(error).__name__, error)
        self.copies.discard(retention.name_of(self.place.url))
