"""Decides which packs of an earlier attempt are kept, and which parts of a folder's tree are read anew."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tasks.backup.tree.pack_index import PackIndex, file_facts, folder_facts
from tasks.backup.tree.read_tree import FolderFailed, is_kept, read_attributes
from tasks.backup.tree.walk import ALL, HiddenFiles, Position, TreePart, Walk
from tasks.file_guard import FileId

_NAMED_MAX: Final = 10
_FRESH_NS: Final = 2_000_000_000
"""A file that changed so short a time before it was read could have changed again without a new time."""

_READS_ALL: Final = (1 << 1) | (1 << 2)
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH: with one of them modes and ACLs forbid no reading."""


@dataclass(frozen=True, kw_only=True)
class PlannedPart:
    """A part of a tree: read anew, or kept as a pack of an earlier attempt."""

    #: The part.
    part: TreePart
    #: The number of its first pack. Packs are in the order of their parts; there are numbers up to the next part's.
    first: int
    #: Whether its pack, the one with the number `first`, is as an earlier attempt has made it.
    kept: bool = False
    #: Files with several names in a kept pack, and the first of these names that the backup has.
    names: tuple[tuple[FileId, str], ...] = ()

    def is_linked(self, firsts: Mapping[FileId, str]) -> bool:
        """Whether no hard link in a kept pack lacks its file. `firsts`: the names of files in the packs before it."""
        held = dict(firsts)
        return all(held.setdefault(each, path) == path for each, path in self.names)


def plan_parts(top: int, real: str, own: HiddenFiles, earlier: Mapping[int, PackIndex]) -> list[PlannedPart]:
    """Return the parts of the tree below the open folder `top`, in order. `real` is its resolved path.

    `earlier`: the packs of earlier attempts, by number. A pack is kept if all its entries are as they were.
    """
    parts: list[PlannedPart] = []
    after: Position | None = None
    before = 0
    for number in sorted(earlier):
        index = earlier[number]
        if before and after is None:
            break
        if not _follows(after, index.part.after, adjacent=number == before + 1):
            continue
        names = _names_if_unchanged(top, real, own, index)
        if names is None:
            continue
        if index.part.after != after:
            parts.append(PlannedPart(part=TreePart(after, index.part.after), first=before + 1))
        parts.append(PlannedPart(part=index.part, first=number, kept=True, names=tuple(names)))
        after, before = index.part.last, number
    if not before or after is not None:
        parts.append(PlannedPart(part=TreePart(after, None), first=before + 1))
    return parts


def _names_if_unchanged(top: int, real: str, own: HiddenFiles, index: PackIndex) -> list[tuple[FileId, str]] | None:
    """Return the first names of files with several names in a pack; None if an entry is not as it was."""
    names: list[tuple[FileId, str]] = []
    fresh_ns = index.began_ns - _FRESH_NS
    changed = False

    def refused(path: str, error: OSError) -> None:
        nonlocal changed
        changed = True

    lines = iter(index.entries)
    for listing in Walk(top, real, index.part, own, _say_nothing, refused):
        records = read_attributes(listing.folder, _say_nothing, listing.prefix)
        facts = folder_facts(listing.about, records)
        path, kind = listing.prefix.rstrip("/"), "d" if listing.is_member else "a"
        # New entries change the time of a folder, and not what a pack with entries further below it holds.
        line = next(lines, None)
        compared = len(facts) if listing.is_member else len(facts) - 1
        if line is None or line[:2] != [path, kind] or line[2 : 2 + compared] != facts[:compared]:
            return None
        for entry in listing.entries:
            try:
                about = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                return None
            if not is_kept(about) or own.files.has(about, entry.name, listing.folder):
                continue
            line = next(lines, None)
            if line is None or line[0] != listing.prefix + entry.name or line[2:6] != file_facts(about):
                return None
            if about.st_ctime_ns > fresh_ns:
                return None
            if line[1] in ("n", "h"):
                names.append(((about.st_dev, about.st_ino), line[6] if line[1] == "h" else line[0]))
    return None if changed or next(lines, None) is not None else names


def _follows(after: Position | None, begin: Position | None, *, adjacent: bool) -> bool:
    """Whether a pack that begins at `begin` can follow one that ends at `after`. None: the top of the tree.

    Between adjacent numbers there is no number for another pack.
    """
    if adjacent:
        return after == begin
    return begin is not None and (after is None or after <= begin)


def check_tree_readable(top: int, shown: str, real: str, own: HiddenFiles) -> None:
    """Raise `FolderFailed` if this user may not read all of a tree; it names the first files. Root may read all."""
    if _reads_everything():
        return
    named: list[str] = []
    count = 0
    for path in _unreadable(top, real, own):
        count += 1
        if len(named) < _NAMED_MAX:
            named.append(f"{shown.rstrip('/')}/{path}")
    if count:
        more = count - len(named)
        raise FolderFailed(
            f"this user cannot read {', '.join(named)}{f' and {more} more' if more else ''}. Nothing was written: let "
            "the user read them, or run the task as another user (run_as)"
        )


def _unreadable(top: int, real: str, own: HiddenFiles) -> Iterator[str]:
    """Yield the paths of files and folders that this user may not read."""
    folders: list[str] = []
    for listing in Walk(top, real, ALL, own, _say_nothing, lambda path, error: folders.append(path)):
        for entry in listing.entries:
            if not entry.is_file(follow_symlinks=False):
                continue
            if os.access(entry.name, os.R_OK, dir_fd=listing.folder, effective_ids=True):
                continue
            try:
                about = os.stat(entry.name, dir_fd=listing.folder, follow_symlinks=False)
            except FileNotFoundError:
                continue
            if not own.files.has(about, entry.name, listing.folder):
                yield listing.prefix + entry.name
    yield from folders


def _say_nothing(path: str, remark: str) -> None:
    """Drop a remark: it is said when the entry is read."""


def _reads_everything() -> bool:
    """Whether this process may read all files, whatever their modes say."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:  # noqa: PTH123  no path of a user's
        line = next((line for line in status if line.startswith("CapEff:")), "CapEff: 0")
    return bool(int(line.split()[1], 16) & _READS_ALL)
