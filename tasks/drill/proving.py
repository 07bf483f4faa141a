"""What a drill is given, and what it has found: differences by name, and what was compared."""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tasks.access import Access
from tasks.backup.encryption import BackupKeys
from tasks.backup.manifest import Manifest
from tasks.backup.objects import RestoreWatch, StoredObjects
from tasks.backup.restore import Restored, restore_manifest
from tasks.backup.sources.mariadb.server import MariadbFailed
from tasks.backup.sources.postgres_tools import PostgresFailed
from tasks.backup.sources.source import RestoreTarget
from tasks.drill.params import DrillCheck, DrillParams
from tasks.drill.watch import DrillWatch

CHECK_USER: Final = "rota_check"
"""The role that runs the checks of the user: it may read everything and change nothing."""

_SAID_MAX: Final = 300


@dataclass(frozen=True, kw_only=True)
class DrillWork:
    """One backup to restore on trial."""

    #: The backup.
    manifest: Manifest
    #: fsspec's options for its destination, with secrets resolved.
    options: dict[str, Any]
    #: The keys that open an encrypted backup; None: none are given.
    keys: BackupKeys | None
    #: The drill's params.
    params: DrillParams
    #: fsspec's options for the archive of the server's log, with secrets resolved.
    wal_options: dict[str, Any]
    #: An empty folder for the restored copy.
    scratch: Path
    #: The paths, hosts and programs that tasks may use on this member.
    access: Access
    #: Raises if the drill has to end.
    watch: DrillWatch
    #: Called with the number of bytes of content that were restored so far.
    progress: Callable[[int], None]

    def advance(self, done_bytes: int) -> None:
        """Report progress. Raises `DrillStopped` and `DrillBounds` if the drill has to end."""
        self.watch.check()
        self.progress(done_bytes)

    def stored(self) -> StoredObjects:
        """Return the objects of the backup. Reading them reports progress, and raises what `advance` raises."""
        return StoredObjects(self.manifest, self.options, RestoreWatch(self.advance), self.keys)

    def restore(self, target: RestoreTarget, backup: Manifest | None = None) -> Restored:
        """Restore `backup`, or the one that is proven. Raises what `advance` and `restore_manifest` raise."""
        return restore_manifest(backup or self.manifest, target, self.options, self.keys, RestoreWatch(self.advance))

    def left_s(self) -> int:
        """Return how long one query may take: what is left of the drill's time, in whole seconds, at least 1."""
        return max(1, int(self.watch.left_s()))


@dataclass
class Findings:
    """What a drill has found so far."""

    #: A sentence for each difference, and for each check that does not hold; empty: the backup is good.
    problems: list[str] = field(default_factory=list)
    #: A sentence for each thing that was done or compared, or could not be on this member.
    how: list[str] = field(default_factory=list)
    #: The number of tables that were read.
    tables: int = 0
    #: The number of rows in them.
    rows: int = 0
    #: The number of checks of the user that held.
    checks: int = 0


def run_checks(
    checks: Sequence[DrillCheck],
    default: Sequence[str],
    ask: Callable[[str, str], str],
    found: Findings,
    booleans: tuple[str, str] = ("t", "f"),
) -> None:
    """Run the checks of the user; those without a database in each of `default`. `ask` takes the database and the SQL.

    `booleans` are how the database writes true and false. A check that fails or differs is a problem in `found`.
    """
    for check in checks:
        for database in default if check.database is None else [check.database]:
            try:
                said = ask(database, check.sql)
            except (PostgresFailed, MariadbFailed, sqlite3.Error) as error:
                found.problems.append(f"the check {_short(check.sql)} fails: {_short(str(error))}")
                continue
            wanted = expected(check, booleans)
            if said == wanted:
                found.checks += 1
            else:
                found.problems.append(
                    f"the check {_short(check.sql)} gives {_short(said) or 'no row'}; expected: {wanted}"
                )


def expected(check: DrillCheck, booleans: tuple[str, str] = ("t", "f")) -> str:
    """Return the text that the database's client prints if the check holds; `booleans` are true and false.

    >>> expected(DrillCheck(sql="SELECT true", expect=True)), expected(DrillCheck(sql="SELECT 1, 'a'", expect="1|a"))
    ('t', '1|a')
    """
    if isinstance(check.expect, bool):
        return booleans[0] if check.expect else booleans[1]
    return str(check.expect).strip()


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SAID_MAX else f"{line[:_SAID_MAX]}..."
