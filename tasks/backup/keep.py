"""Which backups to keep, and the removal of the others."""

from collections.abc import Sequence

from tasks.backup.destination import Place
from tasks.backup.manifest import NAME, Manifest, complete


def surplus(found: Sequence[Manifest], made: str, keep: int) -> list[Manifest]:
    """What of `found` (newest first) goes when `keep` stay. The one named `made` (a URL) always stays."""
    others = [manifest for manifest in found if manifest.url != made]
    return others[keep - 1 :]


def stale(folders: Sequence[str], found: Sequence[str], kept: Sequence[str]) -> list[str]:
    """The folders without a manifest that are older, by their names, than every kept backup: nobody writes them now.

    >>> stale(["20260101T000000Z-1", "20260102T000000Z-2", "20260103T000000Z-3"], ["20260102T000000Z-2"],
    ...       ["20260102T000000Z-2"])
    ['20260101T000000Z-1']
    """
    known = set(found)
    return [name for name in folders if name not in known and kept and name < min(kept)]


def prune(place: Place, made: str, keep: int) -> list[str]:
    """Remove all but the newest `keep` backups of a task, and what failed attempts left before those. What went.

    `made` is the URL of the backup that was just made: it stays whatever the clocks of members say. A manifest goes
    before the files that it names, so that a removal that is cut short leaves no backup that is not whole.
    """
    folders, found = place.folders(), complete(place)
    going = {_name(manifest.url) for manifest in surplus(found, made, keep)}
    names = [_name(manifest.url) for manifest in found]
    kept = [name for name in names if name not in going]
    gone = [*sorted(going), *stale(folders, names, kept)]
    for name in gone:
        inside = place.inside(name)
        inside.remove(NAME)
        inside.remove_folder()
    return gone


def _name(url: str) -> str:
    return url.rpartition("/")[2]
