"""Unpacks or checks untrusted archives of a folder. Never writes outside the target or through a link.

Only the headers are read by the standard library's tarfile. Its own unpacking does not check hard links with every
filter, does not notice that an earlier member has put a link in the path of a later one, and restores neither extended
attributes nor nanoseconds. Here each member is made through the open folder above it, which is opened without following
links, and under a name that does not exist.
"""

import errno
import os
import stat
from array import array
from collections.abc import Collection, Iterator
from functools import cache
from grp import getgrnam
from hashlib import blake2b
from pathlib import Path
from pwd import getpwnam
from typing import IO, Final

from tasks.backup.archive import CHUNK_BYTES, Content, Damaged
from tasks.backup.sources.tar import archive_in, tarfile
from tasks.backup.tree.header import ABOVE, ATTRIBUTE, attribute_name
from tasks.backup.tree.pack_index import PackIndex
from tasks.backup.tree.read_tree import ROOT

_IN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PRIVATE: Final = 0o700
_ACL: Final = "system.posix_acl_"
_DEFAULT_ACL: Final = f"{_ACL}default"
_ACCESS_ACL: Final = f"{_ACL}access"


def extract(content: Content, into: Path, links: Collection[str] | None = None) -> list[str]:
    """Unpack the archive into the empty folder `into`, which gets the mode, owner and time of the original folder.

    `links`: the only paths at which anything but files and folders may be; None: links are no reason to refuse it.
    Returns remarks. Raises `Damaged`; the members that were unpacked before the error stay in `into`.
    """
    unpacking = Unpacking(into, links=links)
    unpacking.add(content)
    unpacking.finish()
    return unpacking.remarks


class Unpacking:
    """Unpacks archives, one after another, into the folder `into`.

    `only`: a path in the archives; the folder at that path becomes `into`, and what is no folder gets its last name in
    `into`. `links` are those of `extract`.
    """

    def __init__(self, into: Path, *, only: str = "", links: Collection[str] | None = None) -> None:
        self._into = into
        self._links = links
        self._again = False
        self._only = [part for part in only.split("/") if part not in ("", ROOT)]
        self.found = False
        """Whether the archives had the path `only`."""
        self.is_folder = not self._only
        """Whether a folder is at that path."""
        self.linked: dict[str, list[str]] = {}
        """Names in `into` of files that are not among those unpacked, by the files' paths in the archives."""
        self._root = os.geteuid() == 0
        self._folder: tuple[list[str], int] | None = None
        """The folder of the last member: the parts of its path, and its descriptor."""
        self._top: tarfile.TarInfo | None = None
        self._folders: dict[tuple[str, ...], tarfile.TarInfo | tuple[os.stat_result, bytes | None]] = {}
        """What folders get at the end: facts of a member, or those they had, with their default ACL."""
        self._lost: dict[str, int] = {}

    @property
    def remarks(self) -> list[str]:
        """A sentence for each kind of fact that this user or file system could not restore."""
        return [f"{what}: not restored for {count} files or folders" for what, count in self._lost.items()]

    def finish(self) -> None:
        """Give `into` the mode, owner and time of the original folder. Until then only this user can read it."""
        if self._top is not None:
            opened = os.open(self._into, _IN)
            try:
                self._dress(self._top, opened)
            finally:
                os.close(opened)

    def add(self, content: Content, *, again: bool = False) -> None:
        """Unpack one archive. Raises `Damaged`.

        `again`: names that exist may come from an interrupted unpacking of this archive, and are replaced.
        """
        self._again = again
        for acl in (_DEFAULT_ACL, _ACCESS_ACL):  # of the folder above `into`
            _take_acl(self._opened(None, []), acl)
        try:
            with archive_in(content) as archive:
                for member in _members(archive):
                    self._member(archive, member)
        finally:
            self._leave()
        content.drain()
        self._finish_folders()

    def _member(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        parts = self._inside(_parts(member, member.name))
        if parts is None:
            return
        self.found = True
        if not parts and member.isdir():
            self.is_folder = True
        if not parts and self._only and not member.isdir():
            parts = self._only[-1:]
        if member.isdir():
            self._make_folder(member, parts)
            return
        if not parts:
            raise _refused(member, "it is the folder itself, and no folder")
        if self._links is not None and not member.isreg() and "/".join(parts) not in self._links:
            raise _refused(member, "only files and folders are expected there")
        folder, name = self._opened(member, parts[:-1], make=True), parts[-1]
        if self._again:
            _remove(folder, name)
        try:
            self._make(archive, member, folder, name)
        except FileExistsError:
            raise _refused(member, "this name exists already") from None
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            raise _refused(member, "its name, or what it links to, is too long for this file system") from None

    def _make(self, archive: tarfile.TarFile, member: tarfile.TarInfo, folder: int, name: str) -> None:
        if member.isreg():
            opened = os.open(name, _NEW, 0o600, dir_fd=folder)
            try:
                self._fill(archive, member, opened)
                self._dress(member, opened)
            finally:
                os.close(opened)
        elif member.islnk():
            self._link(member, folder, name)
        elif member.issym():
            if not member.linkname:
                raise _refused(member, "it is a link to nothing")
            os.symlink(member.linkname, name, dir_fd=folder)
            if self._root:
                os.chown(name, *_owner(member), dir_fd=folder, follow_symlinks=False)
            os.utime(name, ns=(time_ns(member),) * 2, dir_fd=folder, follow_symlinks=False)
        else:
            self._make_device(member, folder, name)

    def _fill(self, archive: tarfile.TarFile, member: tarfile.TarInfo, opened: int) -> None:
        source = archive.fileobj
        source.seek(member.offset_data)  # the stream is there already
        if member.sparse is None:
            _copy(member, source, opened, member.size)
            return
        # The regions follow one another in the archive; what is between them stays a hole.
        for offset, length in member.sparse:
            os.lseek(opened, offset, os.SEEK_SET)
            _copy(member, source, opened, length)
        os.ftruncate(opened, member.size)

    def _link(self, member: tarfile.TarInfo, folder: int, name: str) -> None:
        outside = _parts(member, member.linkname)
        parts = self._inside(outside)
        if parts is None:
            self.linked.setdefault("/".join(outside), []).append("/".join(self._path_of(member)))
            return
        refusal = _refused(member, f"it is a hard link to {member.linkname!r}, which is not a file before it")
        if not parts:
            raise refusal
        above = os.dup(folder)
        try:
            there = self._opened(member, parts[:-1])
            if not stat.S_ISREG(os.stat(parts[-1], dir_fd=there, follow_symlinks=False).st_mode):
                raise refusal
            os.link(parts[-1], name, src_dir_fd=there, dst_dir_fd=above, follow_symlinks=False)
        except FileNotFoundError:
            raise refusal from None
        finally:
            os.close(above)

    def _make_device(self, member: tarfile.TarInfo, folder: int, name: str) -> None:
        """Make a device or a pipe. Only archives of earlier versions have such members."""
        kind = stat.S_IFIFO if member.isfifo() else stat.S_IFBLK if member.isblk() else stat.S_IFCHR
        if not (self._root or member.isfifo()):
            self._lose("devices")
            return
        os.mknod(name, kind | 0o600, os.makedev(member.devmajor, member.devminor), dir_fd=folder)
        if self._root:
            os.chown(name, *_owner(member), dir_fd=folder, follow_symlinks=False)
        os.chmod(name, stat.S_IMODE(member.mode), dir_fd=folder)
        os.utime(name, ns=(time_ns(member),) * 2, dir_fd=folder)

    def _make_folder(self, member: tarfile.TarInfo, parts: list[str]) -> None:
        """Make a folder, which gets its own mode, owner and time once the archive is unpacked."""
        above = _is_above(member)
        if not parts:
            if self._top is None or not above:
                self._top = member
            return
        made = self._made_folder(member, parts)
        opened = self._opened(member, parts)
        about = os.fstat(opened)
        acl = None if made else _take_acl(opened, _DEFAULT_ACL)
        # Only in a pack that was interrupted has such a folder not the facts that its own archive gave it.
        self._folders[tuple(parts)] = (about, acl) if above and not made and not self._again else member
        if stat.S_IMODE(about.st_mode) != _PRIVATE:
            os.fchmod(opened, _PRIVATE)  # its mode may forbid new entries

    def _made_folder(self, member: tarfile.TarInfo, parts: list[str]) -> bool:
        """Make a folder unless it exists. Returns whether it was made. Raises `Damaged`."""
        above = self._opened(member, parts[:-1], make=True)
        if self._again and not _is_folder(above, parts[-1]):
            _remove(above, parts[-1])
        try:
            os.mkdir(parts[-1], _PRIVATE, dir_fd=above)
        except FileExistsError:
            if not _is_folder(above, parts[-1]):
                raise _refused(member, "this name exists already") from None
            return False
        return True

    def _finish_folders(self) -> None:
        # What is in a folder comes before the folder, whose mode may then forbid to open it.
        for parts in sorted(self._folders, key=len, reverse=True):
            facts = self._folders[parts]
            try:
                if isinstance(facts, tuple):
                    about, acl = facts
                    opened = self._opened(None, list(parts))
                    os.fchmod(opened, stat.S_IMODE(about.st_mode))
                    if acl is not None:
                        os.setxattr(opened, _DEFAULT_ACL, acl)
                    os.utime(opened, ns=(about.st_mtime_ns,) * 2)
                else:
                    self._dress(facts, self._opened(facts, list(parts)))
            finally:
                self._leave()
        self._folders = {}

    def _inside(self, parts: list[str]) -> list[str] | None:
        """Return a path in the archives as a path below `into`; None if it is not wanted."""
        depth = len(self._only)
        return parts[depth:] if parts[:depth] == self._only else None

    def _path_of(self, member: tarfile.TarInfo) -> list[str]:
        return self._inside(_parts(member, member.name)) or self._only[-1:]

    def _dress(self, member: tarfile.TarInfo, opened: int) -> None:
        """Give an open file or folder its owner, mode, extended attributes and time."""
        owner = _owner(member)
        if self._root:
            os.chown(opened, *owner)
        elif owner != (os.geteuid(), os.getegid()) and owner != _of(os.fstat(opened)):
            self._lose("owner and group")
        # A mode may forbid to set attributes, and changes an ACL.
        self._set_attributes(member, opened, acls=False)
        os.chmod(opened, stat.S_IMODE(member.mode))
        self._set_attributes(member, opened, acls=True)
        os.utime(opened, ns=(time_ns(member),) * 2)

    def _set_attributes(self, member: tarfile.TarInfo, opened: int, *, acls: bool) -> None:
        for keyword, value in member.pax_headers.items():
            if keyword.startswith(ATTRIBUTE):
                name = attribute_name(keyword)
                if name.startswith(_ACL) != acls:
                    continue
                try:
                    os.setxattr(opened, name, value.encode("utf-8", "surrogateescape"))
                except OSError as error:
                    self._lose(f"the extended attribute {name} ({os.strerror(error.errno or 0)})")

    def _lose(self, what: str) -> None:
        self._lost[what] = self._lost.get(what, 0) + 1

    def _opened(self, member: tarfile.TarInfo | None, parts: list[str], *, make: bool = False) -> int:
        """Return the descriptor of a folder below `into`, which stays open until the next call or `_leave`.

        `make`: folders that are missing, as in archives that do not name them, are made. Raises `Damaged`.
        """
        if self._folder is not None and self._folder[0] == parts:
            return self._folder[1]
        self._leave()
        opened = os.open(self._into, _IN)
        try:
            for part in parts:
                opened = _entered(opened, part, make=make)
        except NotADirectoryError:
            os.close(opened)
            assert member is not None, "its folder was opened before"
            raise _refused(member, f"a part of the path {'/'.join(parts)!r} is not a folder") from None
        except BaseException:
            os.close(opened)
            raise
        self._folder = (parts, opened)
        return opened

    def _leave(self) -> None:
        if self._folder is not None:
            os.close(self._folder[1])
            self._folder = None


def _entered(above: int, name: str, *, make: bool) -> int:
    """Open the folder `name` in the open folder `above`, and close `above` if that succeeds."""
    try:
        inner = os.open(name, _IN, dir_fd=above)
    except FileNotFoundError:
        if not make:
            raise
        os.mkdir(name, _PRIVATE, dir_fd=above)
        inner = os.open(name, _IN, dir_fd=above)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotADirectoryError from None
        raise
    os.close(above)
    return inner


def _take_acl(folder: int, name: str) -> bytes | None:
    """Remove an ACL of an open folder; new entries would get the default one. Returns it; None: there is none."""
    try:
        found = os.getxattr(folder, name)
        os.removexattr(folder, name)
    except OSError as error:
        if error.errno not in (errno.ENODATA, errno.ENOTSUP):
            raise
        return None
    return found


def _is_folder(above: int, name: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _remove(above: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=above)
    except (FileNotFoundError, IsADirectoryError):
        return  # a folder stays: whatever is to be made under its name is refused


def _copy(member: tarfile.TarInfo, source: IO[bytes], opened: int, size: int) -> None:
    left = size
    while left:
        chunk = source.read(min(left, CHUNK_BYTES))
        if not chunk:
            raise _refused(member, f"the archive ends {left} bytes too early")
        _write(opened, chunk)
        left -= len(chunk)


def _write(opened: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(opened, view) :]


def _is_above(member: tarfile.TarInfo) -> bool:
    """Whether the folder itself is a member of another archive."""
    return all(member.pax_headers.get(keyword.decode()) == value.decode() for keyword, value in ABOVE)


def _of(about: os.stat_result) -> tuple[int, int]:
    return about.st_uid, about.st_gid


def _owner(member: tarfile.TarInfo) -> tuple[int, int]:
    """Return the ids of a member's user and group on this machine: by their names, else by their numbers."""
    return _user_id(member.uname, member.uid), _group_id(member.gname, member.gid)


@cache
def _user_id(name: str, number: int) -> int:
    try:
        return getpwnam(name).pw_uid if name else number
    except KeyError:
        return number


@cache
def _group_id(name: str, number: int) -> int:
    try:
        return getgrnam(name).gr_gid if name else number
    except KeyError:
        return number


def time_ns(member: tarfile.TarInfo) -> int:
    """Return when a member's content last changed, in nanoseconds since the epoch."""
    text = member.pax_headers.get("mtime", "")
    whole, _, part = text.lstrip("-").partition(".")
    if not (whole.isdecimal() and (part.isdecimal() or not part)):
        return int(member.mtime) * 1_000_000_000
    found = int(whole) * 1_000_000_000 + int(part[:9].ljust(9, "0"))
    return -found if text.startswith("-") else found


def check_index(content: Content, name: str) -> None:
    """Read the index of a pack, the object `name`. Raises `Damaged`."""
    text = content.readall()
    try:
        PackIndex.read(text)
    except ValueError as error:
        raise Damaged(f"{name} is no index of a pack: {error}") from None


def check_archive(content: Content, noted: Path | None = None) -> int:
    """Read the whole archive. Returns the number of its members. Raises `Damaged`.

    Keeps eight bytes of memory for each file, since a later hard link may refer to any file. `noted`: a file that notes
    those of the packs before this one, to which links may refer too, and to which those of this one are added.
    """
    members, files, links = 0, array("Q"), _Links()
    if noted is not None and noted.exists():
        files.frombytes(noted.read_bytes())
    with archive_in(content) as archive:
        for member in _members(archive):
            members += 1
            _parts(member, member.name)
            if member.islnk():
                _parts(member, member.linkname)
                links.want(member, before=len(files))
            elif member.isreg():
                files.append(_short(member.name))
    content.drain()
    links.refuse_without(files)
    if noted is not None:
        noted.write_bytes(files.tobytes())
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


def _members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    while (member := archive.next()) is not None:
        numbers = member.mode, member.uid, member.gid, abs(time_ns(member)) >> 31
        if not all(0 <= number < 1 << 32 for number in numbers):
            raise _refused(member, "its mode, owner, group or time is out of range")
        yield member
        archive.members = []  # a stream does not need tarfile's list


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
