"""Backs up a PostgreSQL database by pg_dump, in its custom format and through a pipe. Restores it by pg_restore.

PostgreSQL's programs get a password in a file that only this user can read (PGPASSFILE), never on a command line. Roles
and tablespaces belong to the server, not to a database, and are not in the backup.
"""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, Literal

from pydantic import Field, model_validator

from tasks.access import Access
from tasks.backup.archive import CHUNK_BYTES, Content, TargetExists, Writer
from tasks.backup.manifest import FileEntry, Manifest
from tasks.backup.objects import NewObjects, StoredObjects
from tasks.backup.sources.postgres_tools import NoTool, PostgresFailed, Tools, choose, installed_tools
from tasks.backup.sources.source import RestoreTarget, SourceNotes, SourceWork
from tasks.needs import Needs
from tasks.postgres.connection import PostgresConnection
from tasks.reach import Reach

FILE = "postgres.dump.zst"

POSTGRES_TOOLS: Final = "tasks.backup.sources.postgres_tools:programs"
"""The function that finds PostgreSQL's programs (`tasks.needs.Tools`)."""

_USER_RELATIONS = """SELECT count(*) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_(toast|temp)'"""


_DATABASE = "SELECT datname || ' (oid ' || oid || ')' FROM pg_catalog.pg_database WHERE datname = current_database()"
_SYSTEM = "SELECT system_identifier FROM pg_catalog.pg_control_system()"


@dataclass(frozen=True)
class Database:
    """A database, and how to reach it. `scratch` is for the password file and the programs' messages.

    `bin` is the folder of PostgreSQL's programs; None: ROTA_POSTGRES_BIN, else the PATH and the usual folders.
    """

    url: str
    scratch: Path
    password: str | None = None
    bin: str | None = None

    def _environ(self) -> dict[str, str]:
        environ = dict(os.environ)
        if self.password is not None:
            environ["PGPASSFILE"] = str(_password_file(self.scratch, self.password))
            environ.pop("PGPASSWORD", None)
        return environ

    def tools(self, at_least: int = 0) -> Tools:
        """Find programs that fit the server and an archive of version `at_least`. Raises `NoTool`, `PostgresFailed`."""
        folder = self.bin or os.environ.get("ROTA_POSTGRES_BIN")
        here = installed_tools(folder, os.environ)
        if not here:
            where = f"in {folder}, which ROTA_POSTGRES_BIN names" if folder else "on this machine"
            raise NoTool(f"pg_dump, pg_restore and psql are not installed {where}")
        return choose(here, max(at_least, int(self.ask(here[0], "SHOW server_version_num")) // 10_000))

    def ask(self, tools: Tools, query: str) -> str:
        """Return the output of psql for `query`. Raises `PostgresFailed`."""
        argv = [tools.program("psql"), "-XAtqw", "-v", "ON_ERROR_STOP=1", "-d", self.url, "-c", query]
        done = subprocess.run(argv, capture_output=True, text=True, env=self._environ(), check=False)
        if done.returncode != 0:
            raise PostgresFailed(f"psql: {done.stderr.strip()[-2000:].removeprefix('psql: ')}")
        return done.stdout.strip()

    @contextmanager
    def running(self, argv: list[str], stdin: int, stdout: int) -> "Iterator[subprocess.Popen[bytes]]":
        """Run a program during the block, and wait for its end. It is killed if the block raises.

        Raises `PostgresFailed` if its exit code is not 0.
        """
        messages = self.scratch / f"{Path(argv[0]).name}.stderr"
        with messages.open("w+b") as stderr:
            process = subprocess.Popen(argv, stdin=stdin, stdout=stdout, stderr=stderr, env=self._environ())
            try:
                yield process
                if process.stdin is not None:
                    process.stdin.close()
                code = process.wait()
            except BrokenPipeError:
                # The program ended before it had read all its input. Its messages will say why.
                code = process.wait()
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
                for pipe in (process.stdin, process.stdout):
                    _close(pipe)
            if code != 0:
                name = Path(argv[0]).name
                said = _tail(stderr).removeprefix(f"{name}: ")
                raise PostgresFailed(f"{name} ended with exit code {code}: {said}")


class PostgresServerSource(PostgresConnection):
    """A source on a PostgreSQL server, which the member reaches over the network or a socket."""

    def is_local(self) -> bool:
        """Return False: all members reach the same server."""
        return False

    def reach(self) -> Reach:
        """Return the addresses of the servers that the URL names."""
        return Reach("source", "source", self.url, addresses=self.addresses())

    def needs(self) -> Needs:
        """Return PostgreSQL's programs, the URL's file of root certificates, and the credential files of libpq."""
        certificate = self.certificate("source")
        return Needs(reaches=certificate, tools=(POSTGRES_TOOLS,), own_credentials=self.own_credentials)

    def check_readable(self, access: Access, node: str) -> None:
        """Raise `AccessRefused` if tasks may not reach the servers."""
        self.check(access)


class PostgresSource(PostgresServerSource):
    """A database on a PostgreSQL server that the member can reach."""

    type: Literal["postgres"] = Field(description="The type of the source")

    @model_validator(mode="before")
    @classmethod
    def _no_programs(cls, given: Any) -> Any:
        if not isinstance(given, dict) or "bin" not in given:
            return given
        if given["bin"] is not None:
            raise ValueError(
                "`bin` is no longer a param, because the node decides which programs run. Leave it out, and set "
                "ROTA_POSTGRES_BIN on the node to the folder of pg_dump, psql and pg_restore"
            )
        return {name: value for name, value in given.items() if name != "bin"}

    def identity(self, work: SourceWork) -> dict[str, str]:
        """Return the database's identity facts (`tasks.source_identity`). Raises `NoTool`, `PostgresFailed`."""
        database = database_of(self, work)
        return identity(database, database.tools())

    def dump(self, work: SourceWork, out: NewObjects) -> SourceNotes:
        """Write an archive in pg_dump's custom format. Raises `NoTool`, `PostgresFailed`."""
        database = database_of(self, work)
        found = database.tools()
        with out.writing(FILE) as writer:
            dump(database, found, writer)
        return SourceNotes(tools={"pg_dump": found.version})

    @classmethod
    def restore(cls, stored: StoredObjects, target: RestoreTarget) -> list[str]:
        """Restore the archive into a database, in one transaction."""
        with tempfile.TemporaryDirectory(prefix="rota-restore-") as scratch:
            database = Database(target.name, Path(scratch), target.password)
            restore(stored.only(), database, stored.manifest.tools["pg_dump"], target.overwrite)
        return []

    @classmethod
    def verify(cls, content: Content, entry: FileEntry, manifest: Manifest, scratch: Path) -> list[str]:
        """Let pg_restore read the table of contents. Returns a remark if it is not installed."""
        remark = check(content, scratch, manifest.tools["pg_dump"])
        return [] if remark is None else [remark]


def database_of(source: PostgresConnection, work: SourceWork) -> Database:
    """Return the database of a source, with the attempt's password and programs."""
    password = None if source.password is None else work.secret(source.password)
    return Database(source.url, work.scratch, password, work.access.postgres_bin)


def _close(pipe: IO[bytes] | None) -> None:
    if pipe is None:
        return
    try:
        pipe.close()
    except BrokenPipeError:
        # The program has ended and reads no more. Its exit code reports the failure.
        return


def _tail(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 2000))
    return file.read().decode(errors="replace").strip()


def _password_file(scratch: Path, password: str) -> Path:
    if "\n" in password:
        raise PostgresFailed("the password contains a line break, which a password file cannot hold")
    escaped = password.replace("\\", "\\\\").replace(":", "\\:")
    path = scratch / "pgpass"
    if not path.exists():
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"*:*:*:*:{escaped}\n")
    return path


def identity(database: Database, tools: Tools) -> dict[str, str]:
    """Return the database's identity facts (`tasks.source_identity`). Raises `PostgresFailed`.

    The system identifier identifies the data, not the machine: a standby has the same one as its primary. Other servers
    that speak PostgreSQL's protocol may have no system identifier.
    """
    facts = {"type": "postgres", "database": database.ask(tools, _DATABASE)}
    try:
        return facts | {"system": database.ask(tools, _SYSTEM)}
    except PostgresFailed:
        return facts


def dump(database: Database, tools: Tools, out: Writer) -> None:
    """Write the database as an archive in pg_dump's custom format. Raises `PostgresFailed`."""
    # Let pg_dump not compress, since zstd compresses its output.
    argv = [tools.program("pg_dump"), "--format=custom", "--compress=0", "--no-password", f"--dbname={database.url}"]
    with database.running(argv, subprocess.DEVNULL, subprocess.PIPE) as process:
        assert process.stdout is not None
        while chunk := process.stdout.read(CHUNK_BYTES):
            out.write(chunk)


def restore(content: Content, database: Database, dumped_with: str, overwrite: bool) -> None:
    """Restore the archive into a database in one transaction. The restoring user owns the objects.

    `overwrite` first drops the objects that are in the archive. Raises `TargetExists` if the database has tables and
    `overwrite` is not set; `PostgresFailed`; `Damaged`.
    """
    tools = database.tools(at_least=int(dumped_with.partition(".")[0]))
    if not overwrite and int(database.ask(tools, _USER_RELATIONS)) > 0:
        raise TargetExists(f"{database.url} is not empty: name another database, or give --overwrite")
    argv = [tools.program("pg_restore"), "--single-transaction", "--no-owner", "--no-privileges", "--no-password"]
    argv += ["--clean", "--if-exists"] if overwrite else []
    with database.running([*argv, f"--dbname={database.url}"], subprocess.PIPE, subprocess.DEVNULL) as process:
        _feed(content, process)


def _feed(content: Content, process: "subprocess.Popen[bytes]") -> None:
    assert process.stdin is not None
    while chunk := content.read(CHUNK_BYTES):
        process.stdin.write(chunk)


def check(content: Content, scratch: Path, dumped_with: str) -> str | None:
    """Read the whole archive, and let pg_restore list it. Returns a remark if no pg_restore fits; else None.

    Raises `Damaged`, and `PostgresFailed` if pg_restore refuses the archive.
    """
    try:
        tools = choose(
            installed_tools(os.environ.get("ROTA_POSTGRES_BIN"), os.environ), int(dumped_with.partition(".")[0])
        )
    except NoTool as error:
        content.drain()
        return str(error)
    listing = Database("", scratch)
    with listing.running([tools.program("pg_restore"), "--list"], subprocess.PIPE, subprocess.DEVNULL) as process:
        try:
            _feed(content, process)
        except BrokenPipeError:
            # pg_restore has read the table of contents and ended. Read the rest for the checksums.
            content.drain()
    return None
