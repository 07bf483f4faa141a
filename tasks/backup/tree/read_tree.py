"""Reads a folder's tree as tar archives, in constant memory, and says what changed meanwhile.

An archive, or pack, ends when it is large, and the next one goes on with the next entry. Each file is looked at once.
"""

import errno
import os
import stat
import sys
from collections.abc import Callable, Sequence
from typing import Final, Protocol

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
    small_file,
    sparse_member,
)
from tasks.backup.tree.pack_index import IndexLines, Kind
from tasks.backup.tree.walk import ALL, OWN, VANISHED, HiddenFiles, Position, Say, TreePart, Walk, position
from tasks.errors import Failed
from tasks.file_guard import FileId, open_within

CHUNK_BYTES: Final = 1 << 20

ROOT: Final = "."
"""The name of the folder itself in its archive. Older archives have no such member."""

REMARKS_MAX: Final = 100
"""The most entries that one archive's remarks name; of more, only their number is said."""

PACK_FILES: Final = 50_000
"""The number of entries at which a pack ends."""

_PACK_BYTES: Final = 256 << 20
_DOUBLED_AFTER: Final = (64, 256)
_SMALL_BYTES: Final = 64 * 1024
_PADDINGS: Final = [bytes(-size % 512) for size in range(512)]
"""The zeros that follow a content, by its size modulo 512."""
_REGIONS_MAX: Final = 50_000
_STAT_BLOCK_BYTES: Final = 512


def pack_bytes(number: int) -> int:
    """Return the size in bytes at which the pack with this number ends.

    Large folders get larger packs, so that the manifest stays small.

    >>> [pack_bytes(number) >> 20 for number in (1, 64, 65, 256, 257, 9999)]
    [256, 256, 512, 512, 1024, 1024]
    """
    return _PACK_BYTES << sum(number > after for after in _DOUBLED_AFTER)


class FolderFailed(Failed):
    """The folder cannot be backed up."""


class PackOut(Protocol):
    """Takes one pack."""

    def write(self, chunk: bytes) -> None:
        """Take the next bytes of the archive."""

    def end(self, index: Sequence[bytes], remarks: list[str]) -> None:
        """Take the pieces of the archive's index (none if no other archive follows or precedes it), and its remarks."""


class TreeReader:
    """Reads the tree below the open folder `top` as tar archives: packs, each of which `begin` opens by its number.

    `shown` is the folder's path in remarks, `real` the resolved one. Methods raise `FolderFailed` for what cannot be
    read, because a backup without it would be incomplete, and what `begin` and the packs raise.
    """

    def __init__(self, top: int, shown: str, real: str, own: HiddenFiles, begin: Callable[[int], PackOut]) -> None:
        self.firsts: dict[FileId, str] = {}
        """Of files with several names that are in packs: the path of each. Its other names become links to it."""
        self._top = top
        self._shown = shown
        self._real = real
        self._own = own
        self._begin = begin
        self._walk = Walk(top, real, ALL, own, self._say, self._refused)
        self._last: int | None = None
        self._new_pack(1, None)

    def _new_pack(self, number: int, after: Position | None) -> None:
        self._number = number
        self._after = after
        is_last = number == self._last
        self._files_max = sys.maxsize if is_last else PACK_FILES
        self._bytes_max = sys.maxsize if is_last else pack_bytes(number)
        self._out: PackOut | None = None
        self._index = IndexLines()
        self._pieces: list[bytes] = []
        self._flushed_bytes = 0
        self._size_bytes = 0
        self._remarks: list[str] = []
        self._unnamed = 0

    def read(self, part: TreePart = ALL, first: int = 1, last: int | None = None) -> None:
        """Read a part of the tree as packs with the numbers from `first` on. That with the number `last` has the rest.

        Nothing is written if the part has no entries and does not begin with the top.
        """
        self._last = last
        self._new_pack(first, part.after)
        self._walk = Walk(self._top, self._real, part, self._own, self._say, self._refused)
        for listing in self._walk:
            self._add_folder(listing.folder, listing.about, listing.prefix, is_member=listing.is_member)
            if listing.is_member and self._is_full():
                self._cut(position(listing.prefix.rstrip("/"), is_folder=True))
            for entry in listing.entries:
                path = listing.prefix + entry.name
                if entry.is_file(follow_symlinks=False):
                    self._add_file(listing.folder, entry.name, path)
                else:
                    self._add_other(listing.folder, entry.name, path)
                if self._is_full():
                    self._cut(position(path, is_folder=False))
        is_begun = self._index.members or self._remarks or self._out is not None
        if is_begun or (part.after is None and self._number == first):
            self._end_pack(part.last)

    def _is_full(self) -> bool:
        return self._size_bytes >= self._bytes_max or self._index.members >= self._files_max

    def _cut(self, at: Position) -> None:
        """End the pack after the entry at this position, and begin the next with the folders that are above it."""
        self._end_pack(at)
        self._new_pack(self._number + 1, at)
        for folder, prefix in self._walk.above():
            self._add_folder(folder, os.fstat(folder), prefix, is_member=False)

    def _end_pack(self, last: Position | None) -> None:
        self._write(end(self._size_bytes))
        out = self._flush()
        is_only = self._number == 1 and last is None
        more = [f"{self._shown}: {self._unnamed} more such remarks"] if self._unnamed else []
        part = TreePart(self._after, last)
        out.end(() if is_only else self._index.pieces(part), self._remarks + more)

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
        self._size_bytes += len(piece)
        if self._size_bytes - self._flushed_bytes >= CHUNK_BYTES:
            self._flush()

    def _flush(self) -> PackOut:
        if self._out is None:
            self._out = self._begin(self._number)
        self._out.write(b"".join(self._pieces))
        self._pieces, self._flushed_bytes = [], self._size_bytes
        return self._out

    def _add_folder(self, folder: int, about: os.stat_result, prefix: str, *, is_member: bool) -> None:
        records = read_attributes(folder, self._say, prefix)
        self._index.add_folder(prefix.rstrip("/"), about, records, is_member=is_member)
        marks = () if is_member else ABOVE
        self._write(member(_bytes_of(prefix or f"{ROOT}/"), FOLDER, about, records=(*records, *marks)))

    def _add_other(self, folder: int, name: str, path: str) -> None:
        """Add an entry that was no file and no folder when it was listed."""
        try:
            about = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISREG(about.st_mode):  # it has become one since it was listed
                self._add_file(folder, name, path)
            elif self._own.files.has(about, name, folder):
                self._say(path, OWN)
            elif stat.S_ISLNK(about.st_mode):
                link = os.fsencode(os.readlink(name, dir_fd=folder))
                self._index.add(path, "l", about)
                self._write(member(_bytes_of(path), SYMLINK, about, link=link))
            else:
                self._say(path, _left_out(about.st_mode))
        except FileNotFoundError:
            self._say(path, VANISHED)
        except OSError as error:
            if error.errno != errno.EINVAL:  # readlink: the link has become something else
                self._refused(path, error)
            self._say(path, VANISHED)

    def _add_file(self, folder: int, name: str, path: str) -> None:
        # A tree may have many small files: each call that is not made here saves a hundredth of its time.
        try:
            opened = open_within(folder, name)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ELOOP, errno.ENXIO):
                self._refused(path, error)
            self._say(path, VANISHED)
            return
        try:
            about = os.fstat(opened)
            if not stat.S_ISREG(about.st_mode):
                self._say(path, VANISHED)
                return
            if self._own.files.has(about, opened):
                self._say(path, OWN)
                return
            kind: Kind = "f"
            if about.st_nlink > 1:
                if (first := self.firsts.setdefault((about.st_dev, about.st_ino), path)) != path:
                    self._index.add(path, "h", about, first)
                    self._write(member(_bytes_of(path), HARD_LINK, about, link=_bytes_of(first)))
                    return
                kind = "n"
            self._index.add(path, kind, about)
            records = read_attributes(opened, self._say, path)
            size = about.st_size
            is_small = size <= _SMALL_BYTES and size <= about.st_blocks * _STAT_BLOCK_BYTES
            # One call that reads a file to its end sees it at one moment.
            if is_small and len(data := os.read(opened, size + 1)) == size:
                header = b"" if records else small_file(path, about)
                header = header or member(_bytes_of(path), REGULAR, about, size, records=records)
                padding = _PADDINGS[size % _STAT_BLOCK_BYTES]
                self._pieces += (header, data, padding)
                self._size_bytes += len(header) + size + len(padding)
                if self._size_bytes - self._flushed_bytes >= CHUNK_BYTES:
                    self._flush()
            else:
                self._add_in_pieces(opened, path, about, records)
        except OSError as error:
            self._refused(path, error)
        finally:
            os.close(opened)

    def _add_in_pieces(self, opened: int, path: str, about: os.stat_result, records: Records) -> None:
        """Write a file in pieces, without its holes, and say whether it changed meanwhile."""
        size = about.st_size
        os.lseek(opened, 0, os.SEEK_SET)
        if about.st_blocks * _STAT_BLOCK_BYTES < size and (regions := _regions(opened, size)) is not None:
            self._write(sparse_member(_bytes_of(path), about, size, regions, records))
        else:
            regions = [(0, size)]
            self._write(member(_bytes_of(path), REGULAR, about, size, records=records))
        missing_bytes = 0
        for offset, length in regions:
            os.lseek(opened, offset, os.SEEK_SET)
            missing_bytes += self._copy(opened, length)
        self._write(bytes(-sum(length for _, length in regions) % _STAT_BLOCK_BYTES))
        after = os.fstat(opened)
        if missing_bytes:
            self._say(path, f"shrank while it was read: its last {missing_bytes} bytes are zeros")
        elif (after.st_mtime_ns, after.st_size) != (about.st_mtime_ns, size) or (
            after.st_ctime_ns != about.st_ctime_ns and after.st_nlink == about.st_nlink
        ):
            self._say(path, "changed while it was read")

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


def _bytes_of(path: str) -> bytes:
    return path.encode("ascii") if path.isascii() else os.fsencode(path)


def is_kept(about: os.stat_result) -> bool:
    """Whether an entry that is no folder is a member of an archive."""
    return stat.S_ISREG(about.st_mode) or stat.S_ISLNK(about.st_mode)


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
