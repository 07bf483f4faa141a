"""A folder, as a tar stream: names in a stable order, links as links, nothing held in memory."""

import os
import shutil
import stat
from pathlib import Path
from typing import IO, Annotated, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from tasks.backup.archive import CHUNK_BYTES, Content, TargetExists, Writer
from tasks.backup.sources.in_place import beside, closed_to_others, empty, put_folder
from tasks.backup.sources.tar import tarfile
from tasks.backup.sources.unpack import ROOT, forget, unpack
from tasks.disk import facts_of
from tasks.kind import Failed

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


def dump(folder: Path, out: Writer) -> list[str]:
    """Write the folder as a tar archive. What could not be had as it was, for the manifest.

    A file that vanishes while the folder is read is left out, one that shrinks is filled up. Raises `FolderFailed` if
    the folder itself is another one in the end (renamed, unmounted), and `OSError` for what is there and cannot be
    read, the folder itself among it: a backup without it would not be one.
    """
    sink = cast(IO[bytes], out)  # tarfile only writes to it
    with tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT, bufsize=CHUNK_BYTES) as archive:
        began = folder.stat()
        archive.addfile(archive.gettarinfo(folder.resolve(), arcname=ROOT))
        dumping = _Dumping(archive, folder)
        dumping.content_of(folder)
    if not _is_still(folder, began):
        raise FolderFailed(f"{folder} was renamed, unmounted or replaced while it was read: there is no backup of it")
    return dumping.remarks


def _is_still(folder: Path, before: os.stat_result) -> bool:
    try:
        return os.path.samestat(folder.stat(), before)
    except FileNotFoundError:
        return False


class _Dumping:
    """A folder on its way into an archive, and what is to be said of it."""

    def __init__(self, archive: tarfile.TarFile, folder: Path) -> None:
        self.remarks: list[str] = []
        self._archive = archive
        self._folder = folder

    def content_of(self, folder: Path) -> None:
        """Put all that is in `folder` into the archive."""
        try:
            # A set, since a folder that is changed meanwhile may be listed with a name twice.
            paths = sorted(set(folder.iterdir()))
        except (FileNotFoundError, NotADirectoryError):
            self._say(folder, _VANISHED)
            return
        for path in paths:
            try:
                is_folder = self._add(path)
            except FileNotFoundError:
                self._say(path, _VANISHED)
                continue
            forget(self._archive)
            if is_folder:
                self.content_of(path)

    def _say(self, path: Path, remark: str) -> None:
        self.remarks.append(f"{path} {remark}")

    def _add(self, path: Path) -> bool:
        """Put one path into the archive. Whether it is a folder."""
        name = path.relative_to(self._folder).as_posix()
        mode = path.lstat().st_mode
        if stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode):
            self._say(path, "was left out: it is a socket or a pipe")
        elif stat.S_ISREG(mode):
            self._add_file(path, name)
        else:
            member = self._archive.gettarinfo(path, arcname=name)
            if member.isreg():  # it has become one just now
                self._add_file(path, name)
            else:
                self._archive.addfile(member)
        return stat.S_ISDIR(mode)

    def _add_file(self, path: Path, name: str) -> None:
        # Opened first: what tarfile was told of is what later names of the same file are stored as links to.
        with path.open("rb") as file:
            about = os.fstat(file.fileno())
            member = self._archive.gettarinfo(arcname=name, fileobj=file)
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
        raise TargetExists(f"{target} is there and not empty: name another target, or allow to overwrite it")
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = beside(target)
    with closed_to_others():
        aside.mkdir()
        try:
            unpack(content, aside)
            put_folder(aside, target)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
