"""The copies of backups at further destinations: made at the same time or afterwards, and caught up by later runs.

What a destination lacks is not recorded anywhere. It is computed in each run: the backups at the first destination that
the destination's `keep` would retain, without those that are there. So a new or an emptied destination is filled, too.
"""

import errno
import hashlib
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal

from tasks.access import Access, AccessRefused
from tasks.backup import retention
from tasks.backup.archive import CHUNK_BYTES, Damaged
from tasks.backup.content import BackupStopped
from tasks.backup.errands import Errand, run_errands
from tasks.backup.keep import KeepRules, rules_of, why_kept
from tasks.backup.lineage import Lineage, newest_identified
from tasks.backup.manifest import FileEntry, Manifest, read_manifest, survey, with_versions, write_manifest
from tasks.backup.objects import remove_unnamed
from tasks.backup.params import INSIDE, BackupParams, CopyParams, DestinationParams, place_url
from tasks.backup.sources.folder import FolderSource
from tasks.backup.tee import Behind, Branch, Silent
from tasks.errors import MissingSecret
from tasks.kind import Context
from tasks.places.object_lock import LockTime
from tasks.places.place import BadDestination, NoBucket, NoObjectLock, Place, resolved
from tasks.source_identity import differing, identity_id

EMPTIED: Final = "it is new, was emptied, or its disk is not mounted"
"""Why a destination may hold nothing where backups were made."""

CATCH_UP_MAX: Final = 20
"""The most older backups that one run copies to one destination, the oldest first."""

OwedReason = Literal[
    "credentials",
    "clock",
    "access",
    "no_room",
    "no_bucket",
    "other_task",
    "silent",
    "unreachable",
    "damaged",
    "more",
    "error",
]
"""Why a destination lacks backups."""

_TOLD_MAX: Final = 500
"""The most characters that the state keeps of what a run owes."""

_NO_ROOM: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_CREDENTIALS: Final = (
    "ExpiredToken",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "AccessDenied",
    "InvalidToken",
    "TokenRefreshRequired",
    "NoCredentials",
    "Forbidden",
    "Access Denied",
)
_NO_SPACE: Final = ("StorageFull", "QuotaExceeded", "InsufficientStorage", "no space", "No space")


class OtherTask(Exception):
    """The folder for a task's copies holds backups of another task or source."""


@dataclass(frozen=True, kw_only=True)
class Owed:
    """The backups that a run owes to a destination, and why."""

    #: The URL of the task's folder at the destination.
    destination: str
    #: How many backups the destination lacks, as far as is known.
    backups: int
    #: Why, as a word.
    reason: OwedReason
    #: Why, as a sentence.
    why: str


def reason_of(error: Exception) -> OwedReason:
    """Return the word for an error of a destination.

    >>> reason_of(OSError(errno.ENOSPC, "No space left on device")), reason_of(PermissionError("ExpiredToken"))
    ('no_room', 'credentials')
    """
    text = f"{type(error).__name__} {error}"
    match error:
        case Silent():
            return "silent"
        case NoBucket() | NoObjectLock():
            return "no_bucket"
        case AccessRefused() | BadDestination() | OSError(errno=errno.EROFS):
            return "access"
        case OtherTask():
            return "other_task"
        case Damaged():
            return "damaged"
        case PermissionError(__cause__=cause) if "RequestTimeTooSkewed" in f"{error} {cause}":
            return "clock"
        case MissingSecret() | PermissionError():
            return "credentials"
        case OSError(errno=code) if code in _NO_ROOM:
            return "no_room"
        case _ if any(sign in text for sign in _NO_SPACE):
            return "no_room"
        case _ if any(sign in text for sign in _NO_CREDENTIALS):
            return "credentials"
        case ConnectionError() | TimeoutError() | FileNotFoundError() | NotADirectoryError() | FileExistsError():
            return "unreachable"
        case _ if "Connect" in text or "Timeout" in text:
            return "unreachable"
    return "error"


def owed_sentences(owed: Sequence[Owed]) -> list[str]:
    """Return a sentence for each destination that lacks backups; with a word for why, if sentences would be too many.

    >>> full = Owed(destination="/mnt/a", backups=1, reason="no_room", why="No space left on device")
    >>> owed_sentences([full]), owed_sentences([full] * 20)[0]
    (['/mnt/a lacks 1: No space left on device'], '/mnt/a lacks 1: no_room')
    """
    sentences = [f"{each.destination} lacks {each.backups}: {each.why}" for each in owed]
    if len("; ".join(sentences)) <= _TOLD_MAX:
        return sentences
    return [f"{each.destination} lacks {each.backups}: {each.reason}" for each in owed]


@dataclass(kw_only=True)
class _Copy:
    """One further destination in one attempt."""

    #: The part of the params that names it.
    params: CopyParams
    #: The URL of the task's folder there.
    url: str
    #: The task's folder; None: it could not be opened.
    place: Place | None = None
    #: Writes what the first destination gets, at the same time; None: this destination is written afterwards.
    branch: Branch | None = None
    #: Why it has failed; None: it has not.
    fault: Exception | None = None
    #: The number of backups that it lacks.
    lacks: int = 1
    #: What was removed there.
    pruned: retention.Pruned = field(default_factory=retention.Pruned)

    @property
    def there(self) -> Place:
        """The task's folder. Raises if it could not be opened."""
        assert self.place is not None, "its fault is looked at first"
        return self.place

    @property
    def keep(self) -> KeepRules | None:
        return rules_of(self.params.keep)


class BackupCopies:
    """The destinations of one attempt beside the first. A failure of one is kept, and becomes one of `owed`."""

    def __init__(self, ctx: Context[BackupParams], now: Callable[[], datetime]) -> None:
        self._ctx = ctx
        self._now = now
        self._copies = [_Copy(params=one, url=place_url(one.destination, ctx.task)) for one in ctx.params.copies]
        self._copied_bytes = 0
        #: Sentences about destinations that hold nothing, although another one holds backups.
        self.emptied: list[str] = []
        #: The branches of the destinations that are written at the same time; `begin` fills this list.
        self.branches: list[Branch] = []

    def begin(
        self,
        first: Place,
        name: str | None,
        held: Lineage,
        identity: dict[str, str],
        before: Sequence[str],
        kept: Collection[FileEntry] = (),
        complete: str | None = None,
    ) -> None:
        """Open the destinations, and remove what earlier attempts at the run left. Then they can be written.

        `first` is the task's folder at the first destination. `name` is that of the folder of a backup that is about to
        be written; None: it is complete already. `before` names the folders that earlier attempts began. `kept` are
        objects that were taken over from these: what is there of them is not sent again. `complete` is the folder of a
        backup that an earlier attempt completed.
        """

        def ready(copy: _Copy, errand: Errand) -> None:
            # Here, because an SFTP server is connected to at once, and may not answer.
            copy.place = opened_destination(
                copy.params, self._ctx.task, self._ctx.secret, self._ctx.access, self._now()
            )
            copy.there.check_lock()
            _check_elsewhere(copy.there, first, self._ctx.params)
            _check_fits(copy.there, self._ctx.task, held, identity, self._ctx.params.accept_source)
            errand.tick()
            if name is not None and kept:
                _take_over(copy.there, name, retention.unfinished(copy.there, before, self._ctx.token), kept)
                errand.tick()
            copy.pruned = retention.remove_unfinished(copy.there, before, self._ctx.token, complete)

        self._each(ready)
        for copy in self._well():
            if name is not None and copy.params.when == "now":
                copy.branch = Branch(copy.there.inside(name))
                self.branches.append(copy.branch)

    def complete(self, first: Place, done: Manifest, held: Lineage) -> None:
        """Make the backup `done` complete at each destination, and copy older ones that it lacks from `first`."""
        if not self._copies:
            return
        ours = self._earlier(first, held)
        for copy in self._copies:
            if copy.branch is not None:
                self._finish(copy, copy.branch)

        def follow(copy: _Copy, errand: Errand) -> None:
            there = survey(copy.there).complete
            lacking = lacking_backups(ours, there, done, copy.keep)
            if said_of := emptied(first.url, ours, copy.url, there, done):
                self.emptied.append(said_of)
            copy.lacks = 1 + len(lacking)
            self._copy_backup(first, copy, done, errand, copy.branch)
            copy.lacks -= 1
            for backup in lacking[:CATCH_UP_MAX]:
                self._copy_backup(first, copy, backup, errand, None)
                copy.lacks -= 1
                self._ctx.log.info("%s: caught up with %s", copy.url, retention.name_of(backup.url))

        self._each(follow)

    def _earlier(self, first: Place, held: Lineage) -> list[Manifest]:
        """Return the backups at the first destination; none, if this member may write there and not read."""
        try:
            return [backup for backup in survey(first).complete if held.holds(backup)]
        except Exception as error:  # noqa: BLE001  storage libraries raise any exception; the backup itself is complete
            self._ctx.log.warning("older backups are not copied: %s cannot be read: %s", first.url, said(error))
            return []

    def prune(
        self, done: Manifest, held: Lineage, before: Sequence[str], note: Callable[[Sequence[str]], None]
    ) -> None:
        """Remove, at each destination that has the backup `done`, what its `keep` does not retain, and leftovers.

        `before` and `note` are those of `tasks.backup.retention.prune`; `note` is called in several threads.
        """

        def prune(copy: _Copy, errand: Errand) -> None:
            kept = None if held.name is None else copy.keep
            made = copy.there.inside(retention.name_of(done.url)).url
            pruned = retention.prune(copy.there, made, self._ctx.token, held, kept, done.finished, before, note)
            copy.pruned = retention.together([copy.pruned, pruned])

        self._each(prune)

    def discard(self, name: str) -> None:
        """Stop writing, and remove the folder `name` at each destination. Failures are logged."""
        for branch in self.branches:
            branch.stop()
        errands = []
        for copy in self._copies:
            if copy.place is not None:
                folder = copy.place.inside(name)
                errands.append((copy, Errand(lambda errand, folder=folder: retention.remove(folder))))  # type: ignore[misc]
        run_errands([errand for _, errand in errands], lambda: None)
        for copy, errand in errands:
            if errand.error is not None:
                self._ctx.log.warning("%s: %s could not be removed: %s", copy.url, name, said(errand.error))

    def _step(self) -> None:
        if self._ctx.cancelled:
            raise BackupStopped("asked to stop while a complete backup was copied: the next run goes on")

    @property
    def owed(self) -> list[Owed]:
        """What each destination lacks. Destinations that lack nothing are left out."""
        owed = []
        for copy in self._copies:
            if copy.fault is not None and copy.lacks:
                owed.append(
                    Owed(
                        destination=copy.url,
                        backups=copy.lacks,
                        reason=reason_of(copy.fault),
                        why=said(copy.fault),
                    )
                )
            elif copy.lacks > 0:
                why = f"one run copies {CATCH_UP_MAX} older backups at most; the next runs copy the others"
                owed.append(Owed(destination=copy.url, backups=copy.lacks, reason="more", why=why))
        return owed

    @property
    def pruned(self) -> list[retention.Pruned]:
        """What was removed at each destination."""
        return [copy.pruned for copy in self._copies]

    @property
    def complete_urls(self) -> list[str]:
        """The URLs of the tasks' folders at the destinations that lack nothing."""
        return [copy.url for copy in self._copies if copy.fault is None and not copy.lacks]

    def _well(self) -> list[_Copy]:
        return [copy for copy in self._copies if copy.fault is None]

    def _each(self, work: Callable[[_Copy, Errand], None]) -> None:
        """Do `work` for each destination that has not failed, all at once. A failure becomes its fault."""
        pairs = [(copy, Errand(lambda errand, copy=copy: work(copy, errand))) for copy in self._well()]  # type: ignore[misc]
        run_errands([errand for _, errand in pairs], self._step)
        for copy, errand in pairs:
            if errand.error is not None:
                copy.fault = errand.error
                self._ctx.log.warning("%s: %s", copy.url, said(errand.error))

    def _finish(self, copy: _Copy, branch: Branch) -> None:
        """Wait for what is still to be written at the same time. After most faults it is tried once more by copying."""
        branch.finish(self._step)
        if isinstance(branch.fault, Silent):
            copy.fault = branch.fault
        elif branch.fault is not None:
            self._ctx.log.warning("%s: %s; it is copied afterwards", copy.url, said(branch.fault))

    def _copy_backup(self, first: Place, copy: _Copy, backup: Manifest, errand: Errand, branch: Branch | None) -> None:
        """Copy one backup from `first`, without the objects that `branch` has written. The manifest comes last."""
        name = retention.name_of(backup.url)
        source, target = first.inside(name), copy.there.inside(name)
        there = read_manifest(target)
        if there is not None:
            _check_same(there, backup)
            return
        written = set() if branch is None else branch.whole
        versions = {} if branch is None else branch.place.versions
        for entry in backup.files:
            errand.tick()
            if _has(target, entry, errand.tick, entry.name in written):
                if entry.name not in versions and (version := target.version_of(entry.name)) is not None:
                    versions[entry.name] = version
                continue
            _copy_object(source, target, entry, lambda size_bytes: self._moved(errand, size_bytes))
        remove_unnamed(target, backup.files)
        errand.tick()
        write_manifest(target, with_versions(backup, versions | target.versions))

    def _moved(self, errand: Errand, size_bytes: int) -> None:
        errand.tick()
        self._copied_bytes += size_bytes
        self._ctx.progress(self._copied_bytes, None, "bytes copied")


def lacking_backups(
    first: Sequence[Manifest], there: Sequence[Manifest], done: Manifest, keep: KeepRules | None
) -> list[Manifest]:
    """Return the backups at the first destination that another one lacks although its `keep` retains them; the oldest
    first. `done` is left out.
    """
    known = {retention.name_of(backup.url): backup for backup in (*there, *first)}
    wanted = set(known)
    if keep is not None:
        kept = why_kept(list(known.values()), keep)
        wanted = {name for name, backup in known.items() if backup.url in kept}
    has = {retention.name_of(backup.url) for backup in (*there, done)}
    return sorted(
        (backup for backup in first if (name := retention.name_of(backup.url)) in wanted and name not in has),
        key=lambda backup: (backup.created, backup.token),
    )


def emptied(
    first_url: str, first: Sequence[Manifest], copy_url: str, there: Sequence[Manifest], done: Manifest
) -> str | None:
    """Return a sentence if one of two destinations holds no backup before `done`, and the other holds some; None: no.

    It may be new or emptied on purpose. But a disk that is not mounted looks the same, and would be written beside.
    """
    name = retention.name_of(done.url)
    here, elsewhere = (sum(retention.name_of(one.url) != name for one in found) for found in (first, there))
    if bool(here) == bool(elsewhere):
        return None
    empty, other, count = (copy_url, first_url, here) if here else (first_url, copy_url, elsewhere)
    return f"{empty} held no backup, and {other} holds {count}: {EMPTIED}"


def said(error: Exception) -> str:
    """Return what an error of a storage says, in one line of at most 500 characters."""
    text = " ".join(str(error).split())
    if text.endswith("None"):  # some stores give no message with their error
        text = str(error.__cause__)
    return text[:500] if isinstance(error, _SENTENCES) and text else f"{type(error).__name__}: {text}"[:500]


_SENTENCES: Final = (
    OtherTask,
    Silent,
    Behind,
    Damaged,
    NoBucket,
    NoObjectLock,
    AccessRefused,
    BadDestination,
    MissingSecret,
)


def opened_destination(
    params: DestinationParams, task: str, secret: Callable[[Any], str], access: Access, now: datetime
) -> Place:
    """Return the folder of a task's backups at a destination. Raises the errors of `secret` and of `Place`."""
    return Place(
        place_url(params.destination, task),
        resolved(params.options, secret),
        access,
        lock=LockTime.of(params.lock_days, now),
        removes=params.prune == "here",
    )


def _check_elsewhere(place: Place, first: Place, params: BackupParams) -> None:
    """Raise `BadDestination` for a copy that is the first destination itself, or in the folder to back up."""
    if place.is_same(first):
        raise BadDestination(f"{place.url} is the first destination itself, {first.url}: a copy has to be elsewhere")
    if isinstance(params.source, FolderSource) and place.is_within(Path(params.source.path)):
        raise BadDestination(f"{place.url}: {INSIDE}, {params.source.path}")


def _check_fits(place: Place, task: str, held: Lineage, identity: dict[str, str], accepted: Sequence[str]) -> None:
    """Raise `OtherTask` if the newest backup at a destination is of another task or source."""
    newest = newest_identified(place)
    if newest is None or newest.identity is None or newest.lineage == held.name:
        return
    whose = None
    if newest.task != task:
        whose = f"the task {newest.task}"
    elif differing(newest.identity, identity) and identity_id(identity) not in accepted:
        whose = "another source"
    if whose is not None:
        raise OtherTask(
            f"{place.url} holds backups of {whose}, the newest {newest.url}, made on {newest.node}: give the copies "
            "another destination"
        )


def _check_same(there: Manifest, backup: Manifest) -> None:
    if (there.task, there.run_id, there.token) != (backup.task, backup.run_id, backup.token):
        raise OtherTask(
            f"{there.url} is a backup of the run {there.run_id}, not of {backup.run_id}: another cluster writes to the "
            "same destination"
        )


def _take_over(place: Place, name: str, earlier: Sequence[Place], kept: Collection[FileEntry]) -> None:
    """Move the objects that have the sizes of those in `kept` from the folders of earlier attempts into `name`.

    Their content is compared before the backup is complete. What is locked stays where it is.
    """
    if place.lock is not None or not place.removes:
        return
    for folder in reversed(earlier):
        there = set(folder.names(""))
        for entry in kept:
            if entry.name in there and folder.size_bytes(entry.name) == entry.stored_bytes:
                folder.move(entry.name, entry.name, into=place.inside(name))


def _has(target: Place, entry: FileEntry, tick: Callable[[], None], written: bool) -> bool:
    """Whether a destination has an object. What this attempt has not `written` itself is read and compared."""
    try:
        found = target.size_bytes(entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return False
    if found not in {None, entry.stored_bytes}:
        return False
    if written:
        return True
    stored_sum = hashlib.sha256()
    with target.reading(entry.name) as file:
        while chunk := file.read(CHUNK_BYTES):
            tick()
            stored_sum.update(chunk)
    return stored_sum.hexdigest() == entry.sha256


def _copy_object(source: Place, target: Place, entry: FileEntry, moved: Callable[[int], None]) -> None:
    """Copy an object; `moved` gets the size of each piece. Raises `Damaged` if it is not as its manifest says."""
    stored_sum = hashlib.sha256()
    try:
        with source.reading(entry.name, entry.version) as file, target.writing(entry.name) as out:
            while chunk := file.read(CHUNK_BYTES):
                stored_sum.update(chunk)
                out.write(chunk)
                moved(len(chunk))
            if stored_sum.hexdigest() != entry.sha256:
                raise Damaged(f"{source.url}/{entry.name} is damaged: its checksum is not that in its manifest")
    except Exception:
        _remove_quietly(target, entry.name)
        raise


def _remove_quietly(place: Place, name: str) -> None:
    try:
        place.remove(name)
    except Exception as error:  # noqa: BLE001  the caller raises why the file is incomplete; a later run removes it
        logging.getLogger(__name__).debug("%s/%s could not be removed: %s", place.url, name, error)
