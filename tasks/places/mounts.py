"""The mounts that this process sees, as /proc/self/mountinfo lists them (proc(5))."""

import os
import re
import select
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from tasks.file_guard import path_of

MOUNTINFO: Final = Path("/proc/self/mountinfo")

_BETWEEN_MACHINES: Final = frozenset(
    "9p afs beegfs ceph cifs gfs2 glusterfs gpfs lustre nfs ocfs2 orangefs prl_fs smb3 vboxsf virtiofs".split()
)
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class Mount:
    """A mount: its mount point, its file system's type, the folder of the file system that it shows, and its device."""

    point: str
    type: str
    root: str = "/"
    device: str = ""

    @property
    def between_machines(self) -> bool:
        """Whether several machines may mount this file system at the same time."""
        return self.type in _BETWEEN_MACHINES or self.type.startswith("fuse")


def mountinfo() -> str:
    """Return the text of /proc/self/mountinfo now. It changes with each mount. Raises `OSError`."""
    return MOUNTINFO.read_text(errors="surrogateescape")


class MountWatch:
    """Detects whether a mount was made, moved, changed or removed since construction, without reading all mounts."""

    def __init__(self) -> None:
        """Begin to watch. Raises `OSError`."""
        self._file = os.open(MOUNTINFO, os.O_RDONLY | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._file, select.POLLPRI)
        self._changed = False

    def changed(self) -> bool:
        """Whether the mounts that this process sees have changed."""
        # The kernel reports a change once for each open file, as an error event (proc(5)).
        self._changed = self._changed or bool(self._poll.poll(0))
        return self._changed

    def close(self) -> None:
        """End the watch."""
        os.close(self._file)


@lru_cache(maxsize=1)
def mounts(text: str) -> Mapping[int, Mount]:
    r"""Return the mounts in `text`, from /proc/self/mountinfo, by their ids, in the order of mounting.

    >>> mounts("36 35 98:0 /a /mnt\\040of\\040b rw,noatime master:1 - nfs4 nas:/a rw\n")
    {36: Mount(point='/mnt of b', type='nfs', root='/a', device='98:0')}
    """
    found = {}
    for line in filter(None, text.split("\n")):  # a folder's name may contain a character at which splitlines() splits
        before, _, after = line.partition(" - ")
        number, _, device, root, point = before.split(" ")[:5]
        kind = after.split(" ")[0]
        found[int(number)] = Mount(_unescaped(point), "nfs" if kind == "nfs4" else kind, _unescaped(root), device)
    return found


def mount_of(descriptor: int, known: Mapping[int, Mount]) -> Mount:
    """Return the mount of an open file, looked up in `known`. Raises `OSError` if the mount is not in `known`."""
    for line in Path(f"/proc/self/fdinfo/{descriptor}").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "mnt_id" and int(value) in known:
            return known[int(value)]
    raise OSError(f"/proc/self/mountinfo does not have the mount of {path_of(descriptor)}")


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda code: chr(int(code[1], 8)), text)
