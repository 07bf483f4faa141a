"""Finds the node's own files at every path that leads to them, and lists the other entries of the folders above them.

Landlock rules can only allow. So "all files but the node's own" must be given as a list: for each folder above one of
the node's own files, all other entries that it has now. Entries that are added to such a folder later are refused, and
so is listing the folder.
"""

import os
import stat
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from tasks.access import NEVER, is_within
from tasks.file_guard import FileId, file_id
from tasks.landlock import located
from tasks.places.mounts import Mount, mount_of, mounts

_DEEP: Final = 2


_KERNELS: Final = ("proc", "sysfs", "devtmpfs")
"""Types of the kernel's file systems, through which root may change the machine. A chroot may have further mounts."""


class Own(NamedTuple):
    """The files to which access stays refused although a folder above them is allowed."""

    #: The real paths of these files, some of which may not exist yet.
    paths: tuple[str, ...]
    #: The folders above these paths, by inode, because a folder that is allowed at one path is allowed at all others.
    above: frozenset[FileId] = frozenset()
    #: The files among them that have another hard link somewhere.
    linked: frozenset[FileId] = frozenset()


def nodes_own(named: Iterable[str], mounted: str) -> Own:
    """Find the node's own files at the paths `named`, which the settings give. `mounted` is the text of `mountinfo`."""
    given = tuple(named)
    return _own(paths_of(given, mounted), frozenset(with_other_names(real_and_named(given))))


def and_at(own: Own, named: Iterable[str], mounted: str) -> Own:
    """Return `own` with the files at the paths `named` added."""
    return _own(tuple(dict.fromkeys((*own.paths, *paths_of(named, mounted)))), own.linked)


def _own(paths: tuple[str, ...], linked: frozenset[FileId]) -> Own:
    above = {str(folder) for path in paths for folder in Path(path).parents}
    return Own(paths, frozenset(_ids(above)), linked)


def paths_of(named: Iterable[str], mounted: str) -> tuple[str, ...]:
    """Return the real paths of `named`, and all other paths at which mounts (`mounted`) show them or parts of them."""
    known, paths = mounts(mounted), real_and_named(named)
    once = {device for device, count in Counter(each.device for each in known.values()).items() if count == 1}
    shown = [path for own in paths for path in (*_mounts_below(own, known), own)]
    return tuple(dict.fromkeys((*paths, *(other for path in shown for other in _shown_elsewhere(path, known, once)))))


def kernels(mounted: str) -> tuple[str, ...]:
    """Return all paths at which the kernel's file systems are mounted."""
    return (*NEVER, *(mount.point for mount in mounts(mounted).values() if mount.type in _KERNELS))


def _ids(paths: Iterable[str]) -> Iterator[FileId]:
    for path in paths:
        with suppress(OSError):  # missing, or hidden from this user, who then cannot open nor allow it
            yield file_id(os.stat(path))  # noqa: PTH116  paths are strings here


def real_and_named(own: Iterable[str]) -> tuple[str, ...]:
    """Return the real paths of `own`, and of the symlinks in it, because a task must not replace a symlink either."""
    given = list(own)
    named = (os.path.join(os.path.realpath(os.path.dirname(each)), os.path.basename(each)) for each in given)  # noqa: PTH118, PTH119, PTH120  paths are strings here
    return tuple(dict.fromkeys((*map(os.path.realpath, given), *named)))


def _mounts_below(own: str, known: Mapping[int, Mount]) -> Iterator[str]:
    return (mount.point for mount in known.values() if is_within(mount.point, own))


def _shown_elsewhere(path: str, known: Mapping[int, Mount], once: Collection[str]) -> Iterator[str]:
    """Yield the paths at which mounts show the file or folder at `path`, or a part of it.

    If it does not exist yet, the paths follow from its nearest existing parent. `once` contains the devices that are
    mounted only once.
    """
    there = path
    while (descriptor := located(there)) is None:
        there = os.path.dirname(there)  # noqa: PTH120  paths are strings here
    try:
        device = os.fstat(descriptor).st_dev
        if f"{os.major(device)}:{os.minor(device)}" in once:
            return  # a subvolume may have a device number of its own, which is not in `once`
        mount = mount_of(descriptor, known)
    except OSError:
        return  # in another mount namespace, reached by a descriptor: no path here leads to it
    finally:
        os.close(descriptor)
    yield from other_paths(path, mount, known.values())


def other_paths(path: str, mount: Mount, known: Iterable[Mount]) -> Iterator[str]:
    """Yield the paths at which the mounts `known` show the file or folder `path` (on `mount`), or a part of it. Pure.

    >>> disk, view = Mount("/srv", "ext4", "/vol", "8:1"), Mount("/mnt/view", "ext4", "/vol/node", "8:1")
    >>> list(other_paths("/srv/node/data", disk, [disk, view, Mount("/logs", "ext4", "/vol/node/data/logs", "8:1")]))
    ['/srv/node/data', '/mnt/view/data', '/logs']
    >>> own = Mount("/srv/node/data", "tmpfs", "/", "0:50")
    >>> list(other_paths("/srv/node/data", own, [disk, own, Mount("/mnt", "tmpfs", "/", "0:50")]))
    ['/srv/node/data', '/mnt']
    """
    inside = _moved(path, mount.point, mount.root)
    for each in known:
        if each.device == mount.device and is_within(inside, each.root):
            yield _moved(inside, each.root, each.point)
        elif each.device == mount.device and is_within(each.root, inside):
            yield each.point


def _moved(path: str, out_of: str, into: str) -> str:
    """Return `path` with its leading folder `out_of` replaced by `into`."""
    return f"{into.rstrip('/')}/{path[len(out_of) :].lstrip('/')}".rstrip("/") or "/"


def with_other_names(own: Iterable[str]) -> dict[FileId, str]:
    """Find files with another hard link at the paths `own` and up to two levels below. Returns a path for each id."""
    found: dict[FileId, str] = {}
    for path in own:
        for each in _files(path, _DEEP):
            with suppress(OSError):
                about = os.lstat(each)
                if stat.S_ISREG(about.st_mode) and about.st_nlink > 1:
                    found[file_id(about)] = each
    return found


def _files(path: str, deep: int) -> Iterator[str]:
    """Yield `path` if it is a file, else the files up to `deep` levels below it; deeper, such as logs, are too many."""
    try:
        entries = os.scandir(path)
    except NotADirectoryError:
        yield path
        return
    except OSError:
        return  # missing, or hidden from this user
    with entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                yield entry.path
            elif deep > 1 and entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path, deep - 1)


def without(folder: int, path: str, own: Own, looked_into: dict[str, int] | None = None) -> Iterator[int]:
    """Yield open descriptors that together cover the open folder or file `folder` as it is now, except for `own`.

    `path` is its real path. Each descriptor but `folder` is closed as the iteration goes on. If a folder has a file of
    `own` below it, the folder's other entries are yielded instead of the folder. Such folders are added to
    `looked_into`, with the time at which each had last changed.
    """
    inside = tuple(each for each in own.paths if is_within(each, path))
    if path in inside or any(is_within(path, each) for each in own.paths):
        return
    about = os.fstat(folder)
    if not inside and file_id(about) not in own.above:
        if file_id(about) not in own.linked:
            yield folder
        return
    if looked_into is not None:
        looked_into[path] = about.st_mtime_ns
    begin = len(path.rstrip("/")) + 1
    leading = {each[begin:].partition("/")[0] for each in inside}
    for name in _names(folder):
        # Open it relative to the listed folder, so that a symlink that has replaced the entry is not followed.
        entry = located(name, folder)
        if entry is None:
            continue
        try:
            one = os.fstat(entry)
            if name in leading or file_id(one) in own.above:
                yield from without(entry, f"{path.rstrip('/')}/{name}", own._replace(paths=inside), looked_into)
            elif not stat.S_ISLNK(one.st_mode) and file_id(one) not in own.linked:
                yield entry
        finally:
            os.close(entry)


def _names(folder: int) -> list[str]:
    try:
        readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return []  # this user cannot list it, so nothing in it is allowed
    try:
        with os.scandir(readable) as entries:
            return [entry.name for entry in entries if not entry.is_symlink()]
    finally:
        os.close(readable)
