"""Finds the node's own files at every path that leads to them, and lists the other entries of the folders above them.

Landlock can only allow. "All but the node's own" is therefore a list: for each folder above one of the node's own
files, everything else that is in it now. Entries that are added to such a folder later are refused, as is listing it.
"""

import os
import stat
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from node.execution.landlock import located
from tasks.access import NEVER, is_within
from tasks.file_guard import FileId, file_id
from tasks.places.mounts import Mount, mount_of, mounts

_DEEP: Final = 2


_KERNELS: Final = ("proc", "sysfs", "devtmpfs")
"""Types of the kernel's file systems, through which root may change the machine. A chroot may mount them again."""


class Own(NamedTuple):
    """The files that stay refused although a folder above them is allowed."""

    #: The real paths of these files, some of which may not exist yet.
    paths: tuple[str, ...]
    #: The folders above these paths, by inode: a folder that is allowed at one path is allowed at all its paths.
    above: frozenset[FileId] = frozenset()
    #: Those of the files that have another name somewhere (hard links).
    linked: frozenset[FileId] = frozenset()


def nodes_own(named: Iterable[str], mounted: str) -> Own:
    """Find the node's own files, which the settings name, as they are now. `mounted` is the text of `mountinfo`."""
    given = tuple(named)
    return _own(paths_of(given, mounted), frozenset(with_other_names(real_and_named(given))))


def and_at(own: Own, named: Iterable[str], mounted: str) -> Own:
    """Add the paths `named` to the node's own."""
    return _own(tuple(dict.fromkeys((*own.paths, *paths_of(named, mounted)))), own.linked)


def _own(paths: tuple[str, ...], linked: frozenset[FileId]) -> Own:
    above = {str(folder) for path in paths for folder in Path(path).parents}
    return Own(paths, frozenset(_ids(above)), linked)


def paths_of(named: Iterable[str], mounted: str) -> tuple[str, ...]:
    """The real paths of `named`, and all other paths at which the mounts `mounted` show them or parts of them."""
    known, paths = mounts(mounted), real_and_named(named)
    once = {device for device, count in Counter(each.device for each in known.values()).items() if count == 1}
    shown = [path for own in paths for path in (*_mounts_below(own, known), own)]
    return tuple(dict.fromkeys((*paths, *(other for path in shown for other in _shown_elsewhere(path, known, once)))))


def kernels(mounted: str) -> tuple[str, ...]:
    """The paths of the kernel's file systems, wherever they are mounted."""
    return (*NEVER, *(mount.point for mount in mounts(mounted).values() if mount.type in _KERNELS))


def _ids(paths: Iterable[str]) -> Iterator[FileId]:
    for path in paths:
        with suppress(OSError):  # missing, or hidden from this user, who then cannot open it and allow it either
            yield file_id(os.stat(path))  # noqa: PTH116  paths are strings here


def real_and_named(own: Iterable[str]) -> tuple[str, ...]:
    """The real paths of `own`, and of symlinks in it: a task that could replace a symlink would choose its target."""
    given = list(own)
    named = (os.path.join(os.path.realpath(os.path.dirname(each)), os.path.basename(each)) for each in given)  # noqa: PTH118, PTH119, PTH120  paths are strings here
    return tuple(dict.fromkeys((*map(os.path.realpath, given), *named)))


def _mounts_below(own: str, known: Mapping[int, Mount]) -> Iterator[str]:
    return (mount.point for mount in known.values() if is_within(mount.point, own))


def _shown_elsewhere(path: str, known: Mapping[int, Mount], once: Collection[str]) -> Iterator[str]:
    """The paths at which mounts show the file or folder at `path`, or a part of it. If it does not exist yet, its
    nearest existing parent decides.

    `once` contains the devices that are mounted a single time.
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
    """The paths at which the mounts `known` show the file or folder at `path` (on `mount`), or a part of it. Pure.

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
    """`path`, with its leading folder `out_of` replaced by `into`."""
    return f"{into.rstrip('/')}/{path[len(out_of) :].lstrip('/')}".rstrip("/") or "/"


def with_other_names(own: Iterable[str]) -> dict[FileId, str]:
    """The files at the paths `own`, and up to two levels below, that have another hard link: a path for each id."""
    found: dict[FileId, str] = {}
    for path in own:
        for each in _files(path, _DEEP):
            with suppress(OSError):
                about = os.lstat(each)
                if stat.S_ISREG(about.st_mode) and about.st_nlink > 1:
                    found[file_id(about)] = each
    return found


def _files(path: str, deep: int) -> Iterator[str]:
    """`path` if it is a file, else the files up to `deep` levels below it. Deeper ones, such as logs, are too many."""
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

    `path` is its real path. Each descriptor but `folder` is closed as the iteration goes on. In place of a folder with
    a file of `own` below it, the folder's other entries are yielded. Such folders are added to `looked_into`, with the
    time at which each had last changed.
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
        # Opened relative to the listed folder, so that a symlink that has replaced the entry is not followed.
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
