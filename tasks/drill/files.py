"""Restores folders and SQLite databases on trial, and reads what was restored."""

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from tasks.backup.sources.source import RestoreTarget
from tasks.backup.sources.tar import archive_in, tarfile
from tasks.backup.sources.unpack import check_index
from tasks.backup.tree.packs import number_of
from tasks.backup.tree.read_tree import ROOT
from tasks.drill.proving import DrillWork, Findings, run_checks

_OPERATIONS_A_STEP: Final = 10_000
_FINDINGS_MAX: Final = 10
_NOT_HERE: Final = ("no such collation sequence", "no such module", "no such function", "unknown function")
_MAY: Final = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
"""What a check of the user may do: read. It may attach no other file."""


def prove_sqlite(work: DrillWork, found: Findings) -> None:
    """Restore the database file, let SQLite check it, count its tables and run the checks of the user.

    Raises `Damaged` if it does not restore.
    """
    path = work.scratch / "restored.sqlite"
    work.restore(RestoreTarget(str(path)))
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)) as database:
        with _bounded(database, work):
            _integrity(database, found)
            for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
                try:
                    (rows,) = database.execute(f'SELECT count(*) FROM "{_quoted(name)}"').fetchone()
                except sqlite3.OperationalError as error:
                    if not str(error).startswith(_NOT_HERE):
                        raise
                    found.how.append(f"table {name} was not counted: {error}")
                    continue
                found.tables += 1
                found.rows += rows
        database.set_authorizer(lambda action, *about: sqlite3.SQLITE_OK if action in _MAY else sqlite3.SQLITE_DENY)

        def ask(name: str, sql: str) -> str:
            with _bounded(database, work):
                rows = database.execute(sql).fetchall()
            return "\n".join("|".join("" if value is None else str(value) for value in row) for row in rows)

        run_checks(work.params.checks, ["main"], ask, found, booleans=("1", "0"))


def _quoted(name: str) -> str:
    return name.replace('"', '""')


@contextmanager
def _bounded(database: sqlite3.Connection, work: DrillWork) -> Iterator[None]:
    """Let `watch` interrupt the queries of the block. Raises `DrillStopped` and `DrillBounds`."""
    with work.watch.ending(database.interrupt):
        try:
            yield
        except sqlite3.OperationalError:
            work.watch.check()
            raise


def _integrity(database: sqlite3.Connection, found: Findings) -> None:
    try:
        said = [line for (line,) in database.execute(f"PRAGMA integrity_check({_FINDINGS_MAX})")]
    except sqlite3.OperationalError as error:
        if not str(error).startswith(_NOT_HERE):
            raise
        found.how.append(f"not wholly checked by SQLite: {error}")
        return
    if said == ["ok"]:
        found.how.append("restored, and checked by SQLite's integrity_check")
    else:
        found.problems += [f"SQLite's integrity_check: {line}" for line in said]


def prove_folder(work: DrillWork, found: Findings) -> None:
    """Restore the folder, and compare each entry with the archive. Raises `Damaged` if it does not restore."""
    if work.params.checks:
        found.problems.append("`checks` are queries, and the backup of a folder has no database")
    target = work.scratch / "restored"
    work.restore(RestoreTarget(str(target)))
    entries = 0
    stored = work.stored()
    for entry in stored.manifest.files:
        content = stored.content(entry)
        if number_of(entry.plain_name) is None:
            check_index(content, entry.name)
            continue
        with archive_in(content) as archive:
            for member in archive:
                entries += 1
                if difference := _difference(target, member):
                    found.problems.append(difference)
        content.drain()
    found.how.append(f"restored, and {entries} entries compared with the archive's list: type, size and mode")
    if remarks := stored.manifest.remarks:
        found.how.append(f"not compared with the source: {len(remarks)} remarks are in the manifest")


def prove_stream(work: DrillWork, found: Findings) -> None:
    """Restore what a program wrote as a file, of whose format nothing is known.

    Raises `Damaged` if it does not restore.
    """
    if work.params.checks:
        found.problems.append("`checks` are queries, and what a program wrote has no database")
    path = work.scratch / "restored"
    work.restore(RestoreTarget(str(path)))
    found.how.append(f"restored as a file of {path.stat().st_size:,} bytes; its format is not known")


def _difference(target: Path, member: "tarfile.TarInfo") -> str:
    """Say in what an entry differs from its member in the archive; "" if it does not."""
    path = target if member.name == ROOT else target / member.name
    try:
        about = os.lstat(path)
    except FileNotFoundError:
        return f"{member.name} was not restored"
    kinds = ((member.isdir(), stat.S_ISDIR), (member.issym(), stat.S_ISLNK), (member.isreg(), stat.S_ISREG))
    if any(is_it and not check(about.st_mode) for is_it, check in kinds):
        return f"{member.name} was restored as something else"
    if member.isreg() and about.st_size != member.size:
        return f"{member.name} has {about.st_size} bytes; the archive has {member.size}"
    if not member.issym() and stat.S_IMODE(about.st_mode) != member.mode & 0o7777:
        return f"{member.name} has the mode {stat.S_IMODE(about.st_mode):o}; the archive has {member.mode:o}"
    return ""
