"""Restores dumps of PostgreSQL databases into a scratch server, and compares them with what the dump saw."""

import re
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from tasks.backup.archive import CHUNK_BYTES
from tasks.backup.fingerprint import BEGIN, DatabaseContent, database_content, differences
from tasks.backup.manifest import FileEntry
from tasks.backup.sources.postgres_database import Database
from tasks.backup.sources.postgres_restore import DumpRestore, feed, restore_dump
from tasks.backup.sources.postgres_tools import PostgresFailed
from tasks.backup.sources.source import RestoreTarget
from tasks.drill.proving import CHECK_USER, DrillWork, Findings, run_checks
from tasks.drill.scratch_server import ScratchServer, server_tools

_CREATE: Final = re.compile(r"^CREATE DATABASE (?P<name>\"(?:[^\"]|\"\")+\"|\S+) WITH .*;$", re.MULTILINE)
_ENCODING: Final = re.compile(r" ENCODING = ('[^']+')")
_NO_ROLE: Final = re.compile(r"role \"(.+)\" does not exist$", re.MULTILINE)
_SUPERUSERS: Final = re.compile(
    r"^ALTER (?:EVENT TRIGGER|FOREIGN DATA WRAPPER) .+ OWNER TO (?P<role>\"(?:[^\"]|\"\")+\"|[^\s\";]+);$", re.MULTILINE
)
"""Finds who owns what only superusers may own. A forged line gains nothing: the scratch server is there for this dump
alone, and reaches nothing else."""

_ROUNDS_MAX: Final = 20
_TRIAL: Final = "rota_trial"
"""A database in which the schema of a dump is tried, to learn which roles it names."""


def prove_dumps(work: DrillWork, found: Findings) -> None:
    """Restore the databases of a backup by pg_dump, with their owners and grants, and compare them.

    Raises `Damaged` and `PostgresFailed` if they cannot be restored, `NoTool` if this member has no server that fits.
    """
    major = int(work.manifest.tools["pg_dump"].partition(".")[0])
    server = ScratchServer(work.scratch / "server", server_tools(work.access, major), work.watch)
    server.initialize()
    # A restore in one transaction locks every table at once. PostgreSQL's default has memory for 64 locks a connection.
    with server.running({"wal_level": "minimal", "max_locks_per_transaction": "2048"}):
        # A dump of the database `postgres` has to find no such database.
        server.ask("DROP DATABASE postgres")
        found.how.append(f"restored by pg_restore into a scratch server {server.tools.version}, with owners and grants")
        files = work.stored().manifest.files
        if len(files) > 1 and any(entry.database is None for entry in files):
            databases = _restore_server(work, server, files, found)
        else:
            databases = [_Dump(work, server, files, found).restored()]
        check_databases(work, server, databases, found)


def _restore_server(work: DrillWork, server: ScratchServer, files: Sequence[FileEntry], found: Findings) -> list[str]:
    """Restore the roles and databases of a server, and compare the databases. Returns their names."""
    target = RestoreTarget(server.database("template1").url, postgres_bin=str(server.tools.folder))
    done = work.restore(target)
    found.how += [remark for remark in done.remarks if remark not in done.manifest.remarks]
    names = []
    for entry in files:
        if entry.database is not None:
            names.append(entry.database.name)
            compare_tables(work, server.database(entry.database.name), server, [entry], found)
    return names


class _Dump:
    """The dump of one database, and the scratch server that it is restored into."""

    def __init__(self, work: DrillWork, server: ScratchServer, entries: Sequence[FileEntry], found: Findings) -> None:
        self._work = work
        self._server = server
        self._entries = entries
        self._entry = entries[0]
        self._found = found
        self._restore = server.tools.program("pg_restore")
        self._schema = work.scratch / "schema.sql"

    def restored(self) -> str:
        """Restore the database, and compare it. Returns its name."""
        name = self._made()
        self._make_roles()
        self._make_superusers()
        self._fill(name)
        self._compare(name)
        return name

    def _made(self) -> str:
        """Make the database as the dump says it was made. Returns its name."""
        argv = [self._restore, "--create", "--schema-only", "--no-tablespaces", "--no-subscriptions"]
        content = self._work.stored().content(self._entry)
        with self._programs().running([*argv, f"--file={self._schema}"], subprocess.PIPE, subprocess.DEVNULL) as reader:
            assert reader.stdin is not None
            while chunk := content.read(CHUNK_BYTES):
                reader.stdin.write(chunk)  # pg_restore ends when it has read the table of contents
        text = self._schema.read_text(errors="surrogateescape")
        made = _CREATE.search(text)
        if made is None:
            raise PostgresFailed(f"pg_restore: the dump {self._entry.name} does not say how its database was made")
        try:
            self._server.ask(made[0])
        except PostgresFailed as error:
            if "locale" not in str(error) and "collation" not in str(error):
                raise
            encoding = _ENCODING.search(made[0])
            self._found.how.append(f"this member lacks the locale of {made['name']}, and used C instead: {error}")
            self._server.ask(
                f"CREATE DATABASE {made['name']} TEMPLATE template0 LOCALE 'C'"
                + ("" if encoding is None else f" ENCODING {encoding[1]}")
            )
        return made["name"][1:-1].replace('""', '"') if made["name"].startswith('"') else made["name"]

    def _make_roles(self) -> None:
        """Make the roles that the dump names as owners, in grants and in policies: roles belong to the server."""
        if self._entry.database is not None:
            there = set(self._server.ask("SELECT rolname FROM pg_roles").splitlines())
            for role in self._entry.database.roles:
                if role not in there:
                    self._make_role(role)
            return
        self._server.ask(f"CREATE DATABASE {_TRIAL} TEMPLATE template0")
        made: set[str] = set()
        for _ in range(_ROUNDS_MAX):
            missing = set(_NO_ROLE.findall(self._tried())) - made
            if not missing:
                break
            for role in sorted(missing):
                self._make_role(role)
            made |= missing
        self._server.ask(f"DROP DATABASE {_TRIAL}")

    def _tried(self) -> str:
        """Restore the schema into a database for trials, whatever fails. Returns what pg_restore said.

        Not by psql: a dump is untrusted, and psql runs the programs that a script names.
        """
        argv = [self._restore, "--schema-only", "--no-tablespaces", "--no-subscriptions", "--no-password"]
        argv.append(f"--dbname={self._server.database(_TRIAL).url}")
        content = self._work.stored().content(self._entry)
        with tempfile.TemporaryFile(dir=self._work.scratch) as said:
            with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=said) as process:
                with suppress(BrokenPipeError):  # pg_restore ends when it has read the table of contents
                    feed(content, process.stdin)
                with suppress(BrokenPipeError):
                    process.communicate()
            said.seek(0)
            return said.read().decode(errors="replace")

    def _make_superusers(self) -> None:
        text = self._schema.read_text(errors="surrogateescape")
        there = set(self._server.ask("SELECT quote_ident(rolname) FROM pg_roles WHERE NOT rolsuper").splitlines())
        for role in sorted({found["role"] for found in _SUPERUSERS.finditer(text)} & there):
            self._server.ask(f"ALTER ROLE {role} SUPERUSER")

    def _make_role(self, role: str) -> None:
        quoted = role.replace('"', '""')
        self._server.ask(f'CREATE ROLE "{quoted}" NOLOGIN')

    def _fill(self, name: str) -> None:
        how = DumpRestore(overwrite=False, owners=True, tablespaces=False, subscriptions=False)
        restore_dump(self._work.stored(), self._entries, self._server.database(name), self._server.tools, how)

    def _compare(self, name: str) -> None:
        compare_tables(self._work, self._server.database(name), self._server, self._entries, self._found)

    def _programs(self) -> Database:
        return Database("", self._work.scratch, None, str(self._server.tools.folder))


def compare_tables(
    work: DrillWork, database: Database, server: ScratchServer, entries: Sequence[FileEntry], found: Findings
) -> None:
    """Count the tables of a database, and compare them with those in `entries`; if empty, they are only counted."""
    saw = DatabaseContent.of(entries)
    by_content = work.params.compare == "content" and any(table.content for table in saw.tables or ())
    with database.session(server.tools) as session:
        session.ask(BEGIN)
        now = database_content(session.ask, "content" if by_content else "rows")
    found.tables += len(now.tables or ())
    found.rows += sum(table.rows for table in now.tables or ())
    if not entries:
        return
    name = entries[0].name if len(entries) == 1 else f"{len(entries)} parts of one database"
    if saw.tables is None:
        found.how.append(f"{name}: tables were only counted: the manifest does not say what the dump saw of them")
        return
    found.how.append(
        f"{name}: {len(saw.tables)} tables compared with what the dump saw: "
        + ("their rows, and a hash of their content" if by_content else "their numbers of rows")
        + ("" if saw.catalog is None else "; also definitions, owners, grants and the positions of sequences")
    )
    if work.params.compare == "content" and not by_content:
        found.how.append(f"{name}: no content compared: the backup was made without `fingerprint: content`")
    found.problems += differences(saw, now)


def check_databases(work: DrillWork, server: ScratchServer, default: list[str], found: Findings) -> None:
    """Run the checks of the user in databases of a running server."""
    if not work.params.checks:
        return
    server.ask(f"CREATE ROLE {CHECK_USER} LOGIN; GRANT pg_read_all_data TO {CHECK_USER}")
    limits = {"default_transaction_read_only": "on", "statement_timeout": f"{work.left_s()}s"}

    def ask(database: str, sql: str) -> str:
        return server.database(database, CHECK_USER, **limits).ask(server.tools, sql)

    run_checks(work.params.checks, default, ask, found)
