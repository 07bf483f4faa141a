"""Backs up PostgreSQL databases by pg_dump, in its custom format and through pipes. Restores them by pg_restore.

Roles and tablespaces belong to the server, not to a database: they are in a backup of several databases only.
"""

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, model_validator

from tasks.access import Access
from tasks.backup.archive import Content
from tasks.backup.fingerprint import Fingerprint
from tasks.backup.manifest import FileEntry, Manifest
from tasks.backup.objects import NewObjects, StoredObjects
from tasks.backup.scratch import private_folder
from tasks.backup.sources.postgres_database import Database
from tasks.backup.sources.postgres_dump import DatabaseDump, dump_database
from tasks.backup.sources.postgres_readable import check_all_readable
from tasks.backup.sources.postgres_restore import IDENTITY, SYSTEM, feed, restore_dumps
from tasks.backup.sources.postgres_server import ServerDump, dump_server
from tasks.backup.sources.postgres_tools import NoTool, PostgresFailed, Tools, choose, installed_tools
from tasks.backup.sources.source import RestoreTarget, SourceNotes, SourceWork
from tasks.needs import Needs
from tasks.postgres.connection import PostgresConnection
from tasks.reach import Reach

POSTGRES_TOOLS: Final = "tasks.backup.sources.postgres_tools:programs"
"""The function that finds PostgreSQL's programs (`tasks.needs.Tools`)."""

_SERVER_TOOLS: Final = "tasks.backup.sources.postgres_tools:programs_of_server"

_SEVERAL: Final = "several of the server"
"""The fact `database` in the identity of a backup of several databases."""

DatabaseName = Annotated[str, Field(min_length=1, max_length=63)]


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
    """A database on a PostgreSQL server that the member can reach, or several databases and the server's roles."""

    type: Literal["postgres"] = Field(description="The type of the source")
    databases: Literal["all"] | Annotated[list[DatabaseName], Field(min_length=1, max_length=1000)] | None = Field(
        default=None,
        description="`all` databases of the server that take connections and are no templates, or those with these "
        "names, each as an object of its own, and the server's roles; null: the one that the URL names",
        examples=["all", ["orders", "customers"]],
    )
    parallel: int | None = Field(
        default=None,
        ge=1,
        le=16,
        description="With `databases`: how many are dumped at once, the largest first; null: 2. For one database: how "
        "many programs dump rows of its tables at once, under one snapshot, each into an object of its own; null: 1",
    )
    role_hashes: bool = Field(
        default=False,
        description="With `databases`: back up the hashes of the roles' passwords, too, which needs a superuser",
    )
    fingerprint: Fingerprint = Field(
        default="rows",
        description="What the manifest says of the database, as the dump saw it, for drills to compare: `rows`: how "
        "many rows each table has, where sequences stand, and a hash of each definition, owner and grant; `content`: "
        "a hash of each table's content too; `none`: nothing",
    )

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

    def needs(self) -> Needs:
        """Return the needs of `PostgresServerSource`, and with `databases` what pg_dumpall needs."""
        needs = super().needs()
        return needs if self.databases is None else replace(needs, tools=(*needs.tools, _SERVER_TOOLS))

    def identity(self, work: SourceWork) -> dict[str, str]:
        """Return the source's identity facts (`tasks.source_identity`). Raises `NoTool`, `PostgresFailed`."""
        database = database_of(self, work)
        facts = database_identity(database, database.tools())
        return facts if self.databases is None else facts | {"database": _SEVERAL}

    def dump(self, work: SourceWork, out: NewObjects) -> SourceNotes:
        """Write each database as an archive in pg_dump's custom format, or as several.

        Raises `NoTool`, `PostgresFailed`, `NotReadable`, and `NoBackupSource` if a database does not exist.
        """
        database = database_of(self, work)
        tools = database.tools()
        notes = {"pg_dump": tools.version}
        if self.databases is not None:
            wanted = ServerDump(self.databases, self.parallel or 2, self.role_hashes, self.fingerprint)
            remarks = dump_server(database, tools, wanted, out, work.step, work.now)
            return SourceNotes(tools=notes, remarks=tuple(remarks))
        check_all_readable(database, tools)
        how = DatabaseDump(fingerprint=self.fingerprint, pipes=self.parallel or 1)
        dump_database(database, tools, out, how, work.step, work.now)
        return SourceNotes(tools=notes)

    @classmethod
    def restore(cls, stored: StoredObjects, target: RestoreTarget) -> list[str]:
        """Restore each database in one transaction."""
        with private_folder("rota-restore-") as scratch:
            return restore_dumps(stored, target, scratch)

    @classmethod
    def verify(cls, content: Content, entry: FileEntry, manifest: Manifest, scratch: Path) -> list[str]:
        """Let pg_restore read an archive's table of contents. Returns a remark if it is not installed."""
        if entry.database is None and len(manifest.files) > 1:
            content.drain()
            return []
        remark = check_dump(content, scratch, manifest.tools["pg_dump"])
        return [] if remark is None else [remark]


def database_of(source: PostgresConnection, work: SourceWork) -> Database:
    """Return the database of a source, with the attempt's password and programs."""
    password = None if source.password is None else work.secret(source.password)
    return Database(source.url, work.scratch, password, work.access.postgres_bin)


def database_identity(database: Database, tools: Tools) -> dict[str, str]:
    """Return the database's identity facts (`tasks.source_identity`). Raises `PostgresFailed`.

    The system identifier identifies the data, not the machine: a standby has the same one as its primary. Other servers
    that speak PostgreSQL's protocol may have no system identifier.
    """
    facts = {"type": "postgres", "database": database.ask(tools, IDENTITY)}
    try:
        return facts | {"system": database.ask(tools, SYSTEM)}
    except PostgresFailed:
        return facts


def check_dump(content: Content, scratch: Path, dumped_with: str) -> str | None:
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
            feed(content, process.stdin)
        except BrokenPipeError:
            # pg_restore has read the table of contents and ended. Read the rest for the checksums.
            content.drain()
    return None
