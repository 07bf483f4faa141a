"""Facts that identify the disk behind a path, and distinguish it from another machine's disk at the same path.

The node and the machine identify the owner of the disk, and the file system's UUID identifies the disk. The inode of
the mount's root identifies the mounted folder of the disk, because the volumes of two containers are mostly on one file
system.
"""

import fcntl
import os
import stat
import struct
from hashlib import blake2b
from pathlib import Path
from typing import Final
from uuid import UUID

from tasks.places.mounts import Mount, mount_of, mountinfo, mounts

MACHINE_ID: Final = Path("/etc/machine-id")
_IN_CONTAINER: Final = (Path("/.dockerenv"), Path("/run/.containerenv"))
_BY_UUID: Final = Path("/dev/disk/by-uuid")
_GET_UUID: Final = 0x80111500
"""FS_IOC_GETFSUUID of linux/fs.h, since Linux 6.9. It answers with a length and a UUID of 16 bytes."""


def facts_of(path: Path, node: str, *, shared: bool) -> dict[str, str]:
    """Collect the facts of the folder or file at `path`, as seen by the member `node`. Follows links. Raises `OSError`.

    For `shared` data the node is not among the facts, and neither is the machine if several machines may mount the file
    system.
    """
    real = path.resolve(strict=True)
    descriptor = os.open(real, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        mount = mount_of(descriptor, mounts(mountinfo()))
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
    """Return the facts of `facts_of` about the place of data on `mount`; "" for a fact that does not count."""
    return {
        "node": "" if shared else node,
        "machine": "" if shared and mount.between_machines else machine_id,
        "file_system": "fuse" if mount.type.startswith("fuse") else mount.type,
    }


def _fsid(fsid: int, device: int) -> str:
    """Return a file system's id; "" if it derives from the device's number (XFS, FAT), which may change at a reboot."""
    return "" if fsid in (0, device) else f"{fsid:016x}"


def _uuid(descriptor: int, device: int) -> str:
    """Return the UUID of the file system, from the kernel, else from /dev/disk/by-uuid; "" if neither has it."""
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
    """Return a digest of this machine's id; "" in a container, where any id comes from the image."""
    return machine(_id_of(MACHINE_ID), mountinfo(), in_container=any(mark.exists() for mark in _IN_CONTAINER))


def _id_of(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def machine(machine_id: str, mounted: str, *, in_container: bool) -> str:
    """Make a digest of a machine's id, which must not be shown (machine-id(5)); "" if the id is not the machine's own.

    >>> mounts = "22 1 0:40 / / rw - overlay overlay rw"
    >>> machine("3d1219c7c4c5404aaa1f6d2a48adfda4", mounts, in_container=False)
    ''
    """
    known = len(machine_id) == 32 and set(machine_id) <= set("0123456789abcdef")
    if not known or in_container or _root_type(mounted) == "overlay":
        return ""
    return blake2b(machine_id.encode(), digest_size=8, key=b"rota: whose data it is").hexdigest()


def _root_type(mounted: str) -> str:
    types = [mount.type for mount in mounts(mounted).values() if mount.point == "/"]
    return types[-1] if types else ""
