"""A folder, as a tar stream: names in a stable order, links as links, nothing held in memory."""

import shutil
import stat
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Annotated, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from tasks.backup.archive import CHUNK_BYTES, Content, Damaged, TargetExists, Writer

if sys.version_info >= (3, 12):
    import tarfile
else:  # Debian 12 has 3.11.2, whose tarfile checks nothing that it unpacks
    from backports import tarfile

FILE = "folder.tar.zst"


class FolderSource(BaseModel):
    """A folder on the member that runs: every file, folder and link in it. Sockets and pipes are left out."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["folder"]
    path: Annotated[str, StringConstraints(pattern=r"^/[^\x00]*$")] = Field(examples=["/srv/uploads"])


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


def dump(folder: Path, out: Writer) -> list[str]:
    """Write the folder as a tar archive. What could not be had as it was, for the manifest.

    A file that vanishes while the folder is read is left out, one that shrinks is filled up. Raises `OSError` for what
    is there and cannot be read, the folder itself among it: a backup without it would not be one.
    """
    remarks: list[str] = []
    folder.stat()
    sink = cast(IO[bytes], out)  # tarfile only writes to it
    with tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT, bufsize=CHUNK_BYTES) as archive:
        for path in _walk(folder):
            remark = _add(archive, path, path.relative_to(folder).as_posix())
            if remark is not None:
                remarks.append(f"{path} {remark}")
            _forget(archive)
    return remarks


def _walk(folder: Path) -> Iterator[Path]:
    try:
        paths = sorted(folder.iterdir())
    except FileNotFoundError:
        return
    for path in paths:
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)


def _add(archive: tarfile.TarFile, path: Path, name: str) -> str | None:
    """Put one path into the archive. None, or what is to be said of it."""
    try:
        mode = path.lstat().st_mode
        if stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode):
            return "was left out: it is a socket or a pipe"
        member = archive.gettarinfo(path, arcname=name)
        if not member.isreg():
            archive.addfile(member)
            return None
        file = path.open("rb")
    except FileNotFoundError:
        return "vanished while the folder was read"
    with file:
        content = _AsLongAsListed(file, member.size)
        archive.addfile(member, content)
    if content.missing_bytes:
        return f"shrank while it was read: its last {content.missing_bytes} bytes are zeros"
    return None


def restore(content: Content, target: Path, overwrite: bool) -> None:
    """Unpack the archive as the folder `target`, which appears whole or not at all.

    Raises `TargetExists` if there is something at `target` and `overwrite` is not set; `Damaged`.
    """
    if not overwrite and target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise TargetExists(f"{target} is there and not empty: name another target, or allow to overwrite it")
    aside = target.with_name(f".{target.name}.{uuid.uuid4().hex}.partial")
    aside.mkdir(parents=True)
    try:
        with tarfile.open(fileobj=content, mode="r|", bufsize=CHUNK_BYTES) as archive:
            archive.extractall(aside, members=_members(archive), filter=_inside)  # noqa: S202  `_inside` checks
        content.drain()
        _put_in_place(aside, target)
    except tarfile.TarError as error:
        raise Damaged(f"the archive does not unpack: {error}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    while (member := archive.next()) is not None:
        yield member
        _forget(archive)


def _forget(archive: tarfile.TarFile) -> None:
    """Drop the list of all members so far, which tarfile keeps and a stream has no use for."""
    archive.members = []


def _put_in_place(aside: Path, target: Path) -> None:
    if not target.exists():
        aside.rename(target)
        return
    old = target.with_name(f".{target.name}.{uuid.uuid4().hex}.old")
    target.rename(old)
    aside.rename(target)
    if old.is_dir():
        shutil.rmtree(old)
    else:
        old.unlink()


def _inside(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo:
    """Nothing may land outside the target (tarfile's own check), but modes and owners stay as they were."""
    tarfile.tar_filter(member, path)
    return member


def check(content: Content) -> int:
    """Read the archive through. How many members it has. Raises `Damaged`."""
    members = 0
    try:
        with tarfile.open(fileobj=content, mode="r|", bufsize=CHUNK_BYTES) as archive:
            for _ in _members(archive):
                members += 1
    except tarfile.TarError as error:
        raise Damaged(f"the archive does not unpack: {error}") from error
    content.drain()
    return members
