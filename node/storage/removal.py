"""Removes a folder that a task has filled, however deep it is.

`shutil.rmtree` recurses and holds a descriptor open for each level, so it fails for a thousand levels, which a task can
create quickly.
"""

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: Path) -> bool:
    """Remove the folder `path` with all its content, without following links. Returns False if an entry stays.

    Inner folders are first moved to the top, so that no more than two folders are open at once.
    """
    try:
        top = _opened(str(path))
    except FileNotFoundError:
        return True
    except OSError:
        return False  # a link or a file, or another user's folder
    try:
        with suppress(OSError):
            os.fchown(top, os.geteuid(), -1)  # so that another owner cannot add files any more
        left: set[str] = set()
        while names := [name for name in _names(top) if name not in left]:
            left.update(name for name in names if not _removed(top, name))
    finally:
        os.close(top)
    try:
        os.rmdir(path)  # noqa: PTH106  consistent with the calls by descriptor
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _opened(name: str, parent: int | None = None) -> int:
    """Open a folder. If it belongs to this user, its mode is changed so that this user may list and change it."""
    place = os.open(name, _FOLDER | os.O_PATH, dir_fd=parent)
    try:
        itself = f"/proc/self/fd/{place}"
        with suppress(OSError):
            if os.fstat(place).st_mode & stat.S_IRWXU != stat.S_IRWXU:
                os.chmod(itself, stat.S_IRWXU)  # noqa: PTH101  consistent with the calls by descriptor
        return os.open(itself, _FOLDER & ~os.O_NOFOLLOW)
    finally:
        os.close(place)


def _names(folder: int) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _removed(top: int, name: str) -> bool:
    """Remove the entry `name` of `top`; move the content of a folder into `top` first. Returns False if it stays."""
    try:
        os.unlink(name, dir_fd=top)
    except IsADirectoryError:
        pass
    except OSError:
        return False
    else:
        return True
    try:
        folder = _opened(name, top)
    except OSError:
        return False
    try:
        for inside in _names(folder):
            _emptied(top, folder, inside)
    finally:
        os.close(folder)
    try:
        os.rmdir(name, dir_fd=top)
    except OSError:
        return False
    return True


def _emptied(top: int, folder: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except IsADirectoryError:
        with suppress(OSError):
            os.close(_opened(name, folder))  # a folder that is not writable cannot be moved
            os.rename(name, secrets.token_hex(16), src_dir_fd=folder, dst_dir_fd=top)
    except OSError:
        return
