"""A folder, as a tar stream: names in a stable order, links as links, nothing held in memory."""

import errno
import os
import shutil
import stat
from pathlib import Path
from typing import IO, Annotated, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from tasks.access import EVERYTHING, is_own
from tasks.backup.archive import CHUNK_BYTES, Content, TargetExists, Writer
from tasks.backup.sources.in_place import beside, closed_to_others, empty, put_folder
from tasks.backup.sources.tar import tarfile
from tasks.backup.sources.unpack import ROOT, forget, unpack
from tasks.disk import facts_of
from tasks.errors import Failed
from tasks.opened import Guard, open_within

FILE = "folder.tar.zst"


class FolderSource(BaseModel):
    """A folder on the member that runs: every file, folder and link in it. Sockets and pipes are left out."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["folder"]
    path: Annotated[str, StringConstraints(pattern=r"^/[^\x00]*$")] = Field(examples=["/srv/uploads"])
    shared: bool = Field(default=False, description="All members that may run this see the same folder at this path")


class FolderFailed(Failed):
    """The folder cannot be backed up."""


def identity(source: FolderSource, node: str) -> dict[str, str]:
    """What tells the folder from another member's at that path (`tasks.identity`). Raises `OSError`.

    Not its own inode: a folder is often made anew under its name, and is the same to whoever backs it up.
    """
    return {
        "type": source.type,
        "path": os.path.normpath(source.path),
        **facts_of(Path(source.path), node, shared=source.shared),
    }


class _AsLongAsListed:
    """A file that gives as many bytes as it was said to have: what grew is cut, what shrank is filled with zeros."""

    def __init__(self, file: IO[bytes], size_bytes: int) -> None:
        self._file = file
        self._left = size_bytes
        self.missing_bytes = 0

    def read(self, size: int = -1) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        data = self._file.read(wanted)
        self.missing_bytes += wanted - len(data)
        self._left -= wanted
        return data.ljust(wanted, b"\0")


_VANISHED = "vanished while the folder was read"
_OWN = "was left out: it is the node's own, or the kernel's"


def dump(folder: Path, out: Writer, guard: Guard | None = None) -> list[str]:
    """Write the folder as a tar archive. What could not be had as it was, for the manifest.

    A file that vanishes while the folder is read is left out, one that shrinks is filled up; so is what `guard` knows
    as the node's own. No link is followed below the folder, nor one that appears while it is read. Raises `Refused` if
    the folder may not be read, `FolderFailed` if it is another one in the end (renamed, unmounted), and `OSError` for
    what is there and cannot be read, the folder itself among it: a backup without it would not be one.
    """
    guard = guard or Guard(EVERYTHING, "source")
    sink = cast(IO[bytes], out)  # tarfile only writes to it
    root, real = guard.open_folder(folder)
    try:
        with tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT, bufsize=CHUNK_BYTES) as archive:
            archive.addfile(archive.gettarinfo(f"/proc/self/fd/{root}/.", arcname=ROOT))
            dumping = _Dumping(archive, guard, real)
            dumping.content_of(root, folder, "")
        if not _is_still(folder, os.fstat(root)):
            raise FolderFailed(
                f"{folder} was renamed, unmounted or replaced while it was read: there is no backup of it"
            )
    finally:
        os.close(root)
    return dumping.remarks


def _is_still(folder: Path, before: os.stat_result) -> bool:
    try:
        return os.path.samestat(folder.stat(), before)
    except FileNotFoundError:
        return False


class _Dumping:
    """A folder on its way into an archive, and what is to be said of it.

    Everything is reached through the descriptor of the folder that it is in, never by its path: whoever may write there
    can put a link in the place of a folder at any moment.
    """

    def __init__(self, archive: tarfile.TarFile, guard: Guard, real: Path) -> None:
        self.remarks: list[str] = []
        self._archive = archive
        self._guard = guard
        self._real = real

    def content_of(self, folder: int, path: Path, within: str) -> None:
        """Put what is in the open `folder`, at `path`, into the archive. `within` begins the names of its members."""
        try:
            # A set, since a folder that is changed meanwhile may be listed with a name twice.
            names = sorted(set(os.listdir(folder)))
        except FileNotFoundError:
            self._say(path, _VANISHED)
            return
        for name in names:
            try:
                is_folder = self._add(folder, name, path / name, within)
            except FileNotFoundError:
                self._say(path / name, _VANISHED)
                continue
            forget(self._archive)
            if is_folder:
                self._descend(folder, name, path / name, within)

    def _descend(self, folder: int, name: str, path: Path, within: str) -> None:
        try:
            inner = open_within(folder, name, directory=True)
        except (FileNotFoundError, NotADirectoryError):
            self._say(path, _VANISHED)
            return
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            self._say(path, _VANISHED)
            return
        try:
            self.content_of(inner, path, f"{within}{name}/")
        finally:
            os.close(inner)

    def _say(self, path: Path, remark: str) -> None:
        self.remarks.append(f"{path} {remark}")

    def _add(self, folder: int, name: str, path: Path, within: str) -> bool:
        """Put one entry of the open `folder` into the archive. Whether it is a folder to go on with."""
        about = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if self._guard.is_own(about) or is_own(self._guard.access, f"{self._real}/{within}{name}"):
            self._say(path, _OWN)
        elif stat.S_ISSOCK(about.st_mode) or stat.S_ISFIFO(about.st_mode):
            self._say(path, "was left out: it is a socket or a pipe")
        elif stat.S_ISREG(about.st_mode):
            self._add_file(folder, name, path, within)
        else:
            member = self._archive.gettarinfo(f"/proc/self/fd/{folder}/{name}", arcname=within + name)
            if not member.isreg():
                self._archive.addfile(member)
                return bool(member.isdir())
            self._add_file(folder, name, path, within)  # it has become one just now
        return False

    def _add_file(self, folder: int, name: str, path: Path, within: str) -> None:
        try:
            opened = open_within(folder, name)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            self._say(path, _VANISHED)
            return
        # Opened first: what tarfile was told of is what later names of the same file are stored as links to.
        with os.fdopen(opened, "rb") as file:
            about = os.fstat(opened)
            if not stat.S_ISREG(about.st_mode) or self._guard.is_own(about):
                self._say(path, _OWN if self._guard.is_own(about) else _VANISHED)
                return
            member = self._archive.gettarinfo(arcname=within + name, fileobj=file)
            if about.st_nlink == 1:
                # Nothing will be a link to it, and there may be millions.
                self._archive.inodes.pop((about.st_ino, about.st_dev), None)
            content = _AsLongAsListed(file, member.size)
            self._archive.addfile(member, content)
        if content.missing_bytes:
            self._say(path, f"shrank while it was read: its last {content.missing_bytes} bytes are zeros")


def restore(content: Content, target: Path, overwrite: bool) -> None:
    """Unpack the archive as the folder `target`, which appears whole or not at all.

    Raises `TargetExists` if there is something at `target` and `overwrite` is not set; `Damaged`.
    """
    target = target.resolve()
    if not overwrite and target.exists() and (not target.is_dir() or not empty(target)):
        raise TargetExists(f"{target} is there and not empty: name another target, or give --overwrite")
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = beside(target)
    with closed_to_others():
        aside.mkdir()
        try:
            unpack(content, aside)
            put_folder(aside, target)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
