"""Temporary files with plain content, which are removed also if the process that made them is killed."""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_WATCH: Final = 'read -r ended || rm -rf -- "$1"'
"""Ends at the first line of its input. If the input ends without a line, its parent was killed."""


@contextmanager
def private_folder(prefix: str) -> Iterator[Path]:
    """Make a temporary folder that only this user can open, and remove it when the block ends or the process dies."""
    with tempfile.TemporaryDirectory(prefix=prefix) as name, removed_if_killed(Path(name)):
        yield Path(name)


@contextmanager
def removed_if_killed(path: Path) -> Iterator[None]:
    """Remove a file or folder if this process is killed during the block. Needs `sh`.

    An attempt may start no shell, and needs none: its temporary files are in its scratch folder, which its supervisor
    or the next start of its node removes.
    """
    try:
        # In a session of its own, so that a signal to the group of this process does not end it.
        watch = subprocess.Popen(
            ["sh", "-c", _WATCH, "sh", str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
    except (PermissionError, FileNotFoundError):
        yield
        return
    try:
        yield
    finally:
        with suppress(BrokenPipeError):  # somebody has ended the shell
            watch.communicate(b"ended\n")
