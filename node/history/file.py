"""The file of finished runs: its tables, how it is opened, the checksum of each row, conditions that use its indexes.

A damaged file is set aside when it is opened, and replaced by a new one. The indexes let a list find a few runs among a
million without a scan.
"""

import logging
import sqlite3
import zlib
from pathlib import Path
from typing import Any, Final, NamedTuple

from node.storage.quarantine import is_damage, set_aside

COMMON: Final = "succeeded"
"""The most common final state. Runs in other states have an index, since a scan of a million runs took ten seconds."""


class RunPosition(NamedTuple):
    """A position in a list of runs that is sorted newest first, by creation time and then by id."""

    created_at_us: int
    run_id: str


def conditions(task: str | None, state: str | None, node: str | None) -> list[str]:
    """Return SQL conditions that make SQLite use the most selective index. A `+` excludes the index of a column.

    >>> conditions("a", "failed", None), conditions(None, "failed", "b")
    (['task = :task', '+state = :state'], ['state = :state', "state <> 'succeeded'", '+node = :node'])
    """
    wanted: list[str] = []
    if task is not None:
        wanted.append("task = :task")
    if state not in (None, COMMON):
        # SQLite uses the partial index only if the query has the very condition of the index.
        wanted += ["+state = :state"] if wanted else ["state = :state", f"state <> '{COMMON}'"]
    if node is not None:
        wanted.append("+node = :node" if wanted else "node = :node")
    if state == COMMON:
        wanted.append("+state = :state")
    return wanted


_log = logging.getLogger("rota.history")

_SCHEMA: Final = f"""
CREATE TABLE IF NOT EXISTS ended (
  entry INTEGER NOT NULL, run_id TEXT NOT NULL, task TEXT NOT NULL, state TEXT NOT NULL, node TEXT,
  created_at_us INTEGER NOT NULL, finished_at_us INTEGER NOT NULL, packed BLOB NOT NULL, crc INTEGER NOT NULL,
  PRIMARY KEY (entry, run_id)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS ended_by_run ON ended (run_id, entry);
CREATE INDEX IF NOT EXISTS ended_by_age ON ended (created_at_us, run_id);
CREATE INDEX IF NOT EXISTS ended_by_task ON ended (task, created_at_us, run_id);
CREATE INDEX IF NOT EXISTS ended_by_node ON ended (node, created_at_us, run_id);
CREATE INDEX IF NOT EXISTS ended_by_state ON ended (state, created_at_us, run_id) WHERE state <> '{COMMON}';
CREATE INDEX IF NOT EXISTS ended_by_finish ON ended (finished_at_us);
CREATE TABLE IF NOT EXISTS gap (
  after INTEGER NOT NULL, through INTEGER NOT NULL, noted_us INTEGER NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS written (entry INTEGER NOT NULL, crc INTEGER NOT NULL);
"""

_VERSION: Final = 3


class DamagedHistory(Exception):
    """The file of finished runs cannot be used."""


class WrongChecksum(sqlite3.DatabaseError):
    """A row whose content does not match its checksum."""


def open_or_replace(path: Path) -> tuple[sqlite3.Connection, int]:
    """Open the file, or a new one in place of a damaged one. Returns the connection, and the last index written.

    Raises `DamagedHistory`.
    """
    try:
        try:
            return _open(path)
        except sqlite3.Error as error:
            if not is_damage(error):
                raise
            kept = put_aside(path)
            _log.error("%s is damaged (%s): kept as %s; its runs are fetched from the other members", path, error, kept)
            return _open(path)
    except (sqlite3.Error, OSError) as error:
        raise DamagedHistory(
            f"{path} cannot be opened ({error}): check the free space on its disk, and its permissions"
        ) from error


def _open(path: Path) -> tuple[sqlite3.Connection, int]:
    db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    try:
        db.execute("PRAGMA auto_vacuum=INCREMENTAL")  # takes effect in a new file, so that deletions shrink it
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, _VERSION):
            raise DamagedHistory(f"{path} was written by another version of Rota (format {version})")
        db.executescript(_SCHEMA)
        if version == 0:
            db.execute("INSERT INTO written VALUES (0, ?)", (crc(0),))
            db.execute(f"PRAGMA user_version={_VERSION}")
        found = db.execute("SELECT entry, crc FROM written").fetchall()
        if not found:
            raise WrongChecksum("the row with the last written index is missing")
        [written] = verified_row(found[-1])
        return db, int(written)
    except BaseException:
        db.close()
        raise


def put_aside(path: Path) -> str:
    """Rename the file and its SQLite companions. Returns its new name. Raises `OSError`."""
    files = [path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm"), path]
    return set_aside(files)[-1].name


def crc(*values: object) -> int:
    """Return the checksum of a row of these values."""
    return zlib.crc32(b" ".join(value if isinstance(value, bytes) else str(value).encode() for value in values))


def verified_row(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Verify the checksum of a row, its last value, and return the row without it. Raises `WrongChecksum`."""
    *values, found = row
    if crc(*values) != found:
        raise WrongChecksum("a row differs from what was written")
    return tuple(values)
