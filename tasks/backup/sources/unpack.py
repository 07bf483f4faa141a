"""Unpacks or checks an untrusted archive of a folder. Never writes outside the target or through a link.

tarfile's own filters do not suffice. The filter `data` changes modes and owners, which must be kept. The filter `tar`
does not check hard links. And neither notices that an earlier member has put a link in the path of a later one.
"""

import os
import stat
from array import array
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

from tasks.backup.archive import CHUNK_BYTES, Content, Damaged
from tasks.backup.sources.tar import tarfile

ROOT = "."
"""The name of the folder itself in its archive. Older archives have no such member."""


def extract(content: Content, into: Path) -> None:
    """Unpack the archive into the empty folder `into`, which gets the mode, owner and time of the original folder.

    Raises `Damaged`; the members that were unpacked before the error stay in `into`.
    """
    try:
        with tarfile.open(fileobj=content, mode="r|", bufsize=CHUNK_BYTES) as archive:
            archive.extractall(into, members=_members(archive), filter=_inside)
    except tarfile.TarError as error:
        raise Damaged(f"the archive cannot be unpacked: {error}") from error
    content.drain()


def check_archive(content: Content) -> int:
    """Read the whole archive. Returns the number of its members. Raises `Damaged`.

    Keeps eight bytes of memory for each file, since a later hard link may refer to any file.
    """
    members, files, links = 0, array("Q"), _Links()
    try:
        with tarfile.open(fileobj=content, mode="r|", bufsize=CHUNK_BYTES) as archive:
            for member in _members(archive):
                members += 1
                _parts(member, member.name)
                if member.islnk():
                    _parts(member, member.linkname)
                    links.want(member, before=len(files))
                elif member.isreg():
                    files.append(_short(member.name))
    except tarfile.TarError as error:
        raise Damaged(f"the archive cannot be unpacked: {error}") from error
    content.drain()
    links.refuse_without(files)
    return members


class _Links:
    """The hard links of an archive, by a hash of their targets' names."""

    def __init__(self) -> None:
        self._wanted: dict[int, tuple[int, tarfile.TarInfo]] = {}

    def want(self, member: tarfile.TarInfo, before: int) -> None:
        """Note that the file that `member` links to must be among the first `before` files."""
        self._wanted.setdefault(_short(member.linkname), (before, member))

    def refuse_without(self, files: "array[int]") -> None:
        """Raise `Damaged` unless each link's target is among the files before it."""
        if not self._wanted:
            return
        for index, file in enumerate(files):
            if file in self._wanted and index < self._wanted[file][0]:
                del self._wanted[file]
        for _, member in self._wanted.values():
            raise _refused(member, f"it is a hard link to {member.linkname!r}, which is not a file before it")


def drop_member_list(archive: tarfile.TarFile) -> None:
    """Drop the list of members that tarfile keeps, which a stream does not need."""
    archive.members = []


def _members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    while (member := archive.next()) is not None:
        yield member
        drop_member_list(archive)


def _short(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(errors="surrogateescape"), digest_size=8).digest(), "big")


def _refused(member: tarfile.TarInfo, why: str) -> Damaged:
    return Damaged(f"the archive cannot be unpacked: {member.name!r} is refused: {why}")


def _parts(member: tarfile.TarInfo, name: str) -> list[str]:
    """Return the parts of a name in the archive. Raises `Damaged` if the name is outside of the folder."""
    parts = [part for part in name.split("/") if part not in ("", ROOT)]
    if name.startswith("/") or ".." in parts:
        raise _refused(member, f"{name!r} is outside the folder")
    return parts


def _there(member: tarfile.TarInfo, name: str, into: str) -> os.stat_result | None:
    """Return the status of the file `name` in `into`, without following a link; None if it does not exist.

    Raises `Damaged` if a part of the path before it is not a folder.
    """
    path, about = into, os.lstat(into)
    for part in _parts(member, name):
        if not stat.S_ISDIR(about.st_mode):
            raise _refused(member, f"a part of the path {name!r} is not a folder")
        path = f"{path}/{part}"
        try:
            about = os.lstat(path)
        except FileNotFoundError:
            return None
    return about


def _inside(member: tarfile.TarInfo, into: str) -> tarfile.TarInfo:
    """Return the member unchanged, with its mode and owner. Raises `Damaged` if it may not be unpacked."""
    there = _there(member, member.name, into)
    if there is not None and not (member.isdir() and stat.S_ISDIR(there.st_mode)):
        raise _refused(member, "this name exists already")
    if member.islnk():
        target = _there(member, member.linkname, into)
        if target is None or not stat.S_ISREG(target.st_mode):
            raise _refused(member, f"it is a hard link to {member.linkname!r}, which is not a file before it")
    return member
