"""The journal's file: its tables and checksums. Opens it and checks it for damage.

Each record has a checksum, SQLite checks its own structure, and `wal_check` checks SQLite's log. A note in the file has
the numbers of the first and last entry, and `flush_counter` has the number of writes.
"""

import sqlite3
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from node.raft.errors import CannotOpen, DamagedData, LogStoreInUse
from node.raft.log.append_filter import Entry
from node.raft.log.flush_counter import FlushCounter
from node.raft.log.wal_check import lost_commits
from node.storage.quarantine import is_damage

_SCHEMA = """
CREATE TABLE IF NOT EXISTS entries
  (idx INTEGER PRIMARY KEY, term INTEGER NOT NULL, command BLOB NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID;
"""
_KEY = struct.Struct("<QQ")
_UINT64 = (1 << 64) - 1
_BEGINNING = b"SQLite format 3\0"
_VERSIONS = slice(18, 20)
_WAL_VERSIONS = b"\2\2"

EXTENT = "extent"
"""The name of the note with the number of flushes, and with the first and last index as of the latest flush."""


class Contents(NamedTuple):
    """The contents of a journal's file. left_behind: whether entries before the first one still have to be deleted."""

    entries: list[Entry]
    notes: dict[str, str]
    flushes: int
    left_behind: bool


def entry_crc(command: bytes, index: int, term: int) -> int:
    """Return the checksum of an entry."""
    return zlib.crc32(command, zlib.crc32(_KEY.pack(index & _UINT64, term & _UINT64)))


def note_crc(key: str, value: str) -> int:
    """Return the checksum of a note."""
    return zlib.crc32(f"{key}={value}".encode())


def connect(path: Path) -> sqlite3.Connection:
    """Open a connection that locks the file exclusively until it is closed. Raises `sqlite3.Error`."""
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0.5)
    try:
        db.execute("PRAGMA locking_mode=EXCLUSIVE")
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        db.execute("PRAGMA cache_size=-2048")
        db.executescript(_SCHEMA)
        db.execute("BEGIN IMMEDIATE")  # takes the lock, until the connection is closed
        db.execute("COMMIT")
    except sqlite3.Error:
        db.close()
        raise
    return db


def open_file(
    path: Path, counter: FlushCounter, connecting: Callable[[Path], sqlite3.Connection]
) -> tuple[sqlite3.Connection, Contents]:
    """Open or create the file, and read all of it.

    Raises DamagedData if it is damaged, LogStoreInUse if another process has it open, CannotOpen if it cannot be used
    for another reason.
    """
    try:
        new = not path.exists()
        if not new and counter.begun:
            _inspect(path)
        db = connecting(path)
        try:
            return db, _read(db, path, counter, new=new)
        except BaseException:
            db.close()
            raise
    except OSError as error:
        raise CannotOpen(f"the journal {path} cannot be read ({error.strerror})") from error
    except sqlite3.Error as error:
        if "locked" in str(error):
            raise LogStoreInUse(f"another process has {path} open: one data folder serves one node") from error
        if is_damage(error):
            raise DamagedData(f"the journal {path} cannot be read ({error})") from error
        raise CannotOpen(f"the journal {path} cannot be opened ({error})") from error


def _inspect(path: Path) -> None:
    """Check the files before SQLite opens them.

    Otherwise SQLite would drop unreadable parts of its log, and the journal would look intact after the next write.
    """
    with path.open("rb") as file:
        beginning = file.read(100)
    if not beginning.startswith(_BEGINNING) or beginning[_VERSIONS] != _WAL_VERSIONS:
        raise DamagedData(f"the journal {path} does not begin as an SQLite file in WAL mode does")
    if (lost := lost_commits(path.with_name(f"{path.name}-wal"))) > 0:
        raise DamagedData(f"the journal {path} is cut off: at least {lost} of its writes would be lost")


def _read(db: sqlite3.Connection, path: Path, counter: FlushCounter, *, new: bool) -> Contents:
    found = db.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if found != "ok":
        raise DamagedData(f"the journal {path} cannot be read ({' '.join(found.split())})")
    notes: dict[str, str] = {}
    for key, value, crc in db.execute("SELECT key, value, crc FROM meta"):
        if not isinstance(key, str) or not isinstance(value, str) or note_crc(key, value) != crc:
            raise DamagedData(f"the journal {path} has a wrong checksum for its {key}")
        notes[key] = value
    extent = notes.get(EXTENT)
    flushes, first, last = map(int, extent.split()) if extent else (counter.flushes or 0, 0, -1)
    left_behind = bool(db.execute("SELECT 1 FROM entries WHERE idx < ?", (first,)).fetchone())
    entries: list[Entry] = []
    query = "SELECT idx, term, command, crc FROM entries WHERE idx >= ? ORDER BY idx"
    for index, term, command, crc in db.execute(query, (first,)):
        if not isinstance(command, bytes) or not isinstance(term, int) or entry_crc(command, index, term) != crc:
            raise DamagedData(f"the journal {path} has a wrong checksum at entry {index}")
        entries.append((command, index, term))
    if entries and entries[-1][2] > int(notes.get("term") or 0):
        raise DamagedData(f"the journal {path} has entries of a later term than the term that it keeps")
    # An empty file without a flush counter is not damaged: a start was interrupted before its first flush.
    if not extent and (entries or left_behind or not (new or not counter.begun)):
        raise DamagedData(f"the journal {path} has lost the note of how far it reaches")
    if [entry[1] for entry in entries] != list(range(first, last + 1)):
        raise DamagedData(f"the journal {path} lacks entries: by its own note it has {first} to {last}")
    if flushes < (counter.flushes or 0):
        raise DamagedData(f"the journal {path} has lost its end: of {counter.flushes} writes, {flushes} are left")
    return Contents(entries, notes, flushes, left_behind)
