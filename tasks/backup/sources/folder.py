"""Backs up a folder as a tar stream: sorted names, links as links, in constant memory. Restores it too."""

import errno
import os
import shutil
import stat
from pathlib import Path
from typing import IO, Annotated, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from tasks.access import EVERYTHING, Access, is_own
from tasks.backup.archive import CHUNK_BYTES, Content, TargetExists, Writer
from tasks.backup.manifest import FileEntry, Manifest
from tasks.backup.objects import NewObjects, StoredObjects
from tasks.backup.sources.in_place import beside, closed_to_others, empty, put_folder
from tasks.backup.sources.source import RestoreTarget, SourceNotes, SourceWork, check_exists
from tasks.backup.sources.tar import tarfile
from tasks.backup.sources.unpack import ROOT, check_archive, drop_member_list, extract
from tasks.disk_identity import facts_of
from tasks.errors import Failed
from tasks.file_guard import FileGuard, open_within
from tasks.needs import Needs
from tasks.reach import Reach

FILE = "folder.tar.zst"


class FolderSource(BaseModel):
    """A folder on the member that runs the task: every file, folder and link in it. Sockets and pipes are left out."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["folder"] = Field(description="The type of the source")
    path: Annotated[str, StringConstraints(pattern=r"^/[^\x00]*$")] = Field(
        description="The folder's absolute path", examples=["/srv/uploads"]
    )
    shared: bool = Field(
        default=False, description="All members that may run the task see the same folder at this path"
    )

    def is_local(self) -> bool:
        """Whether each member has a different folder at the path."""
        return not self.shared

    def reach(self) -> Reach:
        """Return the `Reach` of the folder's path."""
        return Reach("source", "source", self.path, self.path)

    def needs(self) -> Needs:
        """Return no further needs: the content is read in this process."""
        return Needs(network=False)

    def check_readable(self, access: Access, node: str) -> None:
        """Raise `NoBackupSource` if the folder does not exist, and `AccessRefused` if it may not be read."""
        check_exists(self.path, access, node)

    def identity(self, work: SourceWork) -> dict[str, str]:
        """Return the folder's identity facts (`tasks.source_identity`). Raises `OSError`.

        The folder's inode is not among the facts: a folder that is recreated under the same name is the same source.
        """
        facts = facts_of(Path(self.path), work.node, shared=self.shared)
        return {"type": self.type, "path": os.path.normpath(self.path), **facts}

    def dump(self, work: SourceWork, out: NewObjects) -> SourceNotes:
        """Write the folder as a tar archive. Raises the errors of this module's function `dump`."""
        with out.writing(FILE) as writer:
            return SourceNotes(remarks=tuple(dump(Path(self.path), writer, work.guard())))

    @classmethod
    def restore(cls, stored: StoredObjects, target: RestoreTarget) -> list[str]:
        """Unpack the archive as a folder."""
        restore(stored.only(), Path(target.name), target.overwrite)
        return []

    @classmethod
    def verify(cls, content: Content, entry: FileEntry, manifest: Manifest, scratch: Path) -> list[str]:
        """Read the whole archive, member by member."""
        check_archive(content)
        return []


class FolderFailed(Failed):
    """The folder cannot be backed up."""


class _AsLongAsListed:
    """A file read as `size_bytes` bytes: it is truncated if it has grown, and padded with zeros if it has shrunk."""

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
_OWN = "was left out: it belongs to the node itself or to the kernel"


def dump(folder: Path, out: Writer, guard: FileGuard | None = None) -> list[str]:
    """Write the folder as a tar archive. Returns remarks for the manifest.

    A file that vanishes while the folder is read is left out, and a file that shrinks is padded, each with a remark.
    The node's own files, as `guard` knows them, are left out too. No link in the folder is followed, not even one that
    appears during the dump. Raises `AccessRefused` if the folder may not be read, `FolderFailed` if it was replaced in
    the meantime (renamed, unmounted), and `OSError` for a file or folder that cannot be read, because a backup without
    it would be incomplete.
    """
    guard = guard or FileGuard(EVERYTHING, "source")
    sink = cast(IO[bytes], out)  # tarfile uses only its method write
    root, real = guard.open_folder(folder)
    try:
        with tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT, bufsize=CHUNK_BYTES) as archive:
            archive.addfile(archive.gettarinfo(f"/proc/self/fd/{root}/.", arcname=ROOT))
            dumping = _Dumping(archive, guard, real)
            dumping.content_of(root, folder, "")
        if not _is_still(folder, os.fstat(root)):
            raise FolderFailed(f"{folder} was renamed, unmounted or replaced while it was read; no backup was made")
    finally:
        os.close(root)
    return dumping.remarks


def _is_still(folder: Path, before: os.stat_result) -> bool:
    try:
        return os.path.samestat(folder.stat(), before)
    except FileNotFoundError:
        return False


class _Dumping:
    """Writes a folder into an archive, and collects remarks.

    Every file is opened through the descriptor of its folder, never by its path: a program that may write to the folder
    can replace a subfolder by a link at any moment.
    """

    def __init__(self, archive: tarfile.TarFile, guard: FileGuard, real: Path) -> None:
        self.remarks: list[str] = []
        self._archive = archive
        self._guard = guard
        self._real = real

    def content_of(self, folder: int, path: Path, within: str) -> None:
        """Add the entries of the open `folder`, at `path`, to the archive; `within` is the prefix of their names."""
        try:
            # A set, since a folder that changes during the listing may list a name twice.
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
            drop_member_list(self._archive)
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
        """Add one entry of the open `folder` to the archive. Returns True for a folder, whose entries come next."""
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
            self._add_file(folder, name, path, within)  # the entry has become a regular file since os.stat
        return False

    def _add_file(self, folder: int, name: str, path: Path, within: str) -> None:
        try:
            opened = open_within(folder, name)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            self._say(path, _VANISHED)
            return
        # Open the file first: `gettarinfo` remembers its inode, and stores other names of the same file as links.
        with os.fdopen(opened, "rb") as file:
            about = os.fstat(opened)
            if not stat.S_ISREG(about.st_mode) or self._guard.is_own(about):
                self._say(path, _OWN if self._guard.is_own(about) else _VANISHED)
                return
            member = self._archive.gettarinfo(arcname=within + name, fileobj=file)
            if about.st_nlink == 1:
                # The file has no other name. Forget its inode, since there may be millions of files.
                self._archive.inodes.pop((about.st_ino, about.st_dev), None)
            content = _AsLongAsListed(file, member.size)
            self._archive.addfile(member, content)
        if content.missing_bytes:
            self._say(path, f"shrank while it was read: its last {content.missing_bytes} bytes are zeros")


def restore(content: Content, target: Path, overwrite: bool) -> None:
    """Unpack the archive as the folder `target`, which appears complete or not at all.

    Raises `Damaged`, and `TargetExists` if `target` exists, is not an empty folder, and `overwrite` is not set.
    """
    target = target.resolve()
    if not overwrite and target.exists() and (not target.is_dir() or not empty(target)):
        raise TargetExists(f"{target} exists and is not empty: name another target, or give --overwrite")
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = beside(target)
    with closed_to_others():
        aside.mkdir()
        try:
            extract(content, aside)
            put_folder(aside, target)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
