"""Decides which backups to keep, and removes the others, and the leftovers of attempts that made no backup.

A folder is removed only if its name has exactly the form of `folder_name`, with a smaller token than the attempt that
removes it. So folders of other programs, copies under other names and backups of newer attempts stay. Backups of
another lineage (`tasks.backup.lineage`) stay too, and backups whose manifest cannot be read, because a later version
may have written it, or the disk may be damaged.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from tasks.backup.chain import with_parents
from tasks.backup.keep import KeepRules, why_kept
from tasks.backup.lineage import Lineage
from tasks.backup.manifest import NAME, Manifest, begun, survey
from tasks.backup.proofs import last_proven
from tasks.places.object_lock import StillLocked
from tasks.places.place import Place

ABANDONED_AFTER: Final = timedelta(days=1)
"""The age from which a folder without a manifest is a leftover, counted from its beginning and from its last write.

Another run of the task may still write to it (`overlap: allow`), and this code cannot ask the cluster. Such a run finds
its files missing before it writes its manifest, and fails. So its work is lost, but never a complete backup.
"""

LEFTOVERS_MAX: Final = 50
"""The most old folders that one run checks for leftovers. It checks the newest ones."""

_BEGUN_MAX: Final = 500


@dataclass(frozen=True)
class Pruned:
    """The result of a removal at one place."""

    #: The names of the folders that were removed.
    removed: tuple[str, ...] = ()
    #: Sentences about folders that could not be removed, and locks that could not be renewed.
    failed: tuple[str, ...] = ()
    #: Sentences about manifests that cannot be read.
    unreadable: tuple[str, ...] = ()
    #: The number of backups of other lineages or of no lineage; known only if `keep` is given.
    others: int = 0
    #: Sentences about folders that go once their lock expires, with that time.
    locked: tuple[str, ...] = ()


def surplus(found: Sequence[Manifest], made: str, keep: KeepRules, token: int, proven: str | None = None) -> list[str]:
    """Return the names of the backups in `found` that `keep` does not retain.

    The backup at the URL `made` always stays, and counts as the newest, whatever the members' clocks say. A backup
    whose token is not smaller than `token` stays too, so that an attempt whose run was taken over removes no backup of
    the attempt that took it over. The backup `proven`, by its folder's name, stays: it is known to restore. A backup
    that a staying one needs (`tasks.backup.chain`) stays.
    """
    newest = max((backup.created for backup in found), default=None)
    as_dated = [backup.model_copy(update={"created": newest}) if backup.url == made else backup for backup in found]
    staying = why_kept(as_dated, keep)
    kept = {backup.name for backup in found if backup.url == made or backup.url in staying or backup.name == proven}
    needed = with_parents(kept, found)
    others = [backup.name for backup in found if backup.name not in needed]
    return [name for name in others if (by := begun(name)) is not None and by.token < token]


def possible_leftovers(names: Sequence[str], token: int, now: datetime) -> list[str]:
    """Return the folders in `names` that may be leftovers, as older attempts began them long ago. Reads names only.

    >>> names = ["20260101T000000.000000Z-1", "20260103T000000.000000Z-2", "20260101T000000.000000Z-9", "photos"]
    >>> possible_leftovers(names, 3, begun("20260103T000000.000000Z-3").created)
    ['20260101T000000.000000Z-1']
    """
    known = [(by.created, name) for name in names if (by := begun(name)) is not None and by.token < token]
    return [name for created, name in sorted(known) if now - created >= ABANDONED_AFTER][-LEFTOVERS_MAX:]


def prune(
    place: Place,
    made: str,
    token: int,
    lineage: Lineage,
    keep: KeepRules | None,
    now: datetime,
    before: Sequence[str] = (),
    note: Callable[[Sequence[str]], None] = lambda names: None,
) -> Pruned:
    """Remove leftovers, and the backups of a lineage that `keep` does not retain (None: retain all).

    `made` is the URL of the backup that the attempt with `token` just made. Backups of other lineages, or of no
    lineage, are neither counted nor removed. `before` names the folders that earlier attempts at the run began: what
    they completed while this attempt was at work is removed. `note` is called with the names of the folders that go,
    before the first one goes. Raises only what `note` raises.
    """
    removed: list[str] = []
    failed: list[str] = []
    locked: list[str] = []
    unreadable: tuple[str, ...] = ()
    try:
        names = [name for name in place.folders() if begun(name) is not None]
        old = possible_leftovers(names, token, now)
        few = [name for name in names if name in old or name in before or name == name_of(made)]
        found = survey(place, few if keep is None and place.lock is None else names)
        unreadable = found.unreadable
        ours = [manifest for manifest in found.complete if lineage.holds(manifest)]
        others = 0 if keep is None else len(found.complete) - len(ours)
        proven = None if keep is None else last_proven(place, [name_of(manifest.url) for manifest in ours])
        going = [] if keep is None else surplus(ours, made, keep, token, proven)
        going += [name for name in found.without if name in old and _silent(place.inside(name), now)]
        going += [name for name in found.superseded if name != name_of(made) and _earlier(name, token)]
    except Exception as error:  # noqa: BLE001  storage libraries raise any exception; it is reported
        return Pruned(failed=(f"{place.url}: {type(error).__name__}: {error}",), unreadable=unreadable)
    if going:
        note(going)
    for name in sorted(going, reverse=True):  # the newest first, so that no backup stays without one that it needs
        try:
            remove(place.inside(name))
        except StillLocked as error:
            locked.append(str(error))
        except Exception as error:  # noqa: BLE001  as above
            failed.append(f"{name}: {type(error).__name__}: {error}")
        else:
            removed.append(name)
    if not place.removes:
        removed = []
    failed += _remove_uploads(place, lambda name: bool(possible_leftovers([name], token, now)))
    failed += renew_locks(place, [manifest for manifest in ours if name_of(manifest.url) not in going])
    return Pruned(tuple(removed), tuple(failed), unreadable, others, tuple(locked))


def renew_locks(place: Place, staying: Sequence[Manifest]) -> list[str]:
    """Renew the locks of backups that stay, where `place` locks files. Returns a sentence for each failure."""
    failed: list[str] = []
    for manifest in staying if place.lock is not None else ():
        folder = place.inside(name_of(manifest.url))
        try:
            if not folder.lock_ends_soon(NAME):
                continue  # it is renewed last, so all other files of the backup are locked for as long
            folder.renew({file.name: file.version for file in manifest.files})
            folder.renew({NAME: None})
        except Exception as error:  # noqa: BLE001  storage libraries raise any exception; it is reported
            failed.append(f"{folder.url}: its lock could not be renewed: {type(error).__name__}: {error}")
    return failed


def remove(place: Place) -> None:
    """Remove a backup: first its manifest, so that an interrupted removal leaves no damaged backup."""
    if not place.keeps_versions:
        place.remove(NAME)
    place.remove_folder()


def begun_before(checkpoint: Any) -> list[str]:
    """Read, from a run's checkpoint, the folders that earlier attempts at it have begun (see `begun_by_now`)."""
    return _names(checkpoint, "begun")


def removing_before(checkpoint: Any) -> list[str]:
    """Read, from a run's checkpoint, the old backups that earlier attempts at it may have removed in part."""
    return _names(checkpoint, "removing")


def _names(checkpoint: Any, key: str) -> list[str]:
    names = checkpoint.get(key, []) if isinstance(checkpoint, dict) else []
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def begun_by_now(before: Sequence[str], name: str, removing: Sequence[str] = ()) -> dict[str, Any]:
    """Make the checkpoint of an attempt that begins the folder `name`, so that the next attempt can remove it.

    `removing` names the old backups of which parts may be left.
    """
    begun = {"begun": [*before, name][-_BEGUN_MAX:]}
    return begun | ({"removing": [*removing][:_BEGUN_MAX]} if removing else {})


def unfinished(place: Place, before: Sequence[str], token: int) -> list[Place]:
    """Return those folders in `before`, of earlier attempts at the same run, that exist and have no manifest.

    The oldest comes first. Raises the storage's errors.
    """
    older = [name for name in before if (by := begun(name)) is not None and by.token < token]
    there = set(place.folders()) if older else set()
    return [left for name in sorted(there.intersection(older)) if (left := place.inside(name)).read(NAME) is None]


def remove_unfinished(place: Place, before: Sequence[str], token: int, complete: str | None = None) -> Pruned:
    """Remove those folders in `before`, of earlier attempts at the same run, that have no manifest. Does not raise.

    `before` may also name old backups that these attempts were removing: without their manifest they are no backups.
    The folder `complete` stays: of the backup in it, which is to be copied here, only uploads that were cut short go.

    Their age does not matter: once the attempt with `token` has committed a checkpoint, earlier attempts cannot
    complete a backup.
    """
    removed: list[str] = []
    failed: list[str] = []
    try:
        for left in unfinished(place, [name for name in before if name != complete], token):
            try:
                left.remove_folder()
            except StillLocked:
                continue  # it is listed by `prune` once it is old, and removed once its lock has expired
            removed.append(name_of(left.url))
    except Exception as error:  # noqa: BLE001  storage libraries raise any exception; it is reported
        failed.append(f"{place.url}: {type(error).__name__}: {error}")
    older = {name for name in before if _earlier(name, token)}
    if older:
        failed += _remove_uploads(place, older.__contains__)
    return Pruned(tuple(removed), tuple(failed))


def name_of(url: str) -> str:
    """Return the last part of a URL."""
    return url.rpartition("/")[2]


def _remove_uploads(place: Place, chosen: Callable[[str], bool]) -> list[str]:
    """Abort uploads that dead attempts did not complete. Returns a sentence if that fails."""
    try:
        place.remove_uploads(chosen)
    except Exception as error:  # noqa: BLE001  storage libraries raise any exception; it is reported
        return [f"{place.url}: uploads that were not completed: {type(error).__name__}: {error}"]
    return []


def together(removals: Sequence[Pruned]) -> Pruned:
    """Return several removals as one."""
    return Pruned(
        removed=tuple(name for each in removals for name in each.removed),
        failed=tuple(why for each in removals for why in each.failed),
        unreadable=tuple(why for each in removals for why in each.unreadable),
        others=sum(each.others for each in removals),
        locked=tuple(why for each in removals for why in each.locked),
    )


def _earlier(name: str, token: int) -> bool:
    return (by := begun(name)) is not None and by.token < token


def _silent(place: Place, now: datetime) -> bool:
    written = place.last_written()
    return written is None or now - written >= ABANDONED_AFTER
