"""What was written is still there after a power cut, once it was synced: files, and names in folders."""

import errno
import os
from pathlib import Path


def sync(path: Path) -> None:
    """Put a file's contents, or a folder's names, on the disk. Raises `OSError`."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as error:
        # Some network filesystems know no sync of a folder: a name is on the server once it was given.
        if error.errno != errno.EINVAL or not path.is_dir():
            raise
    finally:
        os.close(opened)


def sync_names(folder: Path, within: Path) -> None:
    """Put the names in `folder` on the disk, and those in all folders above it up to `within`. Raises `OSError`."""
    for each in (folder, *folder.parents):
        sync(each)
        if each == within:
            return
