"""A folder that is a small disk of its own, which can be full and can hang.

An ext4 file system in a file, on a loop device. Frozen (FIFREEZE, ioctl_fsfreeze(2)), whoever writes or syncs waits in
the kernel until it is thawed, as with a volume of the network that does not answer. Wants root.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

SIZE_MIB: Final = 64
"""A few times what a node keeps in half an hour."""

_TOOLS: Final = ("mkfs.ext4", "mount", "umount", "fsfreeze")


class DiskFault(Exception):
    """A command that was to change a disk failed; says which, and why."""


class SmallDisk:
    """A disk at `folder`, which is made, from now until `close`. Raises DiskFault."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._image = folder.with_name(f"{folder.name}.disk")
        self._frozen = False
        folder.mkdir(mode=0o700)
        with self._image.open("wb") as image:
            image.truncate(SIZE_MIB << 20)
        _do("mkfs.ext4", "-q", "-m", "0", str(self._image))
        _do("mount", "-o", "loop", str(self._image), str(folder))
        (folder / "lost+found").rmdir()
        folder.chmod(0o700)

    def freeze(self) -> None:
        """From now on nothing that is written gets there, and who writes waits."""
        _do("fsfreeze", "--freeze", str(self.folder))
        self._frozen = True

    def thaw(self) -> None:
        """All goes on, if it stood still."""
        if self._frozen:
            _do("fsfreeze", "--unfreeze", str(self.folder))
            self._frozen = False

    def close(self) -> None:
        """Take it away; what is on it is kept beside it. Who used it must have ended."""
        self.thaw()
        kept = self.folder.with_name(f"{self.folder.name}.kept")
        shutil.copytree(self.folder, kept, symlinks=True)
        _do("umount", "--lazy", str(self.folder))
        self._image.unlink()


def why_not() -> str | None:
    """Why there can be no such disk here; None if there can."""
    for tool in _TOOLS:
        if shutil.which(tool) is None:
            return f"there is no {tool} here"
    with tempfile.TemporaryDirectory(prefix="rota-disk-") as folder:
        try:
            disk = SmallDisk(Path(folder) / "try")
        except DiskFault as error:
            return f"a disk in a file cannot be mounted here: {error}"
        disk.close()
    return None


def _do(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise DiskFault(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
