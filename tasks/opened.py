"""Files as they are opened, held against a node's policy (`tasks.access`): the edge of its decisions.

A path is resolved before it is checked, and what was opened is checked again by what the kernel says of it, so that a
link or a folder that is swapped in between gains nothing. Hard links and bind mounts have other paths: what they lead
to is known by its device and inode.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from tasks.access import Access, AccessRefused, Use, check_path

Identity = tuple[int, int]
"""Device and inode: the same for every path that leads to a file."""

_DEEP: Final = 2
_OPEN: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW


def identity(about: os.stat_result) -> Identity:
    """What a file is, by whatever path."""
    return about.st_dev, about.st_ino


def identities(own: Iterable[str]) -> frozenset[Identity]:
    """What the paths `own` lead to, and what lies in them two levels deep: the journal, the history, the secrets.

    What is not there, or cannot be looked at, has none.
    """
    found: set[Identity] = set()
    for path in own:
        found.update(_identities(path, _DEEP))
    return frozenset(found)


def _identities(path: str, deep: int) -> Iterator[Identity]:
    try:
        about = os.stat(path)  # noqa: PTH116  of a text, as are all here
        yield identity(about)
        if deep and stat.S_ISDIR(about.st_mode):
            with os.scandir(path) as entries:
                inside = [entry.path for entry in entries if not entry.is_symlink()]
            for entry in inside:
                yield from _identities(entry, deep - 1)
    except OSError:
        return


class Guard:
    """Holds the files of one use against a policy. It looks at the node's own files once, when it is made."""

    def __init__(self, access: Access, use: Use) -> None:
        self.access = replace(
            access,
            source_roots=_real(access.source_roots),
            destination_roots=_real(access.destination_roots),
            own=_real(access.own),
        )
        self.use: Use = use
        self._own = identities(access.own)

    def resolve(self, path: str | Path) -> Path:
        """The path that `path` leads to, links followed; it need not be there. Raises `AccessRefused`."""
        real = os.path.realpath(path)
        check_path(self.access, self.use, real, str(path))
        self._check_identities(real, str(path))
        return Path(real)

    def _check_identities(self, real: str, named: str) -> None:
        """Nothing on the way down to `real` may be the node's own under another path. Raises `AccessRefused`."""
        if not self._own:
            return
        for each in (Path(real), *Path(real).parents):
            try:
                about = each.stat()
            except OSError:
                continue
            if self.is_own(about):
                raise AccessRefused(
                    f"{named} leads to what is {self.access.node or 'this node'}'s own, by another path"
                )

    def is_own(self, about: os.stat_result) -> bool:
        """Whether that file or folder is the node's own."""
        return identity(about) in self._own

    def check_opened(self, descriptor: int, named: str | Path) -> None:
        """Raises `AccessRefused` unless what is open may be used, by its path as the kernel knows it and its inode."""
        about = os.fstat(descriptor)
        if self.is_own(about):
            raise AccessRefused(f"{named} leads to what is {self.access.node or 'this node'}'s own, by another path")
        check_path(self.access, self.use, path_of(descriptor), str(named))

    def open_folder(self, path: str | Path) -> tuple[int, Path]:
        """A descriptor of the folder that `path` leads to, and its path. Raises `AccessRefused` and `OSError`."""
        real = self.resolve(path)
        descriptor = os.open(real, _OPEN | os.O_DIRECTORY)
        try:
            self.check_opened(descriptor, path)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor, real


def _real(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(os.path.realpath(path) for path in paths)


def path_of(descriptor: int) -> str:
    """The path of an open file, as the kernel knows it now."""
    return os.readlink(f"/proc/self/fd/{descriptor}").removesuffix(" (deleted)")  # noqa: PTH115  no path of ours


def open_within(folder: int, name: str, *, directory: bool = False) -> int:
    """Open the entry `name` of the open folder `folder`, if it is no link. Raises `OSError` (ELOOP, ENOTDIR)."""
    return os.open(name, _OPEN | (os.O_DIRECTORY if directory else 0), dir_fd=folder)


def regular_files_open() -> dict[int, Identity]:
    """The descriptors of this process that are regular files."""
    found: dict[int, Identity] = {}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208  Path.iterdir holds a descriptor of its own open
        try:
            about = os.fstat(int(name))
        except OSError:
            continue  # the one that listdir itself had open
        if stat.S_ISREG(about.st_mode):
            found[int(name)] = identity(about)
    return found
