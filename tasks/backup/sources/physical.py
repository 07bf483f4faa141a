"""Backs up a whole PostgreSQL server as its files, which pg_basebackup copies while the server runs.

With an archive of its write-ahead log (the kind `wal`), the server can be restored to any moment after the backup.
`pg_basebackup` writes a tar stream. The last member is its own manifest, with a checksum of each file, and the range of
the log that a restored server needs to start.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field

from tasks.backup.archive import CHUNK_BYTES, Content, Damaged, Writer
from tasks.backup.manifest import FileEntry, Manifest, WalRange
from tasks.backup.objects import NewObjects, StoredObjects
from tasks.backup.sources.postgres import PostgresServerSource, database_of
from tasks.backup.sources.postgres_tools import NoTool, PostgresFailed, choose, installed_tools
from tasks.backup.sources.restore_folder import restore
from tasks.backup.sources.source import RestoreTarget, SourceNotes, SourceWork
from tasks.backup.sources.tar import tarfile
from tasks.backup.sources.unpack import check_archive
from tasks.postgres.wal_position import parse_lsn

FILE = "base.tar.zst"

SERVER_MANIFEST: Final = "backup_manifest"
"""The name of pg_basebackup's own manifest in the archive."""

_SYSTEM = "SELECT system_identifier FROM pg_catalog.pg_control_system()"
_TABLESPACES = (
    "SELECT string_agg(spcname, ', ' ORDER BY spcname) FROM pg_catalog.pg_tablespace "
    "WHERE spcname NOT IN ('pg_default', 'pg_global')"
)
_MANIFEST_BYTES_MAX: Final = 256 << 20


class PhysicalSource(PostgresServerSource):
    """A whole PostgreSQL server, as its files. Needs a role with REPLICATION that may read `pg_control_system()`."""

    type: Literal["postgres_physical"] = Field(description="The type of the source")
    wal: Literal["included", "archived"] = Field(
        default="included",
        description="`included`: the backup holds the log that it needs to start, so it can be restored by itself; the "
        "server has to keep that log while it is copied (`wal_keep_size`). `archived`: it holds none, and can be "
        "restored once a task of kind `wal` has archived that part of the log",
    )

    def identity(self, work: SourceWork) -> dict[str, str]:
        """Return the server's identity facts (`tasks.source_identity`). Raises `NoTool`, `PostgresFailed`."""
        database = database_of(self, work)
        return {"type": self.type, "system": database.ask(database.tools(), _SYSTEM)}

    def dump(self, work: SourceWork, out: NewObjects) -> SourceNotes:
        """Write the server's files as a tar archive. Raises `NoTool`, `PostgresFailed`.

        A server with additional tablespaces is refused: each of them would need its own archive and restore path.
        """
        database = database_of(self, work)
        tools = database.tools()
        others = database.ask(tools, _TABLESPACES)
        if others:
            raise PostgresFailed(
                f"{self.url} has tablespaces outside its data folder ({others}), which a physical backup here does not "
                "copy: move their tables to pg_default, or back its databases up with type postgres"
            )
        argv = [tools.program("pg_basebackup"), "--pgdata=-", "--format=tar", "--checkpoint=fast", "--no-password"]
        argv += ["--wal-method=fetch" if self.wal == "included" else "--wal-method=none", f"--dbname={self.url}"]
        with out.writing(FILE) as writer, database.running(argv, subprocess.DEVNULL, subprocess.PIPE) as process:
            found = ServerManifest(writer)
            assert process.stdout is not None
            while chunk := process.stdout.read(CHUNK_BYTES):
                found.write(chunk)
        range_ = found.wal_range(database.ask(tools, _SYSTEM), included=self.wal == "included")
        return SourceNotes(tools={"pg_basebackup": tools.version}, manifest={"wal": range_})

    @classmethod
    def restore(cls, stored: StoredObjects, target: RestoreTarget) -> list[str]:
        """Unpack the archive as a data folder."""
        path = Path(target.name)
        restore(stored.only(), path, target.overwrite)
        about = (path / "PG_VERSION").stat()
        if os.geteuid() == 0:
            os.chown(path, about.st_uid, about.st_gid)
        path.chmod(0o700)  # a server refuses to start with a wider mode
        return _verified(path, int(stored.manifest.tools["pg_basebackup"].partition(".")[0]))

    @classmethod
    def verify(cls, content: Content, entry: FileEntry, manifest: Manifest, scratch: Path) -> list[str]:
        """Read the whole archive, member by member."""
        check_archive(content)
        return []


def _verified(data: Path, major: int) -> list[str]:
    """Let pg_verifybackup compare the files with the server's manifest. Returns a remark if it is not installed.

    Raises `Damaged` if they differ.
    """
    try:
        tools = choose(installed_tools(os.environ.get("ROTA_POSTGRES_BIN"), os.environ), major)
    except NoTool as error:
        return [f"the files were not compared with {SERVER_MANIFEST}: {error}"]
    argv = [tools.program("pg_verifybackup"), "--no-parse-wal", "--quiet", str(data)]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return [f"the files were not compared with {SERVER_MANIFEST}: {argv[0]} is not there"]
    if done.returncode:
        raise Damaged(f"pg_verifybackup: {done.stderr.strip()[-2000:]}")
    return []


class ServerManifest:
    """Passes a tar stream on to `out`, and keeps a copy of the member that is pg_basebackup's manifest."""

    def __init__(self, out: Writer) -> None:
        self._out = out
        self._rest = b""
        """The received part of an incomplete header."""
        self._skip = 0
        self._wanted = 0
        self._content = bytearray()

    def write(self, chunk: bytes) -> None:
        """Pass the next piece of the stream on."""
        self._out.write(chunk)
        if self._skip >= len(chunk):
            self._skip -= len(chunk)
            return
        view = self._rest + chunk[self._skip :]
        at = self._skip = 0
        while at < len(view):
            if self._wanted:
                taken = view[at : at + self._wanted]
                self._content += taken
                self._wanted -= len(taken)
                at += len(taken)
                if not self._wanted:
                    at += -len(self._content) % tarfile.BLOCKSIZE
                continue
            if at + tarfile.BLOCKSIZE > len(view):
                break
            at = self._header(view[at : at + tarfile.BLOCKSIZE], at + tarfile.BLOCKSIZE)
        self._rest = view[at:]
        self._skip = max(0, at - len(view))

    def _header(self, block: bytes, at: int) -> int:
        """Read a member's header; the member's content begins at `at`. Returns the offset of the next bytes to read."""
        if not block.strip(b"\0"):
            return at  # blocks of zeros are the end of the archive
        try:
            member = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.TarError as error:
            raise PostgresFailed(f"pg_basebackup wrote what is no tar archive: {error}") from None
        if member.name == SERVER_MANIFEST:
            if member.size > _MANIFEST_BYTES_MAX:
                raise PostgresFailed(f"pg_basebackup's manifest has {member.size} bytes")
            self._wanted = member.size
            return at
        return int(at + member.size + -member.size % tarfile.BLOCKSIZE)

    def wal_range(self, system: str, *, included: bool) -> WalRange:
        """Return the range of the WAL that the backup needs. Raises `PostgresFailed` if it had no valid manifest."""
        try:
            told: dict[str, Any] = json.loads(bytes(self._content))
            last = told["WAL-Ranges"][-1]
            return WalRange(
                system=system,
                timeline=last["Timeline"],
                start=parse_lsn(told["WAL-Ranges"][0]["Start-LSN"]),
                end=parse_lsn(last["End-LSN"]),
                included=included,
            )
        except (ValueError, LookupError) as error:
            raise PostgresFailed(
                f"pg_basebackup's manifest does not say which part of the log the backup needs ({error!r})"
            ) from None
