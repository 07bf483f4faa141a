"""Measures the disk space that attempts hold: their scratch folders, and the logs of all runs."""

import os
from collections.abc import Container
from pathlib import Path

from node.storage.removal import remove_tree

BLOCK_BYTES = 512


def held_bytes(path: Path) -> int:
    """Return the bytes that a file or folder takes up on the disk; 0 if it does not exist.

    Mount points below a folder and the targets of links do not count.
    """
    try:
        own = path.lstat()
    except OSError:
        return 0
    total, device, folders = own.st_blocks * BLOCK_BYTES, own.st_dev, [path]
    if not path.is_dir() or path.is_symlink():
        return total
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    found = entry.stat(follow_symlinks=False)
                    if found.st_dev != device:
                        continue
                    total += found.st_blocks * BLOCK_BYTES
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(Path(entry.path))
        except OSError:
            continue  # the folder was removed meanwhile
    return total


def trim_logs(logs: Path, limit_bytes: int, keep: Container[str]) -> tuple[int, int]:
    """Delete the oldest runs' logs, until all logs together take at most `limit_bytes`. A run's age counts from the
    beginning of its last attempt.

    The logs of the runs in `keep` stay, and so do logs that cannot be removed. Returns the number of runs whose logs
    were deleted, and the freed bytes. Raises `OSError`.
    """
    try:
        with os.scandir(logs) as entries:
            made = sorted((entry.stat(follow_symlinks=False).st_mtime_ns, entry.path) for entry in entries)
    except FileNotFoundError:
        return 0, 0
    runs = [(Path(path), held_bytes(Path(path))) for _, path in made]
    total = sum(size for _, size in runs)
    cut = freed = 0
    for path, size in runs:
        if total - freed <= limit_bytes:
            break
        if path.name in keep or not path.is_dir():
            continue
        if remove_tree(path):
            cut, freed = cut + 1, freed + size
    return cut, freed
