"""The index of an archive of a part of a tree: which entries are in it, and how they were when they were read.

An index is text, a JSON list a line. The first line says which part of the tree the archive has. Each further line is
an entry: its path, its kind and its facts. By them the next attempt sees whether an archive is still right, and a
restore finds the archive that has a file. Names need not be UTF-8: JSON escapes their other bytes as Python does.
"""

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from json.encoder import encode_basestring_ascii as _quoted
from typing import Any, Final, Literal

from tasks.backup.tree.header import Records
from tasks.backup.tree.walk import Position, TreePart

Kind = Literal["f", "n", "h", "l", "d", "a"]
"""A regular file (`n`: it has several names), a further name of one (hard link), a symlink, a folder, or a folder above
the part's entries."""

_VERSION: Final = 1
_JOINED_LINES: Final = 1000


class IndexLines:
    """The lines of an index, as an archive is written."""

    def __init__(self) -> None:
        self.members = 0
        """The number of entries, without folders that are only above them."""
        self._lines: list[str] = []
        self._pieces: list[bytes] = []
        """The lines before those, joined: many short strings would cost more memory."""
        self._began_ns = time.time_ns()

    def add(self, path: str, kind: Kind, about: os.stat_result, first: str | None = None) -> None:
        """Add an entry that is no folder. `first`: of a hard link, the path of the file."""
        self.members += 1
        more = "" if first is None else f",{_quoted(first)}"
        self._lines.append(
            f'[{_quoted(path)},"{kind}",{about.st_size},{about.st_mtime_ns},{about.st_ctime_ns},{about.st_ino}{more}]\n'
        )
        if len(self._lines) == _JOINED_LINES:
            self._join()

    def add_folder(self, path: str, about: os.stat_result, records: Records, *, is_member: bool) -> None:
        """Add a folder with the PAX records of its extended attributes."""
        self.members += is_member
        facts = folder_facts(about, records)
        self._lines.append(json.dumps([path, "d" if is_member else "a", *facts]) + "\n")

    def _join(self) -> None:
        self._pieces.append("".join(self._lines).encode("ascii"))
        self._lines.clear()

    def pieces(self, part: TreePart) -> list[bytes]:
        """Return the index of the archive, which has this part of the tree, in pieces."""
        self._join()
        first = {"version": _VERSION, "after": part.after, "last": part.last, "began_ns": self._began_ns}
        return [f"{json.dumps(first)}\n".encode("ascii"), *self._pieces]


@dataclass(frozen=True)
class PackIndex:
    """An index that was read."""

    #: The part of the tree that the archive has.
    part: TreePart
    #: When its first entry was read, in nanoseconds since the epoch.
    began_ns: int
    #: The lines of its entries: path, kind, facts.
    entries: Sequence[list[Any]]

    @classmethod
    def read(cls, text: bytes) -> "PackIndex":
        """Read an index. Raises `ValueError` if it is none, or one of a later version."""
        try:
            first, *entries = [json.loads(line) for line in text.splitlines()]
            if first["version"] != _VERSION:
                raise ValueError(f"an index of version {first['version']}")
            return cls(TreePart(_position(first["after"]), _position(first["last"])), int(first["began_ns"]), entries)
        except (LookupError, TypeError) as error:
            raise ValueError(f"no index of a pack: {error!r}") from None


def _position(value: list[list[Any]] | None) -> Position | None:
    return None if value is None else tuple((int(is_folder), str(name)) for is_folder, name in value)


def file_facts(about: os.stat_result) -> list[Any]:
    """Return the facts by which an entry that is no folder is known to be unchanged."""
    return [about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino]


def folder_facts(about: os.stat_result, records: Records) -> list[Any]:
    """Return the facts of a folder. The time of its last change is the last of them.

    Its inode's own time is not among them, since each new entry changes it.
    """
    sums = blake2b(digest_size=8)
    for keyword, value in records:
        sums.update(b"%d %b=%b" % (len(value), keyword, value))
    return [about.st_mode, about.st_uid, about.st_gid, sums.hexdigest(), about.st_mtime_ns]
