"""Backs up a folder as a tar archive, and restores it."""

import os
import shutil
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from tasks.access import EVERYTHING, Access
from tasks.backup.archive import Content, TargetExists, Writer
from tasks.backup.manifest import FileEntry, Manifest
from tasks.backup.objects import NewObjects, StoredObjects
from tasks.backup.sources.in_place import beside, closed_to_others, empty, put_folder
from tasks.backup.sources.source import RestoreTarget, SourceNotes, SourceWork, check_exists
from tasks.backup.sources.unpack import check_archive, extract
from tasks.backup.tree.read_tree import FolderFailed, TreeReader
from tasks.backup.tree.walk import HiddenFiles
from tasks.disk_identity import facts_of
from tasks.file_guard import FileGuard
from tasks.needs import Needs
from tasks.reach import Reach

FILE = "folder.tar.zst"


class FolderSource(BaseModel):
    """A folder on the member that runs the task: every file, folder and link in it, with ACLs and the like.

    Sockets, pipes and devices are left out.
    """

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
        return restore(stored.only(), Path(target.name), target.overwrite)

    @classmethod
    def verify(cls, content: Content, entry: FileEntry, manifest: Manifest, scratch: Path) -> list[str]:
        """Read the whole archive, member by member."""
        check_archive(content)
        return []


def dump(folder: Path, out: Writer, guard: FileGuard | None = None) -> list[str]:
    """Write the folder as a tar archive. Returns remarks for the manifest.

    A file that vanishes while the folder is read is left out, a file that shrinks is padded, and a file that changes is
    kept as it was read, each with a remark. The node's own files, as `guard` knows them, are left out too. No link in
    the folder is followed, not even one that appears during the dump. Raises `AccessRefused` if the folder may not be
    read, and `FolderFailed` if something in it cannot be read, or if it was replaced in the meantime.
    """
    guard = guard or FileGuard(EVERYTHING, "source")
    top, real = guard.open_folder(folder)
    try:
        reader = TreeReader(
            top, str(folder), str(real), lambda pieces: put(out, pieces), HiddenFiles.of(guard.access, guard.own_ids)
        )
        reader.read()
        check_still(folder, top)
    finally:
        os.close(top)
    return reader.remarks


def put(out: Writer, pieces: list[bytes]) -> None:
    """Write the pieces of an archive."""
    out.write(b"".join(pieces))


def check_still(folder: Path, top: int) -> None:
    """Raise `FolderFailed` unless the open folder `top` is still at the path `folder`."""
    try:
        still = os.path.samestat(folder.stat(), os.fstat(top))
    except FileNotFoundError:
        still = False
    if not still:
        raise FolderFailed(f"{folder} was renamed, unmounted or replaced while it was read; no backup was made")


def restore(content: Content, target: Path, overwrite: bool) -> list[str]:
    """Unpack the archive as the folder `target`, which appears complete or not at all. Returns remarks.

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
            remarks = extract(content, aside)
            put_folder(aside, target)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    return remarks
