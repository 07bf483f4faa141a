"""Divides a folder's tree into packs: archives of consecutive entries, which the next attempt can keep one by one.

All of the tree is looked at before anything is read: so what cannot be read is said before anything is written, and
packs of an earlier attempt are kept if all their entries are as they were.
"""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from tasks.backup.tree.pack_index import PackIndex, file_facts, folder_facts
from tasks.backup.tree.read_tree import FolderFailed, read_attributes
from tasks.backup.tree.walk import HiddenFiles, Position, TreePart, Walk, position
from tasks.file_guard import FileId

PACK_FILES: Final = 50_000
"""The number of entries at which a pack ends."""

_PACK_BYTES: Final = 256 << 20
_DOUBLED_AFTER: Final = (64, 256)
_NAMED_MAX: Final = 10
_FRESH_NS: Final = 2_000_000_000
"""A file that changed so short a time before it was read could have changed again without a new time."""
_HEADER_BYTES: Final = 1536
_BLOCK_BYTES: Final = 512

_READS_ALL: Final = (1 << 1) | (1 << 2)
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH: with one of them modes and ACLs forbid no reading."""


@dataclass(frozen=True, kw_only=True)
class Pack:
    """A pack of a backup."""

    #: Its number, from 1. Packs are in the order of their parts.
    number: int
    #: The part of the tree that it holds.
    part: TreePart
    #: About how many bytes its archive has.
    size_bytes: int
    #: The index of the pack of an earlier attempt that is kept; None: it has to be made.
    kept: PackIndex | None = None
    #: The paths of files in earlier packs of which this one has other names.
    firsts: Mapping[FileId, str] = field(default_factory=dict)


def pack_bytes(number: int) -> int:
    """Return the number of content bytes at which the pack with this number ends.

    Large folders get larger packs, so that the manifest stays small.

    >>> [pack_bytes(number) >> 20 for number in (1, 64, 65, 256, 257, 9999)]
    [256, 256, 512, 512, 1024, 1024]
    """
    return _PACK_BYTES << sum(number > after for after in _DOUBLED_AFTER)


class Planner:
    """Makes the plan for the tree below the open folder `top`; `real` is its resolved path, `shown` the task's."""

    def __init__(self, top: int, shown: str, real: str, own: HiddenFiles) -> None:
        self._top = top
        self._shown = shown
        self._real = real
        self._own = own
        self._checks = not _reads_everything()
        self._unreadable: list[str] = []
        self._unreadable_count = 0
        self._firsts: dict[FileId, str] = {}

    def plan(self, earlier: Mapping[int, PackIndex]) -> list[Pack]:
        """Return the packs, in order. `earlier`: the packs of earlier attempts, by number.

        Raises `FolderFailed` if entries cannot be read by this user; it names the first ones.
        """
        packs: list[Pack] = []
        for number in sorted(earlier):
            index = earlier[number]
            after, before = (packs[-1].part.last, packs[-1].number) if packs else (None, 0)
            if packs and after is None:
                break
            if not _follows(after, index.part.after, adjacent=number == before + 1):
                continue
            names = self._names_if_unchanged(index)
            if names is None:
                continue
            if index.part.after != after:
                packs += self._cut(TreePart(after, index.part.after), before + 1, number - 1)
            for each, path in names:
                self._firsts.setdefault(each, path)
            packs.append(Pack(number=number, part=index.part, size_bytes=0, kept=index))
        after, before = (packs[-1].part.last, packs[-1].number) if packs else (None, 0)
        if not packs or after is not None:
            packs += self._cut(TreePart(after, None), before + 1, None)
        if self._unreadable_count:
            more = self._unreadable_count - len(self._unreadable)
            raise FolderFailed(
                f"this user cannot read {', '.join(self._unreadable)}"
                f"{f' and {more} more' if more else ''}. Nothing was written: let the user read them, or run the task "
                "as another user (run_as)"
            )
        return packs

    def _names_if_unchanged(self, index: PackIndex) -> list[tuple[FileId, str]] | None:
        """Return the first names of files with several names in a pack; None if an entry is not as it was."""
        names: list[tuple[FileId, str]] = []
        fresh_ns = index.began_ns - _FRESH_NS
        changed = False

        def refused(path: str, error: OSError) -> None:
            nonlocal changed
            changed = True

        lines = iter(index.entries)
        for listing in Walk(self._top, self._real, index.part, self._own, _say_nothing, refused):
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
                if not _is_kept(about) or (about.st_dev, about.st_ino) in self._own.ids:
                    continue
                line = next(lines, None)
                if line is None or line[0] != listing.prefix + entry.name or line[2:6] != file_facts(about):
                    return None
                if about.st_ctime_ns > fresh_ns:
                    return None
                if line[1] in ("n", "h"):
                    names.append(((about.st_dev, about.st_ino), line[6] if line[1] == "h" else line[0]))
        return None if changed or next(lines, None) is not None else names

    def _cut(self, whole: TreePart, first: int, last: int | None) -> list[Pack]:
        """Divide a part of the tree into packs with the numbers from `first` to `last`. The last one takes the rest."""
        packs: list[Pack] = []
        begun = _Begun(first, whole.after)
        firsts, own_ids = self._firsts, self._own.ids
        for listing in Walk(self._top, self._real, whole, self._own, _say_nothing, self._note_unreadable):
            if listing.is_member:
                begun.files += 1
                begun.size_bytes += _HEADER_BYTES
                if begun.is_full(last):
                    begun = begun.closed(packs, position(listing.prefix.rstrip("/"), is_folder=True))
            for entry in listing.entries:
                try:
                    about = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                begun.files += 1
                begun.size_bytes += _HEADER_BYTES
                if stat.S_ISREG(about.st_mode):
                    held, size = about.st_blocks * _BLOCK_BYTES, about.st_size
                    begun.size_bytes += size if size < held else held
                    each = (about.st_dev, about.st_ino)
                    if about.st_nlink > 1:
                        begun.name(each, listing.prefix + entry.name, firsts)
                    if self._checks and each not in own_ids:
                        self._check(listing.folder, listing.prefix, entry.name)
                if begun.is_full(last):
                    begun = begun.closed(packs, position(listing.prefix + entry.name, is_folder=False))
        if begun.files or not packs:
            begun.closed(packs, whole.last)
        else:
            packs[-1] = replace(packs[-1], part=TreePart(packs[-1].part.after, whole.last))
        return packs

    def _check(self, folder: int, prefix: str, name: str) -> None:
        """Note a file that this user may not read."""
        if os.access(name, os.R_OK, dir_fd=folder, effective_ids=True):
            return
        try:
            os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return
        self._note(prefix + name)

    def _note_unreadable(self, path: str, error: OSError) -> None:
        self._note(path)

    def _note(self, path: str) -> None:
        self._unreadable_count += 1
        if len(self._unreadable) < _NAMED_MAX:
            self._unreadable.append(f"{self._shown.rstrip('/')}/{path}")


class _Begun:
    """A pack to which entries are added."""

    def __init__(self, number: int, after: Position | None) -> None:
        self.number = number
        self.size_bytes = 0
        self.files = 0
        self._after = after
        self._bytes_max = pack_bytes(number)
        self._firsts: dict[FileId, str] = {}
        self._own_names: set[FileId] = set()

    def name(self, each: FileId, path: str, firsts: dict[FileId, str]) -> None:
        """Note a name of a file that has several. `firsts`: the first names of all such files so far."""
        if each in firsts:
            if each not in self._own_names:
                self._firsts[each] = firsts[each]
        else:
            firsts[each] = path
            self._own_names.add(each)

    def is_full(self, last: int | None) -> bool:
        """Whether the pack ends here. That with the number `last` never does."""
        return (self.size_bytes >= self._bytes_max or self.files >= PACK_FILES) and self.number != last

    def closed(self, packs: list[Pack], end: Position | None) -> "_Begun":
        """Add the pack, which ends with the entry at `end`, to `packs`. Returns the next one."""
        part = TreePart(self._after, end)
        packs.append(Pack(number=self.number, part=part, size_bytes=self.size_bytes, firsts=self._firsts))
        return _Begun(self.number + 1, end)


def _follows(after: Position | None, begin: Position | None, *, adjacent: bool) -> bool:
    """Whether a pack that begins at `begin` can follow one that ends at `after`. None: the top of the tree.

    Between adjacent numbers there is no number for another pack.
    """
    if adjacent:
        return after == begin
    return begin is not None and (after is None or after <= begin)


def _is_kept(about: os.stat_result) -> bool:
    return stat.S_ISREG(about.st_mode) or stat.S_ISLNK(about.st_mode)


def _say_nothing(path: str, remark: str) -> None:
    """Drop a remark: it is said when the entry is read."""


def _reads_everything() -> bool:
    """Whether this process may read all files, whatever their modes say."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:  # noqa: PTH123  no path of a user's
        line = next((line for line in status if line.startswith("CapEff:")), "CapEff: 0")
    return bool(int(line.split()[1], 16) & _READS_ALL)
