"""Backs up a folder as a tar archive, and restores it."""

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from tasks.access import EVERYTHING, Access
from tasks.backup.archive import Content, Writer
from tasks.backup.manifest import FileEntry, Manifest
from tasks.backup.objects import NewObjects, StoredObjects
from tasks.backup.sources.restore_folder import restore, restore_packs, restore_path
from tasks.backup.sources.source import RestoreTarget, SourceNotes, SourceWork, check_exists
from tasks.backup.sources.unpack import check_archive, check_index
from tasks.backup.tree.pack_process import TOOLS
from tasks.backup.tree.packs import PackWriter, earlier_packs, number_of
from tasks.backup.tree.plan import Planner
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
        """Return Python, whose processes read the packs of a large folder."""
        return Needs(network=False, tools=(TOOLS,))

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
        """Write the folder as one tar archive, or as several packs. Raises `AccessRefused` and `FolderFailed`."""
        guard = work.guard()
        top, real = guard.open_folder(self.path)
        own = HiddenFiles.of(guard.access, guard.own_ids)
        try:
            packs = Planner(top, self.path, str(real), own).plan(earlier_packs(out))
            work.expect(sum(pack.size_bytes for pack in packs))
            if len(packs) == 1 and packs[0].kept is None:
                with out.writing(FILE) as writer:
                    remarks = dump(Path(self.path), writer, guard)
            else:
                remarks = PackWriter(out, top, self.path, str(real), own).write(packs)
                check_still(Path(self.path), top)
        finally:
            os.close(top)
        return SourceNotes(remarks=tuple(remarks))

    @classmethod
    def restore(cls, stored: StoredObjects, target: RestoreTarget) -> list[str]:
        """Unpack the archives as a folder, or restore only `target.parts.path`."""
        to = Path(target.name)
        if target.parts.path is not None:
            return restore_path(stored, target.parts.path, to, target.overwrite)
        if any(number_of(entry.plain_name) for entry in stored.manifest.files):
            return restore_packs(stored, to, target.overwrite)
        return restore(stored.only(), to, target.overwrite)

    @classmethod
    def verify(cls, content: Content, entry: FileEntry, manifest: Manifest, scratch: Path) -> list[str]:
        """Read an archive, member by member, or a pack's index."""
        number = number_of(entry.plain_name)
        if number is not None:
            check_archive(content, scratch / "files-of-packs")
        elif entry.plain_name == FILE:
            check_archive(content)
        else:
            check_index(content, entry.name)
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
