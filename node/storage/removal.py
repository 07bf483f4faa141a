"""Removes a folder that a task has filled, however deep it is.

`shutil.rmtree` calls itself for each level, and holds it open: a thousand levels are too many for it, and a task makes
them in no time.
"""

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: Path) -> bool:
    """Remove the folder `path` with all that is in it, without following links. What cannot be removed stays.

    False if something stays. Folders within folders are moved to the top first: no more than two are open at once.
    """
    try:
        top = _opened(str(path))
    except FileNotFoundError:
        return True
    except OSError:
        return False  # it is no folder of this kind, or another user's
    try:
        with suppress(OSError):
            os.fchown(top, os.geteuid(), -1)  # another user whose folder it is adds nothing any more
        left: set[str] = set()
        while names := [name for name in _names(top) if name not in left]:
            left.update(name for name in names if not _removed(top, name))
    finally:
        os.close(top)
    try:
        os.rmdir(path)  # noqa: PTH106  beside the calls by descriptors
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _opened(name: str, parent: int | None = None) -> int:
    """A descriptor of a folder, which this user may list and change from then on, if it is this user's."""
    place = os.open(name, _FOLDER | os.O_PATH, dir_fd=parent)
    try:
        itself = f"/proc/self/fd/{place}"
        with suppress(OSError):
            if os.fstat(place).st_mode & stat.S_IRWXU != stat.S_IRWXU:
                os.chmod(itself, stat.S_IRWXU)  # noqa: PTH101  beside the calls by descriptors
        return os.open(itself, _FOLDER & ~os.O_NOFOLLOW)
    finally:
        os.close(place)


def _names(folder: int) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _removed(top: int, name: str) -> bool:
    """Remove what is in `top` under `name`; what it has within is put into `top`. False if it stays."""
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
