"""The order of a folder's entries, and a walk through a part of them by open descriptors.

A folder comes first, then what is in it and is no folder, by name, and then its subfolders, by name, each with its
content. So an entry has a position that can be compared, a part of the tree lies between two positions, and an entry
that appears or vanishes changes the position of no other.

The walk opens each folder through the descriptor of the folder above it and follows no link: a program that may write
to the tree can replace a folder by a link at any moment.
"""

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from tasks.access import NEVER, Access
from tasks.file_guard import OwnFiles, open_within

Position = tuple[tuple[int, str], ...]
"""The position of an entry: for each part of its path whether it is a folder, and its name. That of the top is ()."""

VANISHED: Final = "vanished while the folder was read"
OWN: Final = "was left out: it belongs to the node itself or to the kernel"


def position(path: str, *, is_folder: bool) -> Position:
    """Return the position of the entry at `path`, which is relative to the top of the tree.

    >>> position("a/b", is_folder=False) < position("a/a/c", is_folder=False) < position("b", is_folder=True)
    True
    """
    if not path:
        return ()
    *above, name = path.split("/")
    return (*((1, part) for part in above), (int(is_folder), name))


class TreePart(NamedTuple):
    """The entries of a tree after one position, up to and with another one. None: from the top, or to the end."""

    after: Position | None = None
    last: Position | None = None

    def has(self, entry: Position) -> bool:
        """Whether an entry at this position belongs to the part."""
        return (self.after is None or entry > self.after) and (self.last is None or entry <= self.last)

    def meets(self, folder: Position) -> bool:
        """Whether the folder at this position, or anything in it, may belong to the part."""
        if self.last is not None and folder > self.last:
            return False
        return self.after is None or folder > self.after or self.after[: len(folder)] == folder

    def ends_in(self, folder: Position) -> bool:
        """Whether the part begins or ends between the entries of the folder at this position."""
        return any(end is not None and end[: len(folder)] == folder for end in self)


ALL: Final = TreePart()


@dataclass(frozen=True, slots=True)
class HiddenFiles:
    """Which entries of a tree belong to the node itself or to the kernel."""

    #: Paths of files and folders, resolved.
    paths: frozenset[str]
    #: The node's files, under whatever path.
    files: OwnFiles

    @classmethod
    def of(cls, access: Access, files: OwnFiles) -> "HiddenFiles":
        """Return those of the node whose tasks may reach `access`, given its files."""
        return cls(frozenset((*access.own, *NEVER)), files)

    def names_in(self, folder: str) -> frozenset[str]:
        """Return the names of the entries of the folder at this resolved path that are among `paths`."""
        return frozenset(name for above, _, name in (path.rpartition("/") for path in self.paths) if above == folder)


class Listing(NamedTuple):
    """A folder that is open, and those of its entries that belong to the part and are no folders."""

    #: The descriptor of the folder.
    folder: int
    #: The folder's status when it was opened.
    about: os.stat_result
    #: The prefix of its entries' paths: "" at the top, else it ends with a slash.
    prefix: str
    #: Whether the folder itself belongs to the part; if not, only entries in it do.
    is_member: bool
    #: The entries, in order.
    entries: list["os.DirEntry[str]"]


Say = Callable[[str, str], None]
"""Takes a path in the tree and a remark about it."""

Refused = Callable[[str, OSError], None]
"""Takes the path of a folder that cannot be read, and the error. May raise."""


class Walk:
    """Walks through a part of a tree. `top` is its descriptor, `real` its resolved path."""

    def __init__(self, top: int, real: str, part: TreePart, own: HiddenFiles, say: Say, refused: Refused) -> None:
        self._top = top
        self._real = real.rstrip("/")
        self._part = part
        self._own = own
        self._say = say
        self._refused = refused
        self._open: list[tuple[int, str, Position, list[str]]] = []
        """The open folders, from the top: descriptor, prefix, position, and subfolders that are yet to come."""

    def __iter__(self) -> Iterator[Listing]:
        """Yield the folders in order. A listing's descriptor is open until the next one is asked for."""
        try:
            if (listed := self._listed(os.dup(self._top), "", ())) is not None:
                yield listed
            while self._open:
                folder, prefix, at, names = self._open[-1]
                if not names:
                    os.close(self._open.pop()[0])
                    continue
                name = names.pop()
                inner = self._opened(folder, name, prefix)
                if inner is not None:
                    listed = self._listed(inner, f"{prefix}{name}/", (*at, (1, name)))
                    if listed is not None:
                        yield listed
        finally:
            while self._open:
                os.close(self._open.pop()[0])

    def above(self) -> Iterator[tuple[int, str]]:
        """Yield the folders from the top to the listing that was yielded last: descriptors and prefixes."""
        for folder, prefix, *_ in self._open:
            yield folder, prefix

    def _opened(self, folder: int, name: str, prefix: str) -> int | None:
        try:
            return open_within(folder, name, directory=True)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                self._say(prefix + name, VANISHED)
            else:
                self._refused(prefix + name, error)
            return None

    def _listed(self, folder: int, prefix: str, at: Position) -> Listing | None:
        """List an open folder, which is closed with the rest of those that are open. None: it is left out."""
        self._open.append((folder, prefix, at, []))
        about = os.fstat(folder)
        if self._own.files.has(about, folder):
            if self._part.has(at):
                self._say(prefix.rstrip("/"), OWN)
            return None
        # A folder that changes while it is listed may list a name twice.
        files: dict[str, os.DirEntry[str]] = {}
        folders: set[str] = set()
        try:
            with os.scandir(folder) as found:
                for entry in found:
                    if entry.is_dir(follow_symlinks=False):
                        folders.add(entry.name)
                    else:
                        files[entry.name] = entry
        except FileNotFoundError:
            self._say(prefix.rstrip("/"), VANISHED)
            return None
        except OSError as error:
            self._refused(prefix.rstrip("/"), error)
            return None
        part = self._part
        for name in self._own.names_in(f"{self._real}/{prefix}".rstrip("/")):
            if name in folders or name in files:
                if part.has((*at, (int(name in folders), name))):
                    self._say(prefix + name, OWN)
                folders.discard(name)
                files.pop(name, None)
        inner = sorted((name for name in folders if part.meets((*at, (1, name)))), reverse=True)
        self._open[-1] = (folder, prefix, at, inner)
        names = sorted(files)
        if part.ends_in(at):
            names = [name for name in names if part.has((*at, (0, name)))]
        return Listing(
            folder=folder,
            about=about,
            prefix=prefix,
            is_member=part.has(at),
            entries=[files[name] for name in names],
        )
