"""A process that reads one pack: Python reads many small files at the speed of one processor, and packs are many.

The request comes on the standard input, the archive goes to the standard output, and what is to be known of it follows
on a pipe of its own: a line of JSON (`PackNotes`), then the pack's index. The open folder is inherited.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from fcntl import F_SETPIPE_SZ, fcntl
from pathlib import Path
from typing import Any, Final

from tasks.access import Access
from tasks.backup.tree.plan import Pack
from tasks.backup.tree.read_tree import CHUNK_BYTES, FolderFailed, TreeReader
from tasks.backup.tree.walk import HiddenFiles, TreePart
from tasks.needs import Tool

TOOLS: Final = "tasks.backup.tree.pack_process:reading_tools"
"""The import path of the function below (`tasks.needs.Needs.tools`)."""

_ARGV: Final = (sys.executable, "-I", "-m", "tasks.backup.tree.pack_process")
_LOCALE: Final = ("LANG", "LC_ALL", "LC_CTYPE")


def reading_tools(environ: Mapping[str, str], access: Access) -> Iterator[Tool]:
    """Yield Python, which reads packs. Neither the variables nor the access matter."""
    yield Tool(os.path.realpath(sys.executable), "run")
    yield Tool(str(Path(sys.executable).parent.parent), "read")


@dataclass(frozen=True)
class PackNotes:
    """What the process says of a pack that it has read."""

    #: Sentences about entries that are missing or that changed.
    remarks: list[str]
    #: Files in the pack with several names: path and inode.
    named: list[tuple[str, int]]
    #: Files of which the pack has a further name.
    linked: list[tuple[str, int]]
    #: Why the pack could not be read; None: it could.
    failed: str | None = None


def read_pack(
    top: int, shown: str, real: str, own: HiddenFiles, pack: Pack, put: Callable[[bytes], Any]
) -> tuple[PackNotes, bytes]:
    """Read a pack in a process, and pass its archive on to `put`. Returns notes, and the pack's index.

    Raises `FolderFailed`, and what `put` raises; the process has then ended.
    """
    ours, theirs = os.pipe()
    argv = [*_ARGV, str(top), str(theirs)]
    environ = {name: os.environ[name] for name in _LOCALE if name in os.environ}
    try:
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, pass_fds=(top, theirs), env=environ
        )
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    with process, os.fdopen(ours, "rb") as told:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            fcntl(process.stdout, F_SETPIPE_SZ, CHUNK_BYTES)
            with process.stdin as stdin:
                stdin.write(_request(shown, real, own, pack))
            while chunk := process.stdout.read(CHUNK_BYTES):
                put(chunk)
            first, _, index = told.read().partition(b"\n")
        except BaseException:
            process.kill()
            raise
    if not first:
        raise FolderFailed(f"{shown}: the process that read a part of it ended with the code {process.returncode}")
    notes = PackNotes(**json.loads(first))
    if notes.failed is not None:
        raise FolderFailed(notes.failed)
    return notes, index


def _request(shown: str, real: str, own: HiddenFiles, pack: Pack) -> bytes:
    return json.dumps(
        {
            "shown": shown,
            "real": real,
            "paths": sorted(own.paths),
            "ids": sorted(own.ids),
            "part": pack.part,
            "firsts": [(each, path) for each, path in pack.firsts.items()],
        }
    ).encode("ascii")


def _main(top: int, told: int) -> None:
    asked = json.loads(sys.stdin.buffer.read())
    after, last = (None if end is None else tuple((kind, name) for kind, name in end) for end in asked["part"])
    part = TreePart(after, last)
    out = sys.stdout.fileno()
    reader = TreeReader(
        top,
        asked["shown"],
        asked["real"],
        lambda pieces: _write_all(out, pieces),
        HiddenFiles(frozenset(asked["paths"]), frozenset((device, inode) for device, inode in asked["ids"])),
        part,
        {(device, inode): path for (device, inode), path in asked["firsts"]},
    )
    index = b""
    try:
        reader.read()
        notes = PackNotes(reader.remarks, sorted(reader.index.named), sorted(reader.index.linked))
        index = reader.index.text(part)
    except FolderFailed as error:
        notes = PackNotes([], [], [], str(error))
    os.close(out)
    with os.fdopen(told, "wb") as file:
        file.write(json.dumps(asdict(notes)).encode("ascii") + b"\n" + index)


def _write_all(out: int, pieces: list[bytes]) -> None:
    views = [memoryview(piece) for piece in pieces]
    while views:
        written = os.writev(out, views)
        done = 0
        while done < len(views) and written >= len(views[done]):
            written -= len(views[done])
            done += 1
        views = views[done:]
        if views and written:
            views[0] = views[0][written:]


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]))
