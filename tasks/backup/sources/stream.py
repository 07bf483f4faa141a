"""Backs up what a program writes to its standard output, and restores it as a file.

A node runs such a program only where it runs commands (ROTA_ALLOW_COMMAND). Then it has the rights of a command: all
that the node's user may, except the node's own files.
"""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from tasks.access import Access, check_command
from tasks.backup.archive import CHUNK_BYTES, Content, TargetExists
from tasks.backup.manifest import FileEntry, Manifest
from tasks.backup.objects import NewObjects, StoredObjects
from tasks.backup.sources.in_place import beside, closed_to_others, put_file
from tasks.backup.sources.program import ProgramFailed, beside_pipe, output_of
from tasks.backup.sources.source import RestoreTarget, SourceNotes, SourceWork
from tasks.command.kind import CommandText, CommandVariable, inherited_environment
from tasks.errors import Failed
from tasks.needs import Needs
from tasks.reach import Reach
from tasks.secret import Reference


class StreamFailed(Failed):
    """The program could not be started, its exit code was not 0, or it wrote nothing."""


class StreamSource(BaseModel):
    """A program's standard output. Only nodes with `ROTA_ALLOW_COMMAND=1` run it, as they run tasks of kind `command`.

    The program inherits the node's environment variables, except ROTA_*. It is killed if the run is cancelled.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["stream"] = Field(description="The type of the source")
    argv: Annotated[tuple[CommandText, ...], Field(min_length=1, max_length=10_000)] = Field(
        description="The program and its arguments; no shell is involved", examples=[["slapcat", "-n", "1"]]
    )
    env: dict[CommandVariable, CommandText | Reference] = Field(
        default={}, description="Variables to add to the node's own; a value may be a reference to a secret"
    )
    cwd: Annotated[str, StringConstraints(pattern=r"^[^\x00]+$")] | None = Field(
        default=None,
        description="The folder to run in; null: the attempt's scratch folder, which is removed at its end",
    )
    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$")] = Field(
        default="stream", description="The name of the output in the backup: it is stored as NAME.zst"
    )
    shared: bool = Field(default=False, description="The program writes the same on all members that may run the task")
    allow_empty: bool = Field(default=False, description="An output of no bytes is a backup, not a failure")

    def is_local(self) -> bool:
        """Whether the program may write something else on each member."""
        return not self.shared

    def reach(self) -> Reach:
        """Return that the source is a program."""
        return Reach("source", "source", self.argv[0], command=True)

    def needs(self) -> Needs:
        """Return everything, since any program may run."""
        return Needs(everything=True)

    def check_readable(self, access: Access, node: str) -> None:
        """Raise `AccessRefused` if the node runs no commands."""
        check_command(access, self.argv[0])

    def identity(self, work: SourceWork) -> dict[str, str]:
        """Return the identity facts (`tasks.source_identity`): the name, and the member unless the stream is shared."""
        return {"type": self.type, "stream": self.name} | ({} if self.shared else {"node": work.node})

    def dump(self, work: SourceWork, out: NewObjects) -> SourceNotes:
        """Write what the program writes. Raises `StreamFailed` and `MissingSecret`."""
        own = {name: value if isinstance(value, str) else work.secret(value) for name, value in self.env.items()}
        environ = inherited_environment() | own
        with out.writing(f"{self.name}.zst") as writer:
            try:
                with beside_pipe(
                    self.argv, work.scratch, environ, stdout=subprocess.PIPE, cwd=self.cwd or work.scratch
                ) as process:
                    for chunk in output_of(process, work.step):
                        writer.write(chunk)
            except ProgramFailed as error:
                raise StreamFailed(str(error)) from None
            if writer.size_bytes == 0 and not self.allow_empty:
                raise StreamFailed(
                    f"{self.argv[0]} ended well, but wrote nothing: if that is right, set `allow_empty: true`"
                )
        return SourceNotes()

    @classmethod
    def restore(cls, stored: StoredObjects, target: RestoreTarget) -> list[str]:
        """Write the output to a file, which appears complete or not at all."""
        restore_stream(stored.only(), Path(target.name), target.overwrite, target.placing)
        return []

    @classmethod
    def verify(cls, content: Content, entry: FileEntry, manifest: Manifest, scratch: Path) -> list[str]:
        """Read all of it: only the program's author knows its form."""
        content.drain()
        return []


def restore_stream(
    content: Content, target: Path, overwrite: bool, placing: Callable[[Path], None] = lambda path: None
) -> None:
    """Write `content` to the file `target`, which only its owner may read.

    Raises `Damaged`, and `TargetExists` if `target` is a folder, or exists and `overwrite` is not set.
    """
    target = target.resolve()
    if target.is_dir():
        raise TargetExists(f"{target} is a folder", "name a file for the program's output", None)
    if target.exists() and not overwrite:
        raise TargetExists(f"{target} exists")
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = beside(target)
    try:
        with closed_to_others(), aside.open("xb") as file:
            while chunk := content.read(CHUNK_BYTES):
                file.write(chunk)
        placing(aside)
        put_file(aside, target, [])
    finally:
        aside.unlink(missing_ok=True)
