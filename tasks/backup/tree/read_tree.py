"""Reads a part of a folder's tree as a tar archive, in constant memory, and says what changed meanwhile."""

import errno
import os
import stat
from collections.abc import Callable, Mapping
from typing import Final

from tasks.backup.tree.header import (
    ABOVE,
    FOLDER,
    HARD_LINK,
    REGULAR,
    SYMLINK,
    Records,
    acl_record,
    attribute_record,
    end,
    member,
    sparse_member,
)
from tasks.backup.tree.pack_index import IndexLines
from tasks.backup.tree.walk import ALL, OWN, VANISHED, HiddenFiles, Listing, Say, TreePart, Walk
from tasks.errors import Failed
from tasks.file_guard import FileId, open_within

CHUNK_BYTES: Final = 1 << 20

ROOT: Final = "."
"""The name of the folder itself in its archive. Older archives have no such member."""

REMARKS_MAX: Final = 100
"""The most entries that one archive's remarks name; of more, only their number is said."""

_PIECES_MAX: Final = 1000
_SMALL_BYTES: Final = 64 * 1024
_JOINED_BYTES: Final = 8192
_ZEROS: Final = bytes(512)
_REGIONS_MAX: Final = 50_000
_STAT_BLOCK_BYTES: Final = 512

Put = Callable[[list[bytes]], None]
"""Takes the next pieces of the archive."""


class FolderFailed(Failed):
    """The folder cannot be backed up."""


class TreeReader:
    """Reads a part of the tree below the open folder `top` as a tar archive, and passes it on to `put`.

    `shown` is the folder's path in remarks, `real` the resolved one. `firsts` are the paths of files in earlier
    archives by their identity: another name of such a file becomes a link to it. Methods raise `FolderFailed` for what
    cannot be read, because a backup without it would be incomplete, and what `put` raises.
    """

    def __init__(
        self,
        top: int,
        shown: str,
        real: str,
        put: Put,
        own: HiddenFiles,
        part: TreePart = ALL,
        firsts: Mapping[FileId, str] | None = None,
    ) -> None:
        self.index = IndexLines()
        self._shown = shown
        self._own = own.ids
        self._walk = Walk(top, real, part, own, self._say, self._refused)
        self._put = put
        self._pieces: list[bytes] = []
        self._pieces_bytes = 0
        self._size_bytes = 0
        self._firsts: dict[FileId, str] = dict(firsts or {})
        self._remarks: list[str] = []
        self._unnamed = 0

    @property
    def remarks(self) -> list[str]:
        """Sentences about entries that are missing or that changed while they were read."""
        more = [f"{self._shown}: {self._unnamed} more such remarks"] if self._unnamed else []
        return self._remarks + more

    def read(self) -> None:
        """Read the whole part, and end the archive."""
        for listing in self._walk:
            self._add_folder(listing)
            for entry in listing.entries:
                self._add(listing.folder, entry, listing.prefix + entry.name)
        self._write(end(self._size_bytes))
        self._flush()

    def _say(self, path: str, remark: str) -> None:
        if len(self._remarks) < REMARKS_MAX:
            self._remarks.append(f"{self._path(path)} {remark}")
        else:
            self._unnamed += 1

    def _path(self, path: str) -> str:
        return f"{self._shown.rstrip('/')}/{path}" if path else self._shown

    def _refused(self, path: str, error: OSError) -> None:
        raise FolderFailed(f"{self._path(path)} cannot be read: {error.strerror}; no backup was made") from error

    def _write(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._pieces_bytes += len(piece)
        self._size_bytes += len(piece)
        if self._pieces_bytes >= CHUNK_BYTES or len(self._pieces) >= _PIECES_MAX:
            self._flush()

    def _flush(self) -> None:
        pieces, self._pieces, self._pieces_bytes = self._pieces, [], 0
        self._put(pieces)

    def _add_folder(self, listing: Listing) -> None:
        records = read_attributes(listing.folder, self._say, listing.prefix)
        self.index.add_folder(listing.prefix.rstrip("/"), listing.about, records, is_member=listing.is_member)
        name = os.fsencode(listing.prefix or f"{ROOT}/")
        marks = () if listing.is_member else ABOVE
        self._write(member(name, FOLDER, listing.about, records=(*records, *marks)))

    def _add(self, folder: int, entry: "os.DirEntry[str]", path: str) -> None:
        if entry.is_file(follow_symlinks=False):
            self._add_file(folder, entry.name, path)
            return
        try:
            about = os.stat(entry.name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISREG(about.st_mode):  # it has become one since it was listed
                self._add_file(folder, entry.name, path)
            elif (about.st_dev, about.st_ino) in self._own:
                self._say(path, OWN)
            elif stat.S_ISLNK(about.st_mode):
                link = os.fsencode(os.readlink(entry.name, dir_fd=folder))
                self.index.add(path, "l", about)
                self._write(member(os.fsencode(path), SYMLINK, about, link=link))
            else:
                self._say(path, _left_out(about.st_mode))
        except FileNotFoundError:
            self._say(path, VANISHED)
        except OSError as error:
            if error.errno != errno.EINVAL:  # readlink: the link has become something else
                self._refused(path, error)
            self._say(path, VANISHED)

    def _add_file(self, folder: int, name: str, path: str) -> None:
        try:
            opened = open_within(folder, name)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ELOOP, errno.ENXIO):
                self._refused(path, error)
            self._say(path, VANISHED)
            return
        try:
            self._add_open_file(opened, path)
        except OSError as error:
            self._refused(path, error)
        finally:
            os.close(opened)

    def _add_open_file(self, opened: int, path: str) -> None:
        about = os.fstat(opened)
        if not stat.S_ISREG(about.st_mode):
            self._say(path, VANISHED)
            return
        if (about.st_dev, about.st_ino) in self._own:
            self._say(path, OWN)
            return
        if about.st_nlink > 1:
            first = self._firsts.setdefault((about.st_dev, about.st_ino), path)
            if first != path:
                self.index.add(path, "h", about, first)
                self._write(member(os.fsencode(path), HARD_LINK, about, link=os.fsencode(first)))
                return
        records = read_attributes(opened, self._say, path)
        size = about.st_size
        missing_bytes = 0
        if about.st_blocks * _STAT_BLOCK_BYTES < size and (regions := _regions(opened, size)) is not None:
            self._write(sparse_member(os.fsencode(path), about, size, regions, records))
            for offset, length in regions:
                os.lseek(opened, offset, os.SEEK_SET)
                missing_bytes += self._copy(opened, length)
            self._pad(sum(length for _, length in regions))
        elif 0 < size <= _SMALL_BYTES and len(data := os.read(opened, size)) == size:
            padding = -size % _STAT_BLOCK_BYTES
            header = member(os.fsencode(path), REGULAR, about, size, records=records)
            self._write(b"".join((header, data, _ZEROS[:padding])) if size <= _JOINED_BYTES else header)
            if size > _JOINED_BYTES:
                self._write(data)
                self._pad(size)
        elif size:
            os.lseek(opened, 0, os.SEEK_SET)
            self._write(member(os.fsencode(path), REGULAR, about, size, records=records))
            missing_bytes = self._copy(opened, size)
            self._pad(size)
        else:
            self._write(member(os.fsencode(path), REGULAR, about, records=records))
        after = os.fstat(opened)
        if missing_bytes:
            self._say(path, f"shrank while it was read: its last {missing_bytes} bytes are zeros")
        elif (after.st_mtime_ns, after.st_size) != (about.st_mtime_ns, size) or (
            after.st_ctime_ns != about.st_ctime_ns and after.st_nlink == about.st_nlink
        ):
            self._say(path, "changed while it was read")
        self.index.add(path, "n" if about.st_nlink > 1 else "f", about)

    def _pad(self, size: int) -> None:
        if size % _STAT_BLOCK_BYTES:
            self._write(bytes(-size % _STAT_BLOCK_BYTES))

    def _copy(self, opened: int, size: int) -> int:
        """Copy the next `size` bytes of a file. Returns how many of them are not there, which are zeros instead."""
        left = size
        while left:
            data = os.read(opened, min(left, CHUNK_BYTES))
            if not data:
                break
            self._write(data)
            left -= len(data)
        missing, zeros = left, bytes(min(left, CHUNK_BYTES))
        while left:
            self._write(zeros[:left])
            left -= len(zeros[:left])
        return missing


def read_attributes(opened: int, say: Say, path: str) -> Records:
    """Return the PAX records of the extended attributes of an open file or folder, POSIX ACLs included."""
    try:
        names = os.listxattr(opened)
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        return ()
    if not names:
        return ()
    records = []
    for name in sorted(names):
        try:
            value = os.getxattr(opened, name)
        except OSError as error:
            if error.errno != errno.ENODATA:  # removed since it was listed, or not for this user to read
                say(path, f"has the extended attribute {name}, which cannot be read: {error.strerror}")
            continue
        records.append(attribute_record(name, value))
        if (acl := acl_record(name, value)) is not None:
            records.append(acl)
    return records


def _left_out(mode: int) -> str:
    if stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode):
        return "was left out: it is a socket or a pipe"
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        return "was left out: it is a device"
    return VANISHED  # it has become a folder since it was listed


def _regions(opened: int, size: int) -> list[tuple[int, int]] | None:
    """Return offset and length of each part of a file that is no hole; None if the file system does not say.

    The last region ends at the end of the file, even if it is empty. Files with very many holes keep the first ones.
    """
    found: list[tuple[int, int]] = []
    at = 0
    try:
        while at < size and len(found) < _REGIONS_MAX:
            begin = os.lseek(opened, at, os.SEEK_DATA)
            at = min(os.lseek(opened, begin, os.SEEK_HOLE), size)
            if begin >= size:
                break
            found.append((begin, at - begin))
    except OSError as error:
        if error.errno != errno.ENXIO:  # there is no data after `at`
            return None
    else:
        if at < size:
            found.append((at, size - at))
            at = size
    finally:
        os.lseek(opened, 0, os.SEEK_SET)
    if at < size or not found:
        found.append((size, 0))
    return found
