"""Finds the node's own files at every path that leads to them, and lists what else is in the folders above them.

Landlock only allows. "All but the node's own" is therefore a list: of each folder on the way to something of the node's
own, everything else that is in it now. What is added to such a folder later is refused, and so is listing it.
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
"""Types of the kernel's file systems, by which root may change the machine. A chroot has mounts of its own of them."""


class Own(NamedTuple):
    """The files that stay refused although a folder above them is allowed."""

    #: Real paths. What is at one may not be there yet.
    paths: tuple[str, ...]
    #: The folders above these. The kernel goes by inodes: allowed at one path, a folder is allowed at each.
    above: frozenset[FileId] = frozenset()
    #: The files there that have another name somewhere (hard links).
    linked: frozenset[FileId] = frozenset()


def nodes_own(named: Iterable[str], mounted: str) -> Own:
    """What the settings name as the node's own, as it is now. `mounted` is the text of `mountinfo`."""
    given = tuple(named)
    return _own(paths_of(given, mounted), frozenset(with_other_names(real_and_named(given))))


def and_at(own: Own, named: Iterable[str], mounted: str) -> Own:
    """The node's own, and what is at the paths `named`."""
    return _own(tuple(dict.fromkeys((*own.paths, *paths_of(named, mounted)))), own.linked)


def _own(paths: tuple[str, ...], linked: frozenset[FileId]) -> Own:
    above = {str(folder) for path in paths for folder in Path(path).parents}
    return Own(paths, frozenset(_ids(above)), linked)


def paths_of(named: Iterable[str], mounted: str) -> tuple[str, ...]:
    """The real paths of `named`, and every other path at which the mounts `mounted` show the same, or a part of it."""
    known, paths = mounts(mounted), real_and_named(named)
    once = {device for device, count in Counter(each.device for each in known.values()).items() if count == 1}
    shown = [path for own in paths for path in (*_mounts_below(own, known), own)]
    return tuple(dict.fromkeys((*paths, *(other for path in shown for other in _shown_elsewhere(path, known, once)))))


def kernels(mounted: str) -> tuple[str, ...]:
    """The paths of the kernel's file systems, wherever they are mounted."""
    return (*NEVER, *(mount.point for mount in mounts(mounted).values() if mount.type in _KERNELS))


def _ids(paths: Iterable[str]) -> Iterator[FileId]:
    for path in paths:
        with suppress(OSError):  # not there, or not for this user: what is allowed is opened before it is compared
            yield file_id(os.stat(path))  # noqa: PTH116  paths are strings here


def real_and_named(own: Iterable[str]) -> tuple[str, ...]:
    """The real paths of `own`, and of links that name them: whoever could replace a link would choose its target."""
    given = list(own)
    named = (os.path.join(os.path.realpath(os.path.dirname(each)), os.path.basename(each)) for each in given)  # noqa: PTH118, PTH119, PTH120  paths are strings here
    return tuple(dict.fromkeys((*map(os.path.realpath, given), *named)))


def _mounts_below(own: str, known: Mapping[int, Mount]) -> Iterator[str]:
    return (mount.point for mount in known.values() if is_within(mount.point, own))


def _shown_elsewhere(path: str, known: Mapping[int, Mount], once: Collection[str]) -> Iterator[str]:
    """The paths at which other mounts show what is at `path`, or in it. If nothing is there yet, its folder decides.

    `once` has the devices that are mounted a single time.
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
        return  # of another mount namespace, by a descriptor: no path here leads to it
    finally:
        os.close(descriptor)
    yield from other_paths(path, mount, known.values())


def other_paths(path: str, mount: Mount, known: Iterable[Mount]) -> Iterator[str]:
    """The paths at which `known` mounts show what is at `path`, which is on `mount`, or what is in it. Pure.

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
    """The files at the paths `own`, and in folders there two levels deep, that have another name: hard links."""
    found: dict[FileId, str] = {}
    for path in own:
        for each in _files(path, _DEEP):
            with suppress(OSError):
                about = os.lstat(each)
                if stat.S_ISREG(about.st_mode) and about.st_nlink > 1:
                    found[file_id(about)] = each
    return found


def _files(path: str, deep: int) -> Iterator[str]:
    """`path` if it is a file, else the files in it. A folder of logs has many folders: they are not looked at."""
    try:
        entries = os.scandir(path)
    except NotADirectoryError:
        yield path
        return
    except OSError:
        return  # not there yet, or not to be seen by this user
    with entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                yield entry.path
            elif deep > 1 and entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path, deep - 1)


def without(folder: int, path: str, own: Own, looked_into: dict[str, int] | None = None) -> Iterator[int]:
    """Descriptors that together cover the folder, or file, open as `folder`, without `own`, as it is now.

    `path` is its real path. All but `folder` are closed as the iteration goes on. A folder that has something of `own`
    below it is not among them: only what else is in it. Such folders are added to `looked_into`, with the time at which
    each had last changed.
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
        # Opened relative to the folder that was listed: a link that has replaced it is not followed.
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
        return []  # this user cannot look into it, and so cannot open anything in it but by name
    try:
        with os.scandir(readable) as entries:
            return [entry.name for entry in entries if not entry.is_symlink()]
    finally:
        os.close(readable)
