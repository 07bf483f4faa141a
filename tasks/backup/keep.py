"""Which backups to keep, and the removal of the others and of what attempts without a backup left behind.

What is removed has a name of exactly our form and a smaller token than the attempt that removes it: a folder of
somebody else's, a copy under another name and the backup of a newer attempt stay. So does what is of another lineage
(`tasks.backup.lineage`), and a manifest that cannot be read: it may be of a later version, or all that a damaged disk
has left.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from tasks.backup.destination import Place
from tasks.backup.lineage import Lineage
from tasks.backup.manifest import NAME, Manifest, begun, survey

SILENT: Final = timedelta(days=1)
"""What has no manifest, and was neither begun nor written to for so long, is nobody's any more.

Another run of the task may still be at it (`overlap: allow`), and nothing here can ask the cluster. If one is, it finds
its file gone before it writes its manifest, and fails: what is at stake is its work, never a backup.
"""

LOOKED_AT: Final = 50
"""So many folders that are old enough are looked into for leftovers, the newest: each is one of them for 50 runs."""

_BEGUN_MAX: Final = 500


@dataclass(frozen=True)
class Tidied:
    """What was removed; what could not be, and why; and whose manifests cannot be read, and why.

    `others`: how many backups of other lineages there are, or of none; known only where `keep` is given.
    """

    removed: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    others: int = 0


def surplus(found: Sequence[Manifest], made: str, keep: int, token: int) -> list[str]:
    """The names of those of `found` (newest first) that go when `keep` stay.

    The one named `made` (a URL) always stays, whatever the clocks of members say, and so does what has a token that is
    no smaller than `token`: an attempt that was taken over removes nothing of the one that took over.
    """
    others = [(name_of(manifest.url), manifest) for manifest in found if manifest.url != made]
    ours = [(name, by) for name, _ in others if (by := begun(name)) is not None]
    return [name for name, by in ours[keep - 1 :] if by.token < token]


def perhaps_left(names: Sequence[str], token: int, now: datetime) -> list[str]:
    """Those of `names` (folders) that may be leftovers, as far as names say: older attempts', not begun lately.

    >>> names = ["20260101T000000.000000Z-1", "20260103T000000.000000Z-2", "20260101T000000.000000Z-9", "photos"]
    >>> perhaps_left(names, 3, begun("20260103T000000.000000Z-3").created)
    ['20260101T000000.000000Z-1']
    """
    known = [(by.created, name) for name in names if (by := begun(name)) is not None and by.token < token]
    return [name for created, name in sorted(known) if now - created >= SILENT][-LOOKED_AT:]


def tidy(place: Place, made: str, token: int, lineage: Lineage, keep: int | None, now: datetime) -> Tidied:
    """Remove all but the newest `keep` backups of a lineage (None: none), and leftovers. Raises nothing.

    `made` is the URL of the backup that attempt `token` just made, `now` the time. Backups of other lineages, or of
    none, are neither counted nor removed.
    """
    removed: list[str] = []
    failed: list[str] = []
    unreadable: tuple[str, ...] = ()
    try:
        names = [name for name in place.folders() if begun(name) is not None]
        old = perhaps_left(names, token, now)
        found = survey(place, old if keep is None else names)
        unreadable = found.unreadable
        ours = [manifest for manifest in found.complete if lineage.holds(manifest)]
        others = 0 if keep is None else len(found.complete) - len(ours)
        going = [] if keep is None else surplus(ours, made, keep, token)
        going += [name for name in found.without if name in old and _silent(place.inside(name), now)]
    except Exception as error:  # noqa: BLE001  the libraries of the storages raise whatever they like; it is told
        return Tidied(failed=(f"{place.url}: {type(error).__name__}: {error}",), unreadable=unreadable)
    for name in sorted(going):
        try:
            remove(place.inside(name))
        except Exception as error:  # noqa: BLE001  as above
            failed.append(f"{name}: {type(error).__name__}: {error}")
        else:
            removed.append(name)
    return Tidied(tuple(removed), tuple(failed), unreadable, others)


def remove(place: Place) -> None:
    """Remove a backup. Its manifest goes before the files that it names: a removal cut short leaves no backup."""
    place.remove(NAME)
    place.remove_folder()


def begun_before(checkpoint: Any) -> list[str]:
    """The folders that earlier attempts at a run have begun, from its checkpoint (see `begun_by_now`)."""
    names = checkpoint.get("begun", []) if isinstance(checkpoint, dict) else []
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def begun_by_now(before: Sequence[str], name: str) -> dict[str, Any]:
    """The checkpoint of an attempt that begins the folder `name`: what its successor is to remove should it die."""
    return {"begun": [*before, name][-_BEGUN_MAX:]}


def clear(place: Place, before: Sequence[str], token: int) -> Tidied:
    """Remove what earlier attempts at the same run, `before`, left without a manifest. Raises nothing.

    They need not be silent: once the attempt `token` has committed a checkpoint, they can make no backup.
    """
    removed: list[str] = []
    failed: list[str] = []
    older = [name for name in before if (by := begun(name)) is not None and by.token < token]
    try:
        there = set(place.folders()) if older else set()
        for name in sorted(there.intersection(older)):
            left = place.inside(name)
            if left.read(NAME) is None:
                left.remove_folder()
                removed.append(name)
    except Exception as error:  # noqa: BLE001  the libraries of the storages raise whatever they like; it is told
        failed.append(f"{place.url}: {type(error).__name__}: {error}")
    return Tidied(tuple(removed), tuple(failed))


def name_of(url: str) -> str:
    """The name of the folder that a URL ends with."""
    return url.rpartition("/")[2]


def _silent(place: Place, now: datetime) -> bool:
    written = place.last_written()
    return written is None or now - written >= SILENT
