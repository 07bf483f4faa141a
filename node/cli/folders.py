"""Finds the files of tasks in a folder. What cannot be read is an error: a task that is overlooked would be pruned."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
"""Which files of a folder are read."""


def files_at(place: str) -> Iterator[str]:
    """The files at a place: itself, or, sorted by path, those of a folder and of the folders in it.

    Hidden files and folders are left out; links are followed. Raises `click.UsageError` for a folder that cannot be
    read, a link that leads nowhere or to a folder that it is in, and for what has a file's name and is no file.
    """
    if place == "-" or not os.path.isdir(place):  # noqa: PTH112 - Path's raises where it may not look
        yield place
    else:
        yield from sorted(_within(Path(place), ()), key=Path)


def _within(folder: Path, above: tuple[tuple[int, int], ...]) -> Iterator[str]:
    """The files in a folder. `above` are the folders that lead to it, as device and inode."""
    try:
        status = folder.stat()
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise _unreadable(folder, error) from error
    here = (status.st_dev, status.st_ino)
    if here in above:
        raise click.UsageError(f"{folder} is a link to a folder that it is in: remove it")
    for entry in entries:
        if entry.name.startswith("."):
            continue
        path = Path(entry.path)
        named_as_file = path.suffix.lower() in SUFFIXES
        try:
            path.stat()
        except OSError as error:
            # A link that leads nowhere could be to a folder of tasks as well.
            raise _unreadable(path, error) from error
        if path.is_dir():
            yield from _within(path, (*above, here))
        elif named_as_file and not path.is_file():
            raise click.UsageError(f"{path} is neither a file nor a folder")
        elif named_as_file:
            yield str(path)


def _unreadable(path: Path, error: OSError) -> click.UsageError:
    leads = " (a link that leads nowhere)" if os.path.islink(path) else ""  # noqa: PTH114 - Path's raises
    return click.UsageError(
        f"{path} cannot be read: {error.strerror}{leads}. Mend or remove it: tasks in it would be overlooked"
    )
