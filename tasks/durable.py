"""What is on the disk for good, and not only in the kernel's memory."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Return when what is in a file, or the names in a folder, are on the disk. Raises `OSError`."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
