"""Put files, and the names in folders, on the disk, so that they survive a power cut."""

import errno
import os
from pathlib import Path


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
