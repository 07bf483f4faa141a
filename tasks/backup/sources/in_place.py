"""What was restored beside its target, put in the target's place: all of it, or nothing, and the old until then."""

import ctypes
import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tasks.durable import sync

_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(r"\\([0-7]{3})")


@contextmanager
def closed_to_others() -> Iterator[None]:
    """What is made in the block is its owner's alone, until it gets the mode that it is to have."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def empty(folder: Path) -> bool:
    """Whether there is nothing in it."""
    return next(folder.iterdir(), None) is None


def beside(target: Path) -> Path:
    """Where to restore to, so that a rename puts it in the place of `target`: in it, if that is a mount point.

    A mount point cannot be renamed, and what is beside it is another file system's.
    """
    return _hidden(target, target if target.is_dir() and _is_mounted(target) else target.parent, "partial")


def _hidden(target: Path, folder: Path, suffix: str) -> Path:
    return folder / f".{target.name}.{uuid.uuid4().hex}.{suffix}"


def _is_mounted(path: Path) -> bool:
    # `os.path.ismount` does not know a folder that is mounted from the same file system.
    lines = os.fsdecode(_MOUNTS.read_bytes()).splitlines()
    return str(path) in {_ESCAPED.sub(lambda code: chr(int(code[1], 8)), line.split(" ")[4]) for line in lines}


def put_folder(aside: Path, target: Path) -> None:
    """Make the folder `aside`, which is where `beside` said, the one at `target`; what was there is removed.

    Raises `OSError`, and leaves what was there if it does.
    """
    if aside.parent == target:
        _move_up(aside, target)
    elif not target.exists() or (target.is_dir() and empty(target)):
        aside.rename(target)
    else:
        _sync(aside)
        old = _hidden(target, target.parent, "old")
        with _all_or_none() as moved:
            _move(target, old, moved)
            _move(aside, target, moved)
            _sync(target)
        _remove(old)


def _move_up(aside: Path, target: Path) -> None:
    """The same for a mount point, whose content is renamed entry by entry."""
    about = aside.stat()
    # Whatever its mode is to be, its entries must come out of it.
    aside.chmod(0o700)
    _sync(aside)
    old = _hidden(target, target, "old")
    old.mkdir(0o700)
    try:
        with _all_or_none() as moved:
            for path in [path for path in target.iterdir() if path not in (aside, old)]:
                _move(path, old / path.name, moved)
            for path in list(aside.iterdir()):
                _move(path, target / path.name, moved)
            _sync(target)
    except BaseException:
        old.rmdir()
        raise
    aside.rmdir()
    _remove(old)
    if os.geteuid() == 0:
        os.chown(target, about.st_uid, about.st_gid)
    target.chmod(stat.S_IMODE(about.st_mode))
    os.utime(target, ns=(about.st_atime_ns, about.st_mtime_ns))


@contextmanager
def _all_or_none() -> Iterator[list[tuple[Path, Path]]]:
    """Gives a list of renames done, which are undone, the last first, if the block raises."""
    moved: list[tuple[Path, Path]] = []
    try:
        yield moved
    except BaseException:
        for before, after in reversed(moved):
            after.rename(before)
        raise


def _move(path: Path, to: Path, moved: list[tuple[Path, Path]]) -> None:
    path.rename(to)
    moved.append((path, to))


def put_file(aside: Path, target: Path, with_it: Iterable[Path]) -> None:
    """Make the file `aside`, which is beside it, the one at `target`; what was there, and the files `with_it`, go.

    Raises `OSError`, and leaves what was there if it does.
    """
    sync(aside)
    with _all_or_none() as moved:
        for path in with_it:
            if path.exists():
                _move(path, _hidden(path, path.parent, "old"), moved)
        aside.rename(target)
    sync(target.parent)
    for _, old in moved:
        old.unlink()


def _sync(folder: Path) -> None:
    """Have all that was written to the file system of `folder` on its disk."""
    # One call for any number of files; Python has it for all file systems at once only, and without its errors.
    libc = ctypes.CDLL(None, use_errno=True)
    with _opened(folder) as descriptor:
        if libc.syncfs(descriptor) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(folder))


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
