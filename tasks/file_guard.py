"""Checks files against a node's policy (`tasks.access`) when they are opened.

A path is resolved before it is checked, and the open file is checked again by its path in the kernel. So swapping a
link or a folder between the two checks gives no access. Because a hard link or a bind mount gives a file another path,
the node's own files are recognized by device and inode too (`OwnFiles`).
"""

import ctypes
import os
import stat
import struct
from collections.abc import Iterable, Iterator, Mapping
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


_libc = ctypes.CDLL(None)
_BORN: Final = 0x800
_EMPTY_PATH: Final = 0x1000
_NOFOLLOW: Final = 0x100


def born_ns(at: int | str, folder: int | None = None) -> int:
    """Return when an inode was made, in nanoseconds since the epoch: by statx(2), which Python does not offer.

    `at` is an open file or a path, which is not followed; `folder` is the open folder that a path is in. 0: the file
    system or the C library does not say, or there is no such file. Nobody can set this time.
    """
    statx = getattr(_libc, "statx", None)
    if statx is None:
        return 0
    where, path, flags = (at, b"", _EMPTY_PATH) if isinstance(at, int) else (folder, os.fsencode(at), _NOFOLLOW)
    answer = ctypes.create_string_buffer(256)
    if statx(-100 if where is None else where, path, flags, _BORN, answer) != 0:
        return 0
    known, seconds, nanoseconds = struct.unpack_from("=I76xqI", answer)
    return int(seconds * 1_000_000_000 + nanoseconds) if known & _BORN else 0


class OwnFiles:
    """The node's own files, under whatever path: by device and inode, and by when the inode was made.

    The node removes files of its own while an attempt works, and the file system gives their inodes to new files.
    """

    def __init__(self, born: Mapping[FileId, int]) -> None:
        self._born = born

    @classmethod
    def at(cls, own: Iterable[str]) -> "OwnFiles":
        """Find the paths `own` and everything in them, two levels deep (journal, history, secrets).

        Paths that do not exist or cannot be read are skipped.
        """
        return cls({about: when for path in own for about, when in _files_at(path, _DEEP)})

    def has(self, about: os.stat_result, at: int | str, folder: int | None = None) -> bool:
        """Whether the file with this status is the node's own. `at` and `folder`: where it is, as for `born_ns`."""
        # Not by `file_id`: this is asked of each file of a folder that is backed up.
        when = self._born.get((about.st_dev, about.st_ino))
        return when is not None and when == born_ns(at, folder)


NO_FILES: Final = OwnFiles({})

_learned: dict[tuple[str, ...], OwnFiles] = {}


def learn_own(own: tuple[str, ...]) -> None:
    """Note the identities of the node's own files for later `FileGuard`s, as a confined process cannot see them."""
    _learned[own] = OwnFiles.at(own)


def _files_at(path: str, deep: int) -> Iterator[tuple[FileId, int]]:
    try:
        about = os.stat(path)  # noqa: PTH116  paths are strings here
        yield file_id(about), born_ns(os.path.realpath(path))
        if deep and stat.S_ISDIR(about.st_mode):
            with os.scandir(path) as entries:
                inside = [entry.path for entry in entries if not entry.is_symlink()]
            for entry in inside:
                yield from _files_at(entry, deep - 1)
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
        self.own = _learned[access.own] if access.own in _learned else OwnFiles.at(access.own)

    def resolve(self, path: str | Path) -> Path:
        """Resolve `path`, which need not exist. Raises `AccessRefused` if it may not be used."""
        real = os.path.realpath(path)
        check_path(self.access, self.use, real, str(path))
        self._check_file_ids(real, str(path))
        return Path(real)

    def _check_file_ids(self, real: str, named: str) -> None:
        """Raise `AccessRefused` if `real` or a parent is a file or folder of the node, under another path."""
        for each in (Path(real), *Path(real).parents):
            try:
                about = each.stat()
            except OSError:
                continue
            if self.own.has(about, str(each)):
                raise AccessRefused(self._own_by_another_path(named))

    def _own_by_another_path(self, named: str | Path) -> str:
        return f"{named} is another path to one of {self.access.node or 'this node'}'s own files or folders"

    def check_opened(self, descriptor: int, named: str | Path) -> None:
        """Raise `AccessRefused` unless the open file may be used, judged by its inode and by its path in the kernel."""
        about = os.fstat(descriptor)
        if self.own.has(about, descriptor):
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
