"""Makes folders with all that a file system allows, drawn from a seed; says of a folder all that a copy must keep."""
# Names here are bytes, which need not be UTF-8, so pathlib does not fit:
# ruff: noqa: PTH102, PTH211, PTH123, PTH112, PTH101, PTH118, PTH208, PTH115

import os
import random
import stat
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

_NAMES: Final = (
    b"new\nline",
    b"\xff\xfe-not-utf-8",
    b"x" * 255,
    b"-rf",
    b"--delete",
    b"trailing ",
    b" leading",
    "umlaut-ä".encode(),
    b"a=b%3D",
    b"back\\slash",
    b'quo"te',
    b"GNUSparseFile.0",
    b"pack-000001.tar.zst",
    b"#",
    b"\x7f\x01",
)
_MODES: Final = (0o600, 0o644, 0o755, 0o400, 0o000, 0o4755, 0o2711, 0o666)
_FOLDER_MODES: Final = (0o700, 0o755, 0o1777, 0o2770, 0o555)
_SIZES: Final = (0, 1, 511, 512, 513, 4096, 70_000, (1 << 20) + 1)
_CAPABILITY: Final = struct.pack("<5I", 0x02000001, 1 << 10, 0, 0, 0)
"""cap_net_bind_service, effective."""


def acl(user: int, permission: int = 4) -> bytes:
    """A POSIX ACL as the kernel has it: rw for the owner, `permission` for one more user, r for the group."""
    none = 0xFFFFFFFF
    entries = ((1, 6, none), (2, permission, user), (4, 4, none), (0x10, 4 | permission, none), (0x20, 0, none))
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


class OddTree:
    """Draws a folder of about `count` entries. `as_root` also draws owners and capabilities."""

    def __init__(self, seed: int, count: int = 120, *, as_root: bool) -> None:
        self._draw = random.Random(seed)
        self._count = count
        self._as_root = as_root
        self._files: list[bytes] = []
        self._later: list[tuple[bytes, Callable[[bytes], None]]] = []

    def make(self, top: Path) -> None:
        """Make the tree at `top`."""
        top.mkdir(parents=True)
        folders = [os.fsencode(top)]
        for number in range(self._count):
            above = self._draw.choice(folders)
            name = self._draw.choice(_NAMES) if self._draw.random() < 0.4 else b"plain-%d" % number
            path = above + b"/" + name
            if os.path.lexists(path) or len(path) > 2500:
                continue
            kind = self._draw.random()
            if kind < 0.2:
                os.mkdir(path)
                folders.append(path)
                self._dress_later(path, _FOLDER_MODES)
            elif kind < 0.3:
                os.symlink(self._draw.choice((b"nowhere", b"../" * 60 + b"far", b"\xff", b"/etc/passwd")), path)
                os.utime(path, ns=(1, self._draw.randrange(10**18)), follow_symlinks=False)
            elif kind < 0.4 and self._files:
                os.link(self._draw.choice(self._files), path)
            else:
                self._file(path)
        for path, dress in reversed(self._later):
            dress(path)

    def _file(self, path: bytes) -> None:
        with open(path, "wb") as file:
            if self._draw.random() < 0.2:
                self._sparse(file)
            else:
                file.write(self._draw.randbytes(self._draw.choice(_SIZES)))
        self._files.append(path)
        self._dress_later(path, _MODES)

    def _sparse(self, file: Any) -> None:
        at = 0
        for _ in range(self._draw.randrange(4)):
            at += self._draw.choice((0, 65_536, 1 << 20, 1 << 33))
            file.seek(at)
            at += file.write(self._draw.randbytes(self._draw.choice((1, 4096, 9000))))
        file.truncate(at + self._draw.choice((0, 1, 1 << 20, 1 << 40)))

    def _dress_later(self, path: bytes, modes: tuple[int, ...]) -> None:
        draw = self._draw
        owner = (draw.choice((0, 1000, 2**31)), draw.choice((0, 50, 2**22))) if self._as_root else None
        mode, modified_ns = draw.choice(modes), draw.choice((0, -1, 10**18 + 123_456_789, 10**9, 5 * 10**18))
        attributes = {
            name: value
            for name, value in (
                ("user.plain", b"value"),
                ("user.a=b%3D", b"\x00\xff\n12 x=y\n"),
                ("user.umlaut-ä", draw.randbytes(1000)),
                ("system.posix_acl_access", acl(draw.choice((1000, 77_777)))),
            )
            if draw.random() < 0.15
        }
        folder = os.path.isdir(path)
        if folder and draw.random() < 0.2:
            attributes["system.posix_acl_default"] = acl(1001, 6)
        if self._as_root and not folder and draw.random() < 0.1:
            attributes["security.capability"] = _CAPABILITY

        def dress(path: bytes) -> None:
            if owner is not None:
                os.chown(path, *owner)
            for name, value in attributes.items():
                if not name.startswith("system"):
                    os.setxattr(path, name, value)
            os.chmod(path, mode)
            for name, value in attributes.items():
                if name.startswith("system"):
                    os.setxattr(path, name, value)
            os.utime(path, ns=(0, modified_ns))

        self._later.append((path, dress))


def facts_of_tree(top: Path, *, blocks: bool = False) -> dict[str, tuple[Any, ...]]:
    """Return, by path, all that a copy of a folder must keep. `blocks`: also about how much of each file is no hole."""
    found: dict[str, tuple[Any, ...]] = {}
    inodes: dict[tuple[int, int], str] = {}
    pending = [os.fsencode(top)]
    while pending:
        path = pending.pop()
        about = os.lstat(path)
        name = os.fsdecode(os.path.relpath(path, os.fsencode(top)))
        content: Any = None
        if stat.S_ISDIR(about.st_mode):
            pending += sorted((os.path.join(path, inner) for inner in os.listdir(path)), reverse=True)
        elif stat.S_ISLNK(about.st_mode):
            content = os.readlink(path)
        elif stat.S_ISREG(about.st_mode):
            first = inodes.setdefault((about.st_dev, about.st_ino), name)
            content = first if first != name else (about.st_size, data_of(path))
            if blocks:
                content = (content, about.st_blocks)
        attributes = (
            {} if stat.S_ISLNK(about.st_mode) else {key: os.getxattr(path, key) for key in sorted(os.listxattr(path))}
        )
        found[name] = (about.st_mode, about.st_uid, about.st_gid, about.st_mtime_ns, content, attributes)
    return found


def data_of(path: bytes) -> dict[int, bytes]:
    """Return the content of a file without its holes: pieces of at most 64 KiB that are not all zeros."""
    found = {}
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        at = 0
        while at < size:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:
                break
            at -= at % 65_536
            piece = os.pread(file.fileno(), 65_536, at)
            if piece.strip(b"\0"):
                found[at] = piece
            at += 65_536
    return found
