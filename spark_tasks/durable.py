"""What was written is still there after a power cut, once it was synced: files, and names in folders."""

import errno
from pathlib import Path

from tasks import durable


def sync(path: Path) -> None:
    """Put a file's contents, or a folder's names, on the disk. Raises `OSError`."""
    try:
        durable.sync(path)
    except OSError as error:
        # Some network filesystems know no sync of a folder: a name is on the server once it was given.
        if error.errno != errno.EINVAL or not path.is_dir():
            raise


def sync_names(folder: Path, within: Path) -> None:
    """Put the names in `folder` on the disk, and those in all folders above it up to `within`. Raises `OSError`."""
    for each in (folder, *folder.parents):
        sync(each)
        if each == within:
            return
