"""Folders as a task may leave them."""

import os
from pathlib import Path


def deep_folder(root: Path, levels: int) -> None:
    """Make `root`, and folders within one another in it, each with a file: deeper than a path may be long."""
    root.mkdir()
    at = os.open(root, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=at)
        os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=at))
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
