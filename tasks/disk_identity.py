"""Facts that identify the disk behind a path, and distinguish it from another machine's disk at the same path.

The node and the machine say whose disk it is, the file system's UUID says which disk, and the inode of the mount's root
says which folder of the disk is mounted: the volumes of two containers are mostly on one file system.
"""

import fcntl
import os
import stat
import struct
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final
from uuid import UUID

MACHINE_ID: Final = Path("/etc/machine-id")
_IN_CONTAINER: Final = (Path("/.dockerenv"), Path("/run/.containerenv"))
_BY_UUID: Final = Path("/dev/disk/by-uuid")
_GET_UUID: Final = 0x80111500
"""FS_IOC_GETFSUUID of linux/fs.h, since Linux 6.9. It answers with a length and a UUID of 16 bytes."""

_BETWEEN_MACHINES: Final = frozenset(
    "9p afs beegfs ceph cifs gfs2 glusterfs gpfs lustre nfs ocfs2 orangefs prl_fs smb3 vboxsf virtiofs".split()
)


@dataclass(frozen=True)
class Mount:
    """A mount: its mount point, and the type of its file system."""

    point: str
    type: str

    @property
    def between_machines(self) -> bool:
        """Whether several machines may mount this file system at the same time."""
        return self.type in _BETWEEN_MACHINES or self.type.startswith("fuse")


def facts_of(path: Path, node: str, *, shared: bool) -> dict[str, str]:
    """The facts of the folder or file at `path`, as seen by the member `node`; links are followed. Raises `OSError`.

    For `shared` data the node is not among the facts, and neither is the machine if several machines may mount the file
    system.
    """
    real = path.resolve(strict=True)
    descriptor = os.open(real, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        mount = mount_of(_mount_id(descriptor), Path("/proc/self/mountinfo").read_text(errors="surrogateescape"))
        device = os.fstat(descriptor).st_dev
        facts = {
            **place_facts(node, _machine(), mount, shared=shared),
            "uuid": _uuid(descriptor, device),
            "fsid": _fsid(os.fstatvfs(descriptor).f_fsid, device),
            "mount_inode": str(Path(mount.point).stat().st_ino),
        }
    finally:
        os.close(descriptor)
    return {name: value for name, value in facts.items() if value}


def place_facts(node: str, machine_id: str, mount: Mount, *, shared: bool) -> dict[str, str]:
    """Where data on `mount` is, as `facts_of` says it; "" for what does not count."""
    return {
        "node": "" if shared else node,
        "machine": "" if shared and mount.between_machines else machine_id,
        "file_system": "fuse" if mount.type.startswith("fuse") else mount.type,
    }


def mount_of(mount_id: int, mountinfo: str) -> Mount:
    r"""The mount with that id in the text of /proc/self/mountinfo (proc(5)). Raises `OSError` if it is not there.

    >>> mount_of(36, "36 35 98:0 /a /mnt\\040of\\040b rw,noatime master:1 - nfs4 nas:/a rw\n")
    Mount(point='/mnt of b', type='nfs')
    """
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if fields[0] == str(mount_id):
            kind = after.split(" ")[0]
            return Mount(_unescaped(fields[4]), "nfs" if kind == "nfs4" else kind)
    raise OSError(f"/proc/self/mountinfo has no mount {mount_id}")


def _unescaped(text: str) -> str:
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text


def _mount_id(descriptor: int) -> int:
    for line in Path(f"/proc/self/fdinfo/{descriptor}").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "mnt_id":
            return int(value)
    raise OSError("/proc/self/fdinfo has no mnt_id")


def _fsid(fsid: int, device: int) -> str:
    """A file system's id; "" if it is derived from the device's number (XFS, FAT), which may change at a reboot."""
    return "" if fsid in (0, device) else f"{fsid:016x}"


def _uuid(descriptor: int, device: int) -> str:
    """The UUID of the file system, from the kernel, else from /dev/disk/by-uuid; "" if neither has it."""
    try:
        answer = fcntl.ioctl(descriptor, _GET_UUID, bytes(17))
    except OSError:
        return _uuid_by_name(device)
    (found,) = struct.unpack_from("16s", answer, 1)
    return str(UUID(bytes=found)) if any(found) else ""


def _uuid_by_name(device: int) -> str:
    try:
        for link in _BY_UUID.iterdir():
            about = link.stat()
            if stat.S_ISBLK(about.st_mode) and about.st_rdev == device:
                return link.name.lower()
    except OSError:
        return ""
    return ""


def _machine() -> str:
    """A digest of this machine's id; "" in a container, where the id, if there is one, is the image's."""
    root = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
    return machine(_id_of(MACHINE_ID), root, in_container=any(mark.exists() for mark in _IN_CONTAINER))


def _id_of(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def machine(machine_id: str, mountinfo: str, *, in_container: bool) -> str:
    """A digest of a machine's id, which must not be shown (machine-id(5)); "" if the id is not the machine's own.

    >>> mounts = "22 1 0:40 / / rw - overlay overlay rw"
    >>> machine("3d1219c7c4c5404aaa1f6d2a48adfda4", mounts, in_container=False)
    ''
    """
    known = len(machine_id) == 32 and set(machine_id) <= set("0123456789abcdef")
    if not known or in_container or _root_type(mountinfo) == "overlay":
        return ""
    return blake2b(machine_id.encode(), digest_size=8, key=b"rota: whose data it is").hexdigest()


def _root_type(mountinfo: str) -> str:
    types = [line.partition(" - ")[2].split(" ")[0] for line in mountinfo.splitlines() if line.split(" ")[4:5] == ["/"]]
    return types[-1] if types else ""
