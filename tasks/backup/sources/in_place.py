"""Replaces a target by content that was restored next to it. If that fails, the old content stays as it was."""

import ctypes
import os
import shutil
import stat
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tasks.places.fsync import sync
from tasks.places.mounts import mountinfo, mounts


@contextmanager
def closed_to_others() -> Iterator[None]:
    """Set the umask for the block, so that only the owner can read new files until they get their final mode."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def empty(folder: Path) -> bool:
    """Whether a folder has no entries."""
    return next(folder.iterdir(), None) is None


def beside(target: Path, key: str | None = None) -> Path:
    """Return a path next to `target`, from which a rename can replace it; inside `target` if that is a mount point.

    The path is a new one, or always the same for the same `key`: what an interrupted restore has left may be there.

    A mount point cannot be renamed, and its parent folder is on another file system.
    """
    return _hidden(
        target,
        target if target.is_dir() and _is_mounted(target) else target.parent,
        "partial" if key is None else "packs",
        key,
    )


def _hidden(target: Path, folder: Path, suffix: str, key: str | None = None) -> Path:
    return folder / f".{target.name}.{key or uuid.uuid4().hex}.{suffix}"


def _is_mounted(path: Path) -> bool:
    # `os.path.ismount` does not recognize a bind mount of a folder of the same file system.
    return str(path) in {mount.point for mount in mounts(mountinfo()).values()}


def put_folder(aside: Path, target: Path) -> None:
    """Move the folder `aside`, a path from `beside`, to `target`, and remove the old content of `target`.

    All that `target` shows is on the disk before, also after a loss of power. Raises `OSError`; then the old content
    stays.
    """
    if aside.parent == target:
        _move_up(aside, target)
        return
    _sync_folder(aside)
    if not target.exists() or (target.is_dir() and empty(target)):
        aside.rename(target)
        sync(target.parent)
    else:
        old = _hidden(target, target.parent, "old")
        with _all_or_none() as moved:
            _move(target, old, moved)
            _move(aside, target, moved)
            sync_files(target)
        _remove(old)


def _move_up(aside: Path, target: Path) -> None:
    """Do `put_folder` for a mount point, by renaming its entries one by one."""
    about = aside.stat()
    # The mode of `aside` may forbid renaming its entries.
    aside.chmod(0o700)
    sync_files(aside)
    old = _hidden(target, target, "old")
    old.mkdir(0o700)
    try:
        with _all_or_none() as moved:
            for path in [path for path in target.iterdir() if path not in (aside, old)]:
                _move(path, old / path.name, moved)
            for path in list(aside.iterdir()):
                _move(path, target / path.name, moved)
            sync_files(target)
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
    """Yield a list in which the block notes its renames. If the block raises, undo them, the last one first."""
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
    """Move the file `aside`, a path from `beside`, to `target`, and remove the old file and the files `with_it`.

    Raises `OSError`; then the old files stay.
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


def _sync_folder(folder: Path) -> None:
    """Sync a folder of this user's own, also if its mode forbids reading it."""
    if os.access(folder, os.R_OK):
        sync_files(folder)
        return
    mode = stat.S_IMODE(folder.stat().st_mode)
    folder.chmod(0o700)
    try:
        sync_files(folder)
    finally:
        folder.chmod(mode)


def sync_files(folder: Path) -> None:
    """Sync the file system of `folder`, with all files in it. Raises `OSError`."""
    # syncfs is one call for any number of files. Python's os.sync syncs all file systems, and reports no errors.
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
