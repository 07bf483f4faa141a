"""Backs up a folder as tar archives, and restores it."""

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from tasks.access import Access
from tasks.backup.archive import Content
from tasks.backup.manifest import FileEntry, Manifest
from tasks.backup.objects import NewObjects, StoredObjects
from tasks.backup.sources.restore_folder import restore, restore_packs, restore_path
from tasks.backup.sources.source import RestoreTarget, SourceNotes, SourceWork, check_exists
from tasks.backup.sources.unpack import check_archive, check_index
from tasks.backup.tree.packs import PackWriter, earlier_packs, number_of
from tasks.backup.tree.plan import check_tree_readable, plan_parts
from tasks.backup.tree.read_tree import FolderFailed
from tasks.backup.tree.walk import HiddenFiles
from tasks.disk_identity import facts_of
from tasks.needs import Needs
from tasks.reach import Reach


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
        """Return none beside the folder."""
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
        """Write the folder as one tar archive, or as several packs. Raises `AccessRefused` and `FolderFailed`.

        A file that vanishes while the folder is read is left out, a file that shrinks is padded, and a file that
        changes is kept as it was read, each with a remark. The node's own files are left out too. No link in the folder
        is followed, not even one that appears meanwhile.
        """
        guard = work.guard()
        top, real = guard.open_folder(self.path)
        own = HiddenFiles.of(guard.access, guard.own)
        try:
            check_tree_readable(top, self.path, str(real), own)
            parts = plan_parts(top, str(real), own, earlier_packs(out))
            PackWriter(out, top, self.path, str(real), own).write(parts)
            check_still(Path(self.path), top)
        finally:
            os.close(top)
        return SourceNotes()

    @classmethod
    def restore(cls, stored: StoredObjects, target: RestoreTarget) -> list[str]:
        """Unpack the archives as a folder, or restore only `target.parts.path`."""
        to = Path(target.name)
        if target.parts.path is not None:
            return restore_path(stored, target.parts.path, to, target.overwrite)
        if any(number_of(entry.plain_name) is None for entry in stored.manifest.files):  # there are indexes of packs
            return restore_packs(stored, to, target.overwrite, target.placing)
        return restore(stored.only(), to, target.overwrite, target.placing)

    @classmethod
    def verify(cls, content: Content, entry: FileEntry, manifest: Manifest, scratch: Path) -> list[str]:
        """Read an archive, member by member, or a pack's index."""
        if number_of(entry.plain_name) is None:
            check_index(content, entry.name)
        else:
            check_archive(content, scratch / "files-of-packs")
        return []


def check_still(folder: Path, top: int) -> None:
    """Raise `FolderFailed` unless the open folder `top` is still at the path `folder`."""
    try:
        still = os.path.samestat(folder.stat(), os.fstat(top))
    except FileNotFoundError:
        still = False
    if not still:
        raise FolderFailed(f"{folder} was renamed, unmounted or replaced while it was read; no backup was made")
