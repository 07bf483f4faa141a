"""Syncs files, and the names in folders, to the disk, so that they survive a power cut."""

import errno
import os
import stat
import threading
from pathlib import Path
from typing import Final

_WITHOUT_NAMES: Final = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)
"""The error codes of a file system that cannot create a file without a name (O_TMPFILE)."""


def sync(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on the disk. Raises `OSError`."""
    _sync_at(path, None)


def sync_open(folder: int) -> None:
    """Sync the names in an open folder, which may have been opened with O_PATH. Raises `OSError`."""
    _sync_at(".", folder)


def _sync_at(path: str | Path, folder: int | None) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot sync a folder, as their server stores each new name at once.
        if error.errno != errno.EINVAL or not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise
    finally:
        os.close(descriptor)


def sync_names(folder: Path, top: Path) -> None:
    """Sync the names in `folder` and in the folders above it up to `top`, and the name of `top`. Raises `OSError`."""
    for each in (folder, *folder.parents):
        sync(each)
        if each == top:
            break
    sync_name(top)


def sync_name(folder: Path | int) -> None:
    """Sync the name of a folder (a path or a descriptor) in its parent, if this process may open the parent.

    A process that may not open the parent did not create the name, so another process has synced it. For example, the
    kernel denies an attempt the parent of its destination, and the supervisor has synced the destination's name. Raises
    `OSError`, also if the file modes would allow this user to create the name but not to sync it.
    """
    above, at = ("..", folder) if isinstance(folder, int) else (folder.parent, None)
    try:
        _sync_at(above, at)
    except PermissionError:
        # `os.access` sees file modes only, not the rules that confine this process.
        if os.access(above, os.W_OK, dir_fd=at) and not os.access(above, os.R_OK, dir_fd=at):
            raise


def write_new(path: Path, content: bytes) -> None:
    """Write a new file, whole and synced. Raises `FileExistsError` if the path exists, and `OSError`.

    If the process is killed meanwhile, no file is left in the folder, because the file gets its name last. On a file
    system that cannot do this, such as NFS, NAME.PID-THREAD.partial is left.
    """
    try:
        descriptor = os.open(path.parent, os.O_TMPFILE | os.O_WRONLY, 0o666)
    except OSError as error:
        if error.errno not in _WITHOUT_NAMES:
            raise
        _write_beside(path, content)
        return
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)
        # Only with `src_dir_fd` does Python follow the link in /proc; the path is absolute, so any descriptor will do.
        os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor)


def _write_beside(path: Path, content: bytes) -> None:
    aside = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.partial")
    try:
        aside.write_bytes(content)
        sync(aside)
        os.link(aside, path)
    finally:
        aside.unlink(missing_ok=True)
