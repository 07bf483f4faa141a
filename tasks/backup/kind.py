"""The kind `backup`: a PostgreSQL database, an SQLite file or a folder, compressed, to any fsspec URL."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tasks.backup import lineage, manifest, retention
from tasks.backup.attempt import BackupAttempt
from tasks.backup.content import ENVIRONMENT, BackupContent
from tasks.backup.copies import BackupCopies, opened_destination, owed_sentences
from tasks.backup.datasets import datasets_of_backup
from tasks.backup.inventory import inventory
from tasks.backup.memory import keep_freed_memory
from tasks.backup.params import INSIDE, BackupParams, place_url
from tasks.backup.sources import folder
from tasks.backup.sources.in_place import closed_to_others
from tasks.backup.tee import Tee
from tasks.datasets import Datasets
from tasks.kind import Context
from tasks.needs import Needs, credential_groups
from tasks.places.place import BadDestination, Place, place_reach
from tasks.reach import Reach
from tasks.source_identity import identity_id

RESULT: Final = {
    "url": "the backup's URL",
    "bytes": "the size of the content",
    "stored_bytes": "the size of the compressed file",
    "sha256": "the checksum of the compressed file; null if there are several",
    "objects": "the files of the backup below its URL: the name of each, and its size as it is stored; 100 at most",
    "copies": "the URLs of the task's folders at further destinations that lack nothing",
    "owed": "the further destinations that lack backups: the `destination`, the number of `backups`, a `reason` "
    "(credentials, clock, access, no_room, no_bucket, other_task, silent, unreachable, damaged, more, error) and "
    "a sentence",
    "degraded": "what `owed` says, as text; null if it says nothing",
    "remarks": "the number of remarks in the manifest, such as files that vanished",
    "unusual": "what is unusual beside the ten backups before: size, rows, how long it took, tables that are empty "
    "now; and destinations that held nothing",
    "removed": "the number of old backups and leftovers that were removed",
    "locked": "backups and leftovers that are to go once their lock expires, and when; 100 at most",
    "not_removed": "those that could not be removed, and why; 20 at most",
    "unreadable": "the number of backups whose manifest cannot be read; they are neither counted nor removed",
    "others": "the number of backups of another source, or of none; they are neither counted nor removed",
    "backups": "the backups at the first destination after the run, the newest first, 50 at most: the `name` of each, "
    "when it was `created` and `finished`, its `node`, its sizes, the number of `remarks`, and its newest `proof`",
    "seconds": "how long the attempt took",
}
"""The fields of a run's result, with their descriptions for docs/reference."""


class Backup:
    """Makes a backup. It is valid once its manifest is written, which is the last step."""

    Params = BackupParams
    environment = ENVIRONMENT
    one_at_a_time = True

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now = now

    @staticmethod
    def local_data(params: BackupParams) -> list[str]:
        """Return the params that name data on the member's own disk (`tasks.kind.Kind`)."""
        return ["source"] if params.source.is_local() else []

    @staticmethod
    def reaches(params: BackupParams, task: str) -> list[Reach]:
        """Return the paths and hosts that the params of `task` name (`tasks.kind.Kind`)."""
        places = (place_reach(field, place_url(url, task), options) for field, url, options in _named(params))
        return [params.source.reach(), *places]

    @staticmethod
    def datasets(params: BackupParams, task: str) -> Datasets:
        """Return what is backed up, and the folders of the backups (`tasks.kind.Kind`)."""
        return datasets_of_backup(params, task)

    @staticmethod
    def needs(params: BackupParams, task: str) -> Needs:
        """Return the needs of an attempt (`tasks.kind.Kind`)."""
        source = params.source.needs()
        if source.everything:
            return source
        reaches = Backup.reaches(params, task)
        return Needs(
            reaches=(*reaches, *source.reaches),
            tools=source.tools,
            network=any(reach.path is None for reach in reaches),
            own_credentials=tuple(
                dict.fromkeys(group for _, url, options in _named(params) for group in credential_groups(url, options))
                | dict.fromkeys(source.own_credentials)
            ),
        )

    def run(self, ctx: Context[BackupParams]) -> dict[str, Any]:
        """Make one backup. Returns the fields of `RESULT`.

        Raises `AccessRefused`, `BackupStopped`, `BadDestination`, `Fenced`, `MissingSecret`, `NoBackupSource`,
        `NoBucket`, `NoObjectLock`, `OtherSource`, `Vanished`, and the errors of the source's module.
        """
        keep_freed_memory()
        # Only this user may read a backup's files, because the source's permissions may hide its data from others.
        with closed_to_others():
            return self._make(ctx)

    def _make(self, ctx: Context[BackupParams]) -> dict[str, Any]:
        began_s = time.monotonic()
        before = retention.begun_before(ctx.checkpoint)
        attempt = self._prepared(ctx, before)
        ctx.save_checkpoint(attempt.begun)
        done = attempt.completed(before)
        if done is None:
            attempt.adopt(before)
        left = [*before, *attempt.begun.get("removing", ())]
        cleared = retention.remove_unfinished(attempt.task_place, left, ctx.token)
        attempt.begin_copies(before, done)
        if done is None:
            done = attempt.write(self._now)
        ctx.log.info("%s: %d bytes, %d stored", done.url, done.size_bytes, done.stored_bytes)
        for remark in done.remarks[:100]:
            ctx.log.warning("%s", remark)
        jumps = attempt.unusual(done)
        for jump in jumps:
            ctx.log.warning("unusual: %s", jump)
        attempt.copy(done)
        jumps += sorted(attempt.copies.emptied)
        pruned = retention.together([cleared, attempt.prune(done), *attempt.copies.pruned])
        _warn_of_kept(ctx, pruned, attempt.identity)
        owed = attempt.copies.owed
        return {
            "url": done.url,
            "bytes": done.size_bytes,
            "stored_bytes": done.stored_bytes,
            "sha256": done.files[0].sha256 if len(done.files) == 1 else None,
            "objects": [{"name": file.name, "stored_bytes": file.stored_bytes} for file in done.files[:100]],
            "copies": attempt.copies.complete_urls,
            "owed": [asdict(each) for each in owed],
            # The cluster tells this and `unusual` on its channels: nobody reads the log of a run that succeeded.
            "degraded": "; ".join(owed_sentences(owed)) or None,
            "remarks": len(done.remarks),
            "unusual": jumps,
            "removed": len(pruned.removed),
            "locked": list(pruned.locked[:100]),
            "not_removed": [manifest.printable(why[:1000]) for why in pruned.failed[:20]],
            "unreadable": len(pruned.unreadable),
            "others": pruned.others,
            "backups": _inventory(ctx, attempt.task_place),
            "seconds": round(time.monotonic() - began_s, 3),
        }

    def _prepared(self, ctx: Context[BackupParams], before: Sequence[str]) -> BackupAttempt:
        """Check the source and the destination, and change nothing. `before`: folders that earlier attempts began."""
        created = self._now()
        # First the source, so that a refused one leaves nothing at the destination.
        ctx.params.source.check_readable(ctx.access, ctx.node)
        task_place = _task_place(ctx, created)
        name = manifest.folder_name(created, ctx.token)
        place = _new_place(task_place, name)
        copies = BackupCopies(ctx, self._now)
        sink = Tee(place, copies.branches) if ctx.params.copies else None
        content = BackupContent(ctx, place, created, self._now, sink)
        identity = content.identity()
        return BackupAttempt(
            ctx=ctx,
            task_place=task_place,
            place=place,
            created=created,
            content=content,
            copies=copies,
            identity=identity,
            held=_lineage(ctx, task_place, identity),
            begun=retention.begun_by_now(before, name, retention.removing_before(ctx.checkpoint)),
        )


def _inventory(ctx: Context[BackupParams], place: Place) -> list[dict[str, Any]]:
    try:
        return inventory(place)
    except Exception as error:  # noqa: BLE001  storage libraries raise any exception; the backup is complete
        ctx.log.warning("cannot list the backups at %s: %s: %s", place.url, type(error).__name__, error)
        return []


def _named(params: BackupParams) -> list[tuple[str, str, Mapping[str, Any]]]:
    """Return the field, the URL and the options of each destination."""
    copies = (
        (f"copies.{number}.destination", one.destination, one.options) for number, one in enumerate(params.copies)
    )
    return [("destination", params.destination, params.options), *copies]


def _task_place(ctx: Context[BackupParams], now: datetime) -> Place:
    """Return the folder of the task's backups. Raises `BadDestination` if it is inside the folder to back up."""
    params = ctx.params
    found = opened_destination(params, ctx.task, ctx.secret, ctx.access, now)
    found.check_lock()
    if isinstance(params.source, folder.FolderSource) and found.is_within(Path(params.source.path)):
        raise BadDestination(f"{found.url}: {INSIDE}, {params.source.path}")
    return found


def _new_place(task_place: Place, name: str) -> Place:
    """Return the folder of a new backup. Raises `FileExistsError` if it already contains a backup."""
    place = task_place.inside(name)
    if place.read(manifest.NAME) is not None:
        raise FileExistsError(f"{place.url} exists already: another cluster writes to the same destination")
    return place


def _lineage(ctx: Context[BackupParams], task_place: Place, identity: dict[str, str]) -> lineage.Lineage:
    """Return the lineage that a backup of the source with this identity continues. Raises `OtherSource`."""
    try:
        newest = lineage.newest_identified(task_place)
    except PermissionError as error:
        # A member that may write but not read there cannot remove old backups either, so continuing does no harm.
        ctx.log.warning("cannot read whether the backups at %s are of this source: %s", task_place.url, error)
        return lineage.Lineage(None)
    return lineage.continue_lineage(newest, identity, ctx.params.accept_source, ctx.node)


def _warn_of_kept(ctx: Context[BackupParams], pruned: retention.Pruned, identity: dict[str, str]) -> None:
    """Log which old folders were not removed: those that failed, and those that `keep` does not count."""
    for why in pruned.failed:
        ctx.log.warning("the backup is complete, but an old folder could not be removed: %s", why)
    for why in pruned.unreadable:
        ctx.log.warning("not counted and not removed: %s", why)
    if pruned.others:
        ctx.log.warning(
            "not counted and not removed: %d backups of another source, or made before sources were recorded (the "
            "latter count if the task's params have `accept_source: %s`)",
            pruned.others,
            identity_id(identity),
        )
