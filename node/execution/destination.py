"""Opens the folders that an attempt writes to, from their root downwards, and makes missing ones.

The supervisor has more rights than the attempt, and other processes may rename entries below the root meanwhile. So
each folder is opened relative to its open parent, no path is resolved twice, and symlinks are not followed.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tasks.access import is_within
from tasks.file_guard import FileGuard, locate_within, path_of
from tasks.places.fsync import sync_name, sync_open


def opened_or_made(guard: FileGuard, folder: str, umask: int) -> tuple[int, Path]:
    """Open the destination `folder`, make the missing folders on the way, and sync its name to the disk.

    Returns an O_PATH descriptor and the resolved path. The guard follows symlinks on the way to the folder. Raises
    `AccessRefused` if the guard does not, or no longer, allow the folder, and `OSError` if a folder on the way was
    replaced by a symlink (ENOTDIR), or cannot be made or synced.
    """
    resolved = guard.resolve(folder)
    real = str(resolved)
    root = max((each for each in guard.access.destination_roots if is_within(real, each)), key=len)
    # Missing folders above a root are made as well: the operator has named the root.
    at = root if Path(root).is_dir() else "/"
    here = os.open(at, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_DIRECTORY)
    try:
        with _making(umask):
            for name in filter(None, real[len(at.rstrip("/")) :].split("/")):
                below = _entered_or_made(here, at, name)
                os.close(here)
                here, at = below, f"{at.rstrip('/')}/{name}"
        guard.check_opened(here, folder)
        sync_name(here)
    except BaseException:
        os.close(here)
        raise
    return here, resolved


def _entered_or_made(here: int, at: str, name: str) -> int:
    """Open the folder `name` in the open folder `here`; make it if it is missing. `at` is the path of `here`."""
    try:
        return locate_within(here, name, directory=True)
    except FileNotFoundError:
        if path_of(here) != at:
            raise OSError(errno.ESTALE, f"{at} was moved meanwhile") from None
    with suppress(FileExistsError):  # another attempt has just made it
        os.mkdir(name, dir_fd=here)
    below = locate_within(here, name, directory=True)
    try:
        sync_open(here)
    except BaseException:
        os.close(below)
        raise
    return below


@contextmanager
def _making(umask: int) -> Iterator[None]:
    before = os.umask(umask)
    try:
        yield
    finally:
        os.umask(before)
