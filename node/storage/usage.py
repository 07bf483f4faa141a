"""What attempts hold on the disk: their scratch folders, and the logs of all runs."""

import os
import shutil
from collections.abc import Container
from pathlib import Path

BLOCK_BYTES = 512


def held_bytes(path: Path) -> int:
    """What a file, or a folder with all that is in it, takes on the disk; 0 if it is not there (any more).

    A folder is not left for what is mounted in it, nor through a link.
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
            continue  # it was removed meanwhile
    return total


def trim_logs(logs: Path, limit_bytes: int, keep: Container[str]) -> tuple[int, int]:
    """Delete the logs of the runs whose last attempt began the longest ago, until all have `limit_bytes` at most.

    Those of the runs in `keep` stay. How many runs lost theirs, and how many bytes that made free. Raises `OSError`.
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
        shutil.rmtree(path)
        cut, freed = cut + 1, freed + size
    return cut, freed
