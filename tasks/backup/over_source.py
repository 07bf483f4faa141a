"""Whether a path that a restore would replace is what was backed up, a server that runs, or where the backup lies.

Databases are compared with what was backed up where they are restored, since only their server knows which they are.
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tasks.backup.archive import TargetExists
from tasks.backup.manifest import Manifest
from tasks.backup.sources.in_place import empty
from tasks.backup.sources.source import OVER_SOURCE, RestoreTarget
from tasks.disk_identity import facts_of
from tasks.places.place import Place, local_path
from tasks.source_identity import differing

_SYSTEM: Final = struct.Struct("=Q")
"""The beginning of a server's global/pg_control: its system identifier."""


class TargetInUse(TargetExists):
    """The target is in use: a server runs on it, or it holds the backup. No option lets it be replaced."""

    def __init__(self, found: str, other: str) -> None:
        super().__init__(found, other, None)


def refuse_over_source(manifest: Manifest, target: RestoreTarget) -> None:
    """Raise `TargetExists` if a restore to a path would replace what was backed up and the caller has not said so.

    Raises `TargetInUse` if the path holds the backup or is the data folder of a running server, whatever the caller
    has said. Links are followed, and the same folder at another mount point is recognized.
    """
    path = Path(target.name).resolve()
    if local_path(manifest.url) is not None and _meet(path, Path(Place(manifest.url).path).resolve().parent):
        raise TargetInUse(f"{path} holds the backups themselves, or is among them", "name another target")
    if not path.exists() or (path.is_dir() and empty(path)):
        return
    if running := _server_on(path):
        raise TargetInUse(
            f"a PostgreSQL server runs on {path} (process {running} of its postmaster.pid)",
            "stop it first, or name another target",
        )
    if not target.over_source and (source := _source_at(manifest, path)):
        raise TargetExists(source, flag=OVER_SOURCE)


def _source_at(manifest: Manifest, path: Path) -> str | None:
    """Say that an existing path is, holds, or is in, what was backed up; None if it is not."""
    named = manifest.source.get("path")
    if isinstance(named, str) and _is_here(manifest, Path(named)) and _meet(path, Path(named).resolve()):
        if str(path) == named:
            return f"{path} is what was backed up"
        return f"{path} is {'' if path.samefile(named) else 'in, or holds, '}{named}, which was backed up"
    if manifest.wal is not None and _system_of(path) == manifest.wal.system:
        return f"{path} is the data folder of the server that was backed up, or of a copy of it"
    return None


def _is_here(manifest: Manifest, source: Path) -> bool:
    """Whether the source's path leads to the source's disk on this machine, by all that is known of both."""
    try:
        facts = facts_of(source, "", shared=False)
    except PermissionError:
        return True  # it is there, and which disk it is on may not be read
    except OSError:
        return False
    return not differing(manifest.identity or {}, facts)


def _meet(path: Path, other: Path) -> bool:
    """Whether two resolved paths are one folder or file, or one is inside the other. Either may not exist."""
    return _is_in(path, other) or _is_in(other, path)


def _is_in(path: Path, folder: Path) -> bool:
    there = _identity(folder)
    return there is not None and any(found == there for found in map(_identity, _upwards(path)))


def _upwards(path: Path) -> Iterator[Path]:
    yield path
    yield from path.parents


def _identity(path: Path) -> tuple[int, int] | None:
    # A bind mount has the device and the inode of what is mounted.
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_dev, about.st_ino


def _system_of(data: Path) -> str | None:
    """Return the system identifier of the server whose data folder this is; None if it is none."""
    try:
        with (data / "global" / "pg_control").open("rb") as file:
            (system,) = _SYSTEM.unpack(file.read(_SYSTEM.size))
    except (OSError, struct.error):
        return None
    return str(system)


def _server_on(data: Path) -> int | None:
    """Return the process of the server that runs on a data folder; None if none does."""
    try:
        process = int((data / "postmaster.pid").read_text().partition("\n")[0])
        os.kill(process, 0)
    except PermissionError:  # another user's process
        return process
    except (OSError, ValueError):
        return None
    return process
