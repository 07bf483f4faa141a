"""Checks files against a node's policy (`tasks.access`) when they are opened.

A path is resolved before it is checked, and the open file is checked again by its path in the kernel. So swapping a
link or a folder between the two checks gives no access. Because a hard link or a bind mount gives a file another path,
the node's own files are recognized by device and inode too.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from tasks.access import Access, AccessRefused, Use, check_path

FileId = tuple[int, int]
"""Device and inode: the same for every path of a file."""

_DEEP: Final = 2
_OPEN: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
_LOCATE: Final = os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW


def file_id(about: os.stat_result) -> FileId:
    """Return the identity of a file, whatever its path."""
    return about.st_dev, about.st_ino


def file_ids(own: Iterable[str]) -> frozenset[FileId]:
    """Return the identities of the paths `own` and of everything in them, two levels deep (journal, history, secrets).

    Paths that do not exist or cannot be read are skipped.
    """
    found: set[FileId] = set()
    for path in own:
        found.update(_file_ids(path, _DEEP))
    return frozenset(found)


_learned: dict[tuple[str, ...], frozenset[FileId]] = {}


def learn_own(own: tuple[str, ...]) -> None:
    """Note the identities of the node's own files for later `FileGuard`s, as a confined process cannot see them."""
    _learned[own] = file_ids(own)


def _file_ids(path: str, deep: int) -> Iterator[FileId]:
    try:
        about = os.stat(path)  # noqa: PTH116  paths are strings here
        yield file_id(about)
        if deep and stat.S_ISDIR(about.st_mode):
            with os.scandir(path) as entries:
                inside = [entry.path for entry in entries if not entry.is_symlink()]
            for entry in inside:
                yield from _file_ids(entry, deep - 1)
    except OSError:
        return


class FileGuard:
    """Checks the files of one use, source or destination. The constructor reads the identities of the node's files."""

    def __init__(self, access: Access, use: Use) -> None:
        self.access = replace(
            access,
            source_roots=_real(access.source_roots),
            destination_roots=_real(access.destination_roots),
            own=_real(access.own),
            programs=_real(access.programs),
        )
        self.use: Use = use
        self._own = _learned[access.own] if access.own in _learned else file_ids(access.own)

    def resolve(self, path: str | Path) -> Path:
        """Resolve `path`, which need not exist. Raises `AccessRefused` if it may not be used."""
        real = os.path.realpath(path)
        check_path(self.access, self.use, real, str(path))
        self._check_file_ids(real, str(path))
        return Path(real)

    def _check_file_ids(self, real: str, named: str) -> None:
        """Raise `AccessRefused` if `real` or a parent is a file or folder of the node, under another path."""
        if not self._own:
            return
        for each in (Path(real), *Path(real).parents):
            try:
                about = each.stat()
            except OSError:
                continue
            if self.is_own(about):
                raise AccessRefused(self._own_by_another_path(named))

    @property
    def own_ids(self) -> frozenset[FileId]:
        """The identities of the node's own files and folders."""
        return self._own

    def is_own(self, about: os.stat_result) -> bool:
        """Whether a file or folder with this status is the node's own."""
        return file_id(about) in self._own

    def _own_by_another_path(self, named: str | Path) -> str:
        return f"{named} is another path to one of {self.access.node or 'this node'}'s own files or folders"

    def check_opened(self, descriptor: int, named: str | Path) -> None:
        """Raise `AccessRefused` unless the open file may be used, judged by its inode and by its path in the kernel."""
        about = os.fstat(descriptor)
        if self.is_own(about):
            raise AccessRefused(self._own_by_another_path(named))
        check_path(self.access, self.use, path_of(descriptor), str(named))

    def open_folder(self, path: str | Path) -> tuple[int, Path]:
        """Return a descriptor of the folder at `path`, and its resolved path. Raises `AccessRefused` and `OSError`."""
        return self._open(path, _OPEN | os.O_DIRECTORY)

    def locate(self, path: str | Path) -> tuple[int, Path]:
        """Return an O_PATH descriptor of the entry at `path`, and its real path. Raises `AccessRefused`, `OSError`."""
        return self._open(path, _LOCATE)

    def _open(self, path: str | Path, flags: int) -> tuple[int, Path]:
        real = self.resolve(path)
        descriptor = os.open(real, flags)
        try:
            self.check_opened(descriptor, path)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor, real


def _real(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(os.path.realpath(path) for path in paths)


def path_of(descriptor: int) -> str:
    """Return the present path of an open file, as the kernel knows it."""
    return os.readlink(f"/proc/self/fd/{descriptor}").removesuffix(" (deleted)")  # noqa: PTH115  a string is wanted


def open_within(folder: int, name: str, *, directory: bool = False) -> int:
    """Open the entry `name` of the open folder `folder`. Raises `OSError` (ELOOP for a link, ENOTDIR)."""
    return os.open(name, _OPEN | (os.O_DIRECTORY if directory else 0), dir_fd=folder)


def locate_within(folder: int, name: str, *, directory: bool = False) -> int:
    """Return an O_PATH descriptor of the entry `name` of the open folder `folder`. Does not follow links.

    `directory`: the entry must be a folder. Raises `OSError` (ENOTDIR if it is not, also if it is a link to one).
    """
    return os.open(name, _LOCATE | (os.O_DIRECTORY if directory else 0), dir_fd=folder)


def regular_files_open() -> dict[int, FileId]:
    """Return the open regular files of this process: their descriptors and identities."""
    found: dict[int, FileId] = {}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208  Path.iterdir holds a descriptor of its own open
        try:
            about = os.fstat(int(name))
        except OSError:
            continue  # the descriptor that listdir itself had open
        if stat.S_ISREG(about.st_mode):
            found[int(name)] = file_id(about)
    return found
