"""Makes the data folder of a PostgreSQL server from the objects of a physical backup, completely or not at all."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tasks.backup.archive import CHUNK_BYTES, Damaged, TargetExists
from tasks.backup.chain import SERVER_MANIFEST_FILE
from tasks.backup.manifest import Manifest
from tasks.backup.objects import StoredObjects
from tasks.backup.sources.base_backup import FILE, SERVER_MANIFEST
from tasks.backup.sources.in_place import beside, closed_to_others, empty, put_folder
from tasks.backup.sources.postgres_tools import NoTool, Tools, installed_tools, of_major
from tasks.backup.sources.source import RestoreTarget
from tasks.backup.sources.unpack import extract
from tasks.errors import Failed, Unretryable

_LINKS: Final = "pg_tblspc"

_VISIBILITY_MAP: Final = re.compile(r"[0-9]+_vm(\.[0-9]+)?")
"""The names of files with a table's visibility map."""


class NoRoomToRestore(Failed):
    """The disk has not enough room for a restore."""


class NoTablespacePath(Unretryable):
    """The paths that were given for tablespaces are not those that the backup needs."""


def server_major(manifest: Manifest) -> int:
    """Return the major version of the server that a physical backup is of."""
    tools = manifest.tools
    return int((tools.get("postgresql") or tools["pg_basebackup"]).partition(".")[0])


def restore_data_folder(stored: StoredObjects, target: RestoreTarget) -> list[str]:
    """Make the data folder of a backup at `target`, and its tablespaces at their new paths. Returns remarks.

    An incremental backup is combined with all that it needs: these are unpacked beside the target, and removed again.
    Raises `TargetExists`, `NoTablespacePath`, `NoTool`, `NoRoomToRestore`, `BrokenChain` and `Damaged`.
    """
    chain = stored.chain()
    tools = installed_tools(target.postgres_bin or os.environ.get("ROTA_POSTGRES_BIN"), os.environ)
    major = server_major(stored.manifest)
    combine = of_major(tools, major, "pg_combinebackup") if len(chain) > 1 else None
    data = Path(target.name).resolve()
    spaces = _new_paths(stored.manifest, target.tablespaces)
    if not target.overwrite and data.exists() and (not data.is_dir() or not empty(data)):
        raise TargetExists(f"{data} exists and is not empty")
    for path in spaces.values():
        if path.exists() and (not path.is_dir() or not empty(path)):
            raise TargetExists(f"{path} exists and is not empty", "name another path for the tablespace", None)
    _check_room([each.manifest for each in chain], data)
    with ExitStack() as stack:
        stack.enter_context(closed_to_others())
        aside = stack.enter_context(_aside(data))
        spaces_aside = {oid: stack.enter_context(_aside(path)) for oid, path in spaces.items()}
        if combine is None:
            _unpack(stored, aside, spaces_aside)
        else:
            _combine(combine, chain, stack.enter_context(_aside(data)), aside, spaces_aside)
        _own([aside, *spaces_aside.values()])
        stored.doing("pg_verifybackup compares the files with the server's manifest")
        remarks = _verified(aside, tools, major)
        if combine is not None:
            remarks.append(_without_visibility([aside, *spaces_aside.values()]))
        _link(aside, spaces)
        stored.doing("putting the files in place")
        target.placing(aside)
        _put(spaces_aside, spaces, lambda: put_folder(aside, data))
    return remarks


def _new_paths(manifest: Manifest, given: Mapping[str, str]) -> dict[int, Path]:
    """Return the new path of each tablespace, by its number. Raises `NoTablespacePath`."""
    found = {space.name: space for entry in manifest.files if (space := entry.tablespace) is not None}
    if lacking := [space for name, space in found.items() if name not in given]:
        options = " ".join(f"--tablespace {space.name}=PATH" for space in lacking)
        where = ", ".join(f"{space.name}, which was at {space.path}" for space in lacking)
        raise NoTablespacePath(f"{manifest.url} has tablespaces outside the data folder ({where}): add {options}")
    if unknown := sorted(given.keys() - found.keys()):
        known = ", ".join(sorted(found)) or "none"
        raise NoTablespacePath(f"{manifest.url} has no tablespace {unknown[0]} (it has: {known})")
    paths = {space.oid: Path(given[name]).resolve() for name, space in found.items()}
    if len(set(paths.values())) < len(paths):
        raise NoTablespacePath("two tablespaces need two paths")
    return paths


@contextmanager
def _aside(target: Path) -> Iterator[Path]:
    """Make a folder beside `target`, which is removed when the block ends, if it is still there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = beside(target)
    aside.mkdir(0o700)
    try:
        yield aside
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _unpack(stored: StoredObjects, data: Path, spaces: Mapping[int, Path]) -> None:
    """Unpack a backup into the empty folder `data`, and its tablespaces into `spaces`. Raises `Damaged`."""
    for entry in stored.manifest.files:
        content = stored.content(entry)
        if entry.tablespace is not None:
            extract(content, spaces[entry.tablespace.oid], links=())
        elif entry.plain_name == SERVER_MANIFEST_FILE:
            with (data / SERVER_MANIFEST).open("xb") as file:
                shutil.copyfileobj(content, file, CHUNK_BYTES)
        elif entry.plain_name == FILE:
            # What follows writes to files by their names, as root perhaps: a server sends no other links than these.
            extract(content, data, links=[f"{_LINKS}/{oid}" for oid in spaces])
        else:
            raise Damaged(f"{stored.manifest.url}/{entry.name} is no part of a physical backup")
    if not (data / "PG_VERSION").exists():
        raise Damaged(f"{stored.manifest.url}/{FILE} holds no data folder: it has no file PG_VERSION")
    _link(data, spaces)


def _combine(
    program: str, chain: Sequence[StoredObjects], scratch: Path, data: Path, spaces: Mapping[int, Path]
) -> None:
    """Unpack the backups of a chain into folders in `scratch`, and let pg_combinebackup make one server of them.

    It is in the empty folders `data` and, by their numbers, `spaces`. Raises `Damaged`.
    """
    argv = [program, f"--output={data}", *_copying(program, scratch)]
    for number, each in enumerate(chain):
        member = scratch / str(number)
        its = [entry.tablespace.oid for entry in each.manifest.files if entry.tablespace is not None]
        member_spaces = {oid: scratch / f"{number}-{oid}" for oid in its}
        for path in (member, *member_spaces.values()):
            path.mkdir(0o700)
        _unpack(each, member, member_spaces)
        if each is chain[-1]:
            argv += [f"--tablespace-mapping={_escaped(member_spaces[oid])}={_escaped(spaces[oid])}" for oid in its]
        argv.append(str(member))
    chain[-1].doing(f"pg_combinebackup makes one server of {len(chain)} backups")
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Damaged(f"pg_combinebackup: {done.stderr.strip()[-2000:]}")
    about = (member / "PG_VERSION").stat()
    shutil.rmtree(scratch)
    if os.geteuid() == 0:
        for root in (data, *spaces.values()):
            for folder, folders, files in os.walk(root):
                for name in (*folders, *files):
                    os.chown(f"{folder}/{name}", about.st_uid, about.st_gid, follow_symlinks=False)


def _without_visibility(folders: Sequence[Path]) -> str:
    """Remove the visibility maps of a combined server. Returns a remark.

    When a change of a table clears a bit of its map, the log does not name the map's block. So the server's summaries
    lack it, an incremental backup does not hold it, and the combined map says of rows that are deleted that all see
    them: index-only scans count them, and VACUUM skips their pages (found by PostgreSQL's developers in March 2026, and
    seen in 17.10). A server without a map is correct.
    """
    for root in folders:
        for folder, _, files in os.walk(root):
            for name in files:
                if _VISIBILITY_MAP.fullmatch(name):
                    Path(folder, name).unlink()
    (folders[0] / SERVER_MANIFEST).unlink()  # it lists the maps; the files were compared with it before
    return (
        "the visibility maps were left out, since PostgreSQL's incremental backups lack some of their changes: "
        "index-only scans are slow until VACUUM has made them anew"
    )


def _copying(program: str, scratch: Path) -> list[str]:
    """Return the option of pg_combinebackup by which unchanged files take the least time and room."""
    known = subprocess.run([program, "--help"], capture_output=True, text=True, check=False).stdout
    if "--link" in known:  # from PostgreSQL 18 on
        return ["--link"]
    source, target = scratch / "probe", scratch / "probe.copy"
    try:
        source.write_bytes(bytes(8192))
        with source.open("rb") as read, target.open("wb") as written:
            os.copy_file_range(read.fileno(), written.fileno(), 8192)
    except OSError:
        return []  # this file system has it not
    finally:
        source.unlink(missing_ok=True)
        target.unlink(missing_ok=True)
    return ["--copy-file-range"]


def _escaped(path: Path) -> str:
    return str(path).replace("=", "\\=")


def _check_room(chain: Sequence[Manifest], data: Path) -> None:
    """Raise `NoRoomToRestore` if the disk of `data` has too little room. Tablespaces elsewhere count as well."""
    needed = chain[0].size_bytes
    if len(chain) > 1:
        needed += sum(manifest.size_bytes for manifest in chain)
    there = next(path for path in (data, *data.parents) if path.exists())
    if (free := shutil.disk_usage(there).free) < needed:
        of = "" if len(chain) == 1 else f", to combine {len(chain)} backups"
        raise NoRoomToRestore(f"a restore to {data} needs {needed:,} bytes{of}; {free:,} are free there")


def _link(data: Path, spaces: Mapping[int, Path]) -> None:
    """Let the links of a data folder to its tablespaces lead to `spaces`."""
    for oid, path in spaces.items():
        link = data / _LINKS / str(oid)
        link.unlink(missing_ok=True)
        link.symlink_to(path)


def _own(folders: Sequence[Path]) -> None:
    """Give folders to the owner of the files in the first one, a data folder, and close them to others."""
    about = (folders[0] / "PG_VERSION").stat()
    for path in (*folders, folders[0] / SERVER_MANIFEST):
        if os.geteuid() == 0:
            os.chown(path, about.st_uid, about.st_gid)
    for folder in folders:
        folder.chmod(0o700)  # a server refuses to start with a wider mode


def _put(aside: Mapping[int, Path], spaces: Mapping[int, Path], data: Callable[[], None]) -> None:
    """Move the tablespaces to their new paths, and then the data folder. If that fails, remove them."""
    put: list[Path] = []
    try:
        for oid, path in spaces.items():
            put_folder(aside[oid], path)
            put.append(path)
        data()
    except BaseException:
        for path in put:
            shutil.rmtree(path, ignore_errors=True)
        raise


def _verified(data: Path, tools: Sequence[Tools], major: int) -> list[str]:
    """Let pg_verifybackup compare the files with the server's manifest. Returns a remark if it is not installed.

    Raises `Damaged` if they differ.
    """
    try:
        program = of_major(tools, major, "pg_verifybackup")
    except NoTool as error:
        return [f"the files were not compared with {SERVER_MANIFEST}: {error}"]
    argv = [program, "--no-parse-wal", "--quiet", str(data)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Damaged(f"pg_verifybackup: {done.stderr.strip()[-2000:]}")
    return []
