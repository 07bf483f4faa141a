"""Builds the headers of tar archives: ustar, with PAX records for what ustar cannot hold. Pure but for users' names.

The standard library's tarfile builds them too, at five times the cost, and without extended attributes. GNU tar and
bsdtar read these headers: times in nanoseconds, extended attributes as `SCHILY.xattr.NAME`, ACLs as text too, and the
maps of sparse files in GNU's format 1.0.
"""

import grp
import os
import pwd
import struct
from collections.abc import Sequence
from functools import cache
from typing import Final
from zlib import adler32

BLOCK_BYTES: Final = 512
_RECORD_BYTES: Final = 20 * BLOCK_BYTES

REGULAR, HARD_LINK, SYMLINK, FOLDER, _PAX = b"0", b"1", b"2", b"5", b"x"
"""The types of members."""

ATTRIBUTE: Final = "SCHILY.xattr."
"""The prefix of the PAX records that hold extended attributes."""

ABOVE: Final = ((b"comment", b"above"),)
"""The PAX records of a folder that is in an archive only since entries below it are: another archive has the folder
itself, and may be a later one."""

_NAME_BYTES: Final = 100
_ID_MAX: Final = 0o7777777
_SIZE_MAX: Final = 0o77777777777
_TIME_MAX: Final = 9_999_999_999
_OWNER_BYTES: Final = 31
_MODE: Final = 0o7777
_HEAD: Final = b"%b%07o\0%07o\0%07o\0%011o\0%011o\0"
"""A header up to its checksum: name, mode, user, group, size and time."""
_NS: Final = 1_000_000_000

Records = Sequence[tuple[bytes, bytes]]
"""PAX records: keywords and their values."""


def member(
    name: bytes, kind: bytes, about: os.stat_result, size: int = 0, link: bytes = b"", records: Records = ()
) -> bytes:
    """Return the header of a member, with a PAX header before it if it needs one.

    `name` is the path in the archive, `size` the number of bytes that follow, `link` the target of a link. `records`
    are further PAX records.
    """
    seconds, ns = divmod(about.st_mtime_ns, _NS)
    tail, tail_sum = _tail(kind, link[:_NAME_BYTES], about.st_uid, about.st_gid)
    more = [] if _fits(name, link, about, size) else _long(name, link, about, size)
    if ns or not 0 <= seconds <= _SIZE_MAX:
        more.append((b"mtime", _decimal(about.st_mtime_ns)))
    more.extend(records)
    head = _HEAD % (
        name[:_NAME_BYTES].ljust(_NAME_BYTES, b"\0"),
        about.st_mode & _MODE,
        min(about.st_uid, _ID_MAX),
        min(about.st_gid, _ID_MAX),
        min(size, _SIZE_MAX),
        min(max(seconds, 0), _SIZE_MAX),
    )
    header = b"%b%06o\0 %b" % (head, sum(head) + tail_sum, tail)
    return _pax(more) + header if more else header


def small_file(path: str, about: os.stat_result) -> bytes:
    """Return what `member` returns for a regular file without further records, much faster. Nearly every file is such
    a one. b"": its values do not fit into ustar's fields, or its time has no fraction of a second.

    `path` is the path in the archive; the file has as many bytes as `about` says.
    """
    seconds, ns = divmod(about.st_mtime_ns, _NS)
    size = about.st_size
    if not ns or not 0 <= seconds <= _TIME_MAX or size > _SIZE_MAX or len(path) > _NAME_BYTES or not path.isascii():
        return b""
    ids, tail, tail_sum = _same(about.st_mode & _MODE, about.st_uid, about.st_gid)
    if not ids:
        return b""
    head = b"%b%b%011o\0%011o\0" % (path.encode("ascii").ljust(_NAME_BYTES, b"\0"), ids, size, seconds)
    # Adler's checksum of so few bytes is one more than their sum in its lower half: much faster than `sum`.
    total = (adler32(head) & 0xFFFF) - 1 + tail_sum
    return b"%b%010d.%09d\n%b%b%06o\0 %b" % (_PAX_TIME, seconds, ns, _PAX_TIME_END, head, total, tail)


@cache
def _same(mode: int, uid: int, gid: int) -> tuple[bytes, bytes, int]:
    """Return what many files have in common: mode and ids as in a header, empty if they do not fit, and `_tail`."""
    ids = b"%07o\0%07o\0%07o\0" % (mode, uid, gid) if max(uid, gid) <= _ID_MAX else b""
    return ids, *_tail(REGULAR, b"", uid, gid)


def _fits(name: bytes, link: bytes, about: os.stat_result, size: int) -> bool:
    """Whether all values fit into the fields of ustar."""
    return (
        len(name) <= _NAME_BYTES
        and len(link) <= _NAME_BYTES
        and size <= _SIZE_MAX
        and about.st_uid <= _ID_MAX
        and about.st_gid <= _ID_MAX
        and name.isascii()
        and link.isascii()
    )


def _long(name: bytes, link: bytes, about: os.stat_result, size: int) -> list[tuple[bytes, bytes]]:
    """Return PAX records for the values that do not fit into the fields of ustar."""
    records = []
    if not (_is_utf8(name) and _is_utf8(link)):
        records.append((b"hdrcharset", b"BINARY"))
    for keyword, value in ((b"path", name), (b"linkpath", link)):
        if len(value) > _NAME_BYTES or not value.isascii():
            records.append((keyword, value))
    for keyword, number, largest in (
        (b"size", size, _SIZE_MAX),
        (b"uid", about.st_uid, _ID_MAX),
        (b"gid", about.st_gid, _ID_MAX),
    ):
        if number > largest:
            records.append((keyword, b"%d" % number))
    return records


def _is_utf8(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def _decimal(time_ns: int) -> bytes:
    """Return a time as PAX writes it.

    >>> _decimal(1_500_000_000), _decimal(-1), _decimal(-3_000_000_000)
    (b'1.5', b'-0.000000001', b'-3')
    """
    seconds, ns = divmod(abs(time_ns), _NS)
    text = b"%d.%09d" % (seconds, ns) if ns else b"%d" % seconds
    return (b"-" if time_ns < 0 else b"") + (text.rstrip(b"0") if ns else text)


@cache
def _tail(kind: bytes, link: bytes, uid: int, gid: int) -> tuple[bytes, int]:
    """Return a header from its type on, and what it, with an empty checksum, adds to the checksum."""
    owner, group = _owner(uid), _group(gid)
    tail = b"%b%bustar\x0000%b%b%b%b" % (
        kind,
        link.ljust(_NAME_BYTES, b"\0"),
        owner.ljust(32, b"\0"),
        group.ljust(32, b"\0"),
        b"0000000\0" * 2,
        bytes(155 + 12),
    )
    return tail, sum(tail) + 8 * ord(" ")


@cache
def _owner(uid: int) -> bytes:
    try:
        return _short(pwd.getpwuid(uid).pw_name)
    except KeyError:
        return b""


@cache
def _group(gid: int) -> bytes:
    try:
        return _short(grp.getgrgid(gid).gr_name)
    except KeyError:
        return b""


def _short(name: str) -> bytes:
    """Return a user's name as a header holds it; empty if it cannot, so that the number counts."""
    encoded = os.fsencode(name)
    return encoded if encoded.isascii() and len(encoded) <= _OWNER_BYTES else b""


def _pax(records: Records) -> bytes:
    """Return a PAX header for the member that follows."""
    body = b"".join(_record(keyword, value) for keyword, value in records)
    return _pax_head(len(body)) + padded(body)


@cache
def _pax_head(size: int) -> bytes:
    head = _HEAD % (b"././@PaxHeader".ljust(_NAME_BYTES, b"\0"), 0o644, 0, 0, size, 0)
    tail = b"%b%bustar\x0000%b" % (_PAX, bytes(_NAME_BYTES), bytes(64 + 16 + 155 + 12))
    return b"%b%06o\0 %b" % (head, sum(head) + sum(tail) + 8 * ord(" "), tail)


_PAX_TIME: Final = _pax_head(30) + b"30 mtime="
_PAX_TIME_END: Final = bytes(BLOCK_BYTES - 30)
"""A PAX header for a time alone, before and after the time."""


def _record(keyword: bytes, value: bytes) -> bytes:
    r"""Return one PAX record. Its length, which it begins with, counts its own digits.

    >>> _record(b"path", b"x")
    b'9 path=x\n'
    """
    rest = len(keyword) + len(value) + 3
    length = rest + len(str(rest))
    length = rest + len(str(length))
    return b"%d %b=%b\n" % (length, keyword, value)


def padded(content: bytes) -> bytes:
    """Return the content with zeros up to the end of its last block."""
    return content + bytes(-len(content) % BLOCK_BYTES)


def attribute_record(name: str, value: bytes) -> tuple[bytes, bytes]:
    """Return the PAX record of an extended attribute. GNU tar escapes `=` and `%` in its name this way."""
    escaped = name.replace("%", "%25").replace("=", "%3D")
    return os.fsencode(ATTRIBUTE + escaped), value


_ACL_RECORDS: Final = {
    "system.posix_acl_access": b"SCHILY.acl.access",
    "system.posix_acl_default": b"SCHILY.acl.default",
}
_ACL_TAGS: Final = {1: b"user", 2: b"user", 4: b"group", 8: b"group", 0x10: b"mask", 0x20: b"other"}
_ACL_NAMED: Final = (2, 8)


def acl_record(name: str, value: bytes) -> tuple[bytes, bytes] | None:
    """Return the record of an ACL as text, which GNU tar and bsdtar read; None if the attribute is no POSIX ACL."""
    keyword = _ACL_RECORDS.get(name)
    if keyword is None:
        return None
    entries = []
    for tag, permission, number in struct.iter_unpack("<HHI", value[4:]):
        letters = bytes(letter if permission & bit else ord("-") for letter, bit in zip(b"rwx", (4, 2, 1), strict=True))
        whose = b"%d" % number if tag in _ACL_NAMED else b""
        entries.append(b"%b:%b:%b" % (_ACL_TAGS[tag], whose, letters))
    return keyword, b",".join(entries)


def attribute_name(keyword: str) -> str:
    """The inverse of `attribute_record`: return the attribute's name for a keyword that begins with `ATTRIBUTE`."""
    return keyword.removeprefix(ATTRIBUTE).replace("%3D", "=").replace("%25", "%")


def sparse_member(
    name: bytes, about: os.stat_result, size: int, regions: Sequence[tuple[int, int]], records: Records = ()
) -> bytes:
    """Return the header of a sparse file of `size` bytes, followed by the map of its `regions` (offset and length).

    The regions' bytes, padded as a whole, have to follow.
    """
    numbers = [len(regions), *(number for region in regions for number in region)]
    table = padded(b"".join(b"%d\n" % number for number in numbers))
    sparse = (
        (b"GNU.sparse.major", b"1"),
        (b"GNU.sparse.minor", b"0"),
        (b"GNU.sparse.name", name),
        (b"GNU.sparse.realsize", b"%d" % size),
    )
    # A program that does not know the format unpacks the map and the regions under this name.
    shown = b"GNUSparseFile.0/" + name.rpartition(b"/")[2][:80]
    stored = len(table) + sum(length for _, length in regions)
    return member(shown, REGULAR, about, stored, records=(*sparse, *records)) + table


def end(size_bytes: int) -> bytes:
    """Return the end of an archive that has `size_bytes` so far."""
    return bytes(2 * BLOCK_BYTES + -(size_bytes + 2 * BLOCK_BYTES) % _RECORD_BYTES)
