"""Put files, and the names in folders, on the disk, so that they survive a power cut."""

import errno
import os
import threading
from pathlib import Path
from typing import Final

_WITHOUT_NAMES: Final = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)
"""What a file system says that has no files without names."""


def sync(path: Path) -> None:
    """Return when the content of a file, or the names in a folder, are on the disk. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot sync a folder: their server has a name as soon as it was given.
        if error.errno != errno.EINVAL or not path.is_dir():
            raise
    finally:
        os.close(descriptor)


def sync_names(folder: Path, within: Path) -> None:
    """Sync the names in `folder` and in all folders above it up to `within`, which is included. Raises `OSError`."""
    for each in (folder, *folder.parents):
        sync(each)
        if each == within:
            return


def write_new(path: Path, content: bytes) -> None:
    """Write a file, whole and synced, at a path where nothing is. Raises `FileExistsError` and `OSError`.

    A process that is killed meanwhile leaves nothing in the folder: until the file gets its name, it has none. A file
    system without such files, as NFS, keeps NAME.PID-THREAD.partial then.
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
