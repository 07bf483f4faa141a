"""A folder's archive, unpacked or read through without trust: nothing lands outside, or is written through a link.

tarfile's own filters do not do for that. `data` changes modes and owners, which are to stay; `tar` leaves hard links
alone; and neither knows what an earlier member has put in the way of a later one.
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
"""What the folder itself is called in its archive. Archives from before it was stored have none."""


def unpack(content: Content, into: Path) -> None:
    """Unpack the archive into the empty folder `into`, which gets the mode, owner and time of the one backed up.

    Raises `Damaged`; what was unpacked by then stays in `into`, and nowhere else.
    """
    try:
        with tarfile.open(fileobj=content, mode="r|", bufsize=CHUNK_BYTES) as archive:
            archive.extractall(into, members=_members(archive), filter=_inside)
    except tarfile.TarError as error:
        raise Damaged(f"the archive does not unpack: {error}") from error
    content.drain()


def check(content: Content) -> int:
    """Read the archive through. How many members it has. Raises `Damaged`.

    Eight bytes are kept for each file, since any of them may be what a later hard link wants.
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
        raise Damaged(f"the archive does not unpack: {error}") from error
    content.drain()
    links.refuse_without(files)
    return members


class _Links:
    """The hard links of an archive, by what they are links to."""

    def __init__(self) -> None:
        self._wanted: dict[int, tuple[int, tarfile.TarInfo]] = {}

    def want(self, member: tarfile.TarInfo, before: int) -> None:
        """The file that `member` is a link to must be among the first `before` files."""
        self._wanted.setdefault(_short(member.linkname), (before, member))

    def refuse_without(self, files: "array[int]") -> None:
        """Raises `Damaged` unless each link has its file among those before it."""
        if not self._wanted:
            return
        for index, file in enumerate(files):
            if file in self._wanted and index < self._wanted[file][0]:
                del self._wanted[file]
        for _, member in self._wanted.values():
            raise _refused(member, f"it is a hard link to {member.linkname!r}, which does not come before it")


def forget(archive: tarfile.TarFile) -> None:
    """Drop the list of all members so far, which tarfile keeps and a stream has no use for."""
    archive.members = []


def _members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    while (member := archive.next()) is not None:
        yield member
        forget(archive)


def _short(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(errors="surrogateescape"), digest_size=8).digest(), "big")


def _refused(member: tarfile.TarInfo, why: str) -> Damaged:
    return Damaged(f"the archive does not unpack: {member.name!r} is refused: {why}")


def _parts(member: tarfile.TarInfo, name: str) -> list[str]:
    """A name in the archive, folder by folder. Raises `Damaged` if it leads out of it."""
    parts = [part for part in name.split("/") if part not in ("", ROOT)]
    if name.startswith("/") or ".." in parts:
        raise _refused(member, f"{name!r} is outside the folder")
    return parts


def _there(member: tarfile.TarInfo, name: str, into: str) -> os.stat_result | None:
    """What is at `name` already; a link is not followed. Raises `Damaged` where the way there has one in it."""
    path, about = into, os.lstat(into)
    for part in _parts(member, name):
        if not stat.S_ISDIR(about.st_mode):
            raise _refused(member, f"{name!r} leads through what is not a folder")
        path = f"{path}/{part}"
        try:
            about = os.lstat(path)
        except FileNotFoundError:
            return None
    return about


def _inside(member: tarfile.TarInfo, into: str) -> tarfile.TarInfo:
    """The member as it is to be unpacked: as it was backed up, modes and owners too. Raises `Damaged`."""
    there = _there(member, member.name, into)
    if there is not None and not (member.isdir() and stat.S_ISDIR(there.st_mode)):
        raise _refused(member, "there is something of that name already")
    if member.islnk():
        target = _there(member, member.linkname, into)
        if target is None or not stat.S_ISREG(target.st_mode):
            raise _refused(member, f"it is a hard link to {member.linkname!r}, which is no file that comes before it")
    return member
