# ruff: noqa: N802, N803 - the library calls the journal by these names
"""The log, the term and the vote, on SQLite: what has been acknowledged is on the disk.

PySyncObj's own journal is never synced and has no checksums. This one collects what the library adds and writes
it in one transaction when it is told to `flush`: before an append is acknowledged, before a leader counts itself
for a commit (`setRaftCommitIndex`), and with every change of term or vote. The entries are in memory
as well, since the library reads them all the time; compaction bounds both.

Damage anywhere is found at the start: each record has a checksum, SQLite checks its own structure, `wal` its log, the
journal says how far it reaches, and `witness` how often it has been flushed.
"""

import sqlite3
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import overload

from pysyncobj.journal import Journal

from node.aside import is_damage
from node.raft.errors import CannotOpen, DamagedData, FolderInUse
from node.raft.trimming import Entry
from node.raft.wal import lost_commits
from node.raft.witness import Witness

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

CUT_ROWS = 32
"""So many entries that a snapshot has are taken out of the file with each flush: all of them at once took a sixth of a
second, in which nothing was committed."""

WITNESS = "flushes"
"""The file beside the journal that says how often it was flushed."""

EXTENT = "extent"
"""The note that says how many flushes there were, and the first and last entry as of then."""


def _crc(command: bytes, index: int, term: int) -> int:
    return zlib.crc32(command, zlib.crc32(_KEY.pack(index & _UINT64, term & _UINT64)))


def _meta_crc(key: str, value: str) -> int:
    return zlib.crc32(f"{key}={value}".encode())


class SqliteJournal(Journal):  # type: ignore[misc]  # the library ships no types
    """The library's journal, made durable. Used by one thread at a time.

    `leads` says whether this member is the leader; `on_truncate` is told of entries that are removed from the
    end. Raises DamagedData if what is there cannot be trusted, FolderInUse if another process has it open, CannotOpen
    if it cannot be used for another reason; later sqlite3.Error or OSError where the disk fails, after which nothing
    may be acknowledged any more.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.flushes = 0
        self._witness = Witness(path.with_name(WITNESS))
        self.bytes = 0
        self.leads: Callable[[], bool] = lambda: True
        self.on_truncate: Callable[[Sequence[Entry]], None] = lambda _entries: None
        self._entries: list[Entry] = []
        self._meta: dict[str, str] = {}
        self._added: list[Entry] = []
        self._changed: set[str] = set()
        self._left_behind = False
        """Whether the file may hold entries from before the first one."""
        self._open_transaction = False
        self._failed = False
        try:
            new = not path.exists()
            if not new and self._witness.begun:
                self._look()
            self._db = self._connect()
            try:
                self._read()
                self._check_extent(new)
            except BaseException:
                self._db.close()
                raise
        except OSError as error:
            raise CannotOpen(f"the journal {path} cannot be read ({error.strerror})") from error
        except sqlite3.Error as error:
            if "locked" in str(error):
                raise FolderInUse(f"another process has {path} open: one data folder serves one node") from error
            if is_damage(error):
                raise DamagedData(f"the journal {path} cannot be read ({error})") from error
            raise CannotOpen(f"the journal {path} cannot be opened ({error})") from error

    def _look(self) -> None:
        """Look at the files before SQLite opens them: it would drop what it cannot read of its log.

        With the next write, the journal would look whole.
        """
        with self.path.open("rb") as file:
            beginning = file.read(100)
        if not beginning.startswith(_BEGINNING) or beginning[_VERSIONS] != _WAL_VERSIONS:
            raise DamagedData(f"the journal {self.path} does not begin as it should")
        if (lost := lost_commits(self.path.with_name(f"{self.path.name}-wal"))) > 0:
            raise DamagedData(f"the journal {self.path} is broken off: at least {lost} of its writes would be lost")

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=0.5)
        try:
            db.execute("PRAGMA locking_mode=EXCLUSIVE")
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=FULL")
            db.execute("PRAGMA cache_size=-2048")
            db.executescript(_SCHEMA)
            db.execute("BEGIN IMMEDIATE")  # takes the lock for as long as the connection lives
            db.execute("COMMIT")
        except sqlite3.Error:
            db.close()
            raise
        return db

    def _read(self) -> None:
        found = self._db.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if found != "ok":
            raise DamagedData(f"the journal {self.path} cannot be read ({' '.join(found.split())})")
        for key, value, crc in self._db.execute("SELECT key, value, crc FROM meta"):
            if not isinstance(key, str) or not isinstance(value, str) or _meta_crc(key, value) != crc:
                raise DamagedData(f"the journal {self.path} has a wrong checksum for its {key}")
            self._meta[key] = value
        first = int(self.note(EXTENT).split()[1]) if self.note(EXTENT) else 0
        self._left_behind = bool(self._db.execute("SELECT 1 FROM entries WHERE idx < ?", (first,)).fetchone())
        query = "SELECT idx, term, command, crc FROM entries WHERE idx >= ? ORDER BY idx"
        for index, term, command, crc in self._db.execute(query, (first,)):
            if not isinstance(command, bytes) or not isinstance(term, int) or _crc(command, index, term) != crc:
                raise DamagedData(f"the journal {self.path} has a wrong checksum at entry {index}")
            self._entries.append((command, index, term))
            self.bytes += len(command)
        if self._entries and self._entries[-1][2] > self.getCurrentTerm():
            raise DamagedData(f"the journal {self.path} has entries of a later term than its own")

    def _check_extent(self, new: bool) -> None:
        """Whether all entries are there that were at the last flush, and that was the last there was."""
        before = self._witness.flushes or 0
        extent = self.note(EXTENT)
        if not extent:
            # A start that was interrupted before its first flush leaves an empty file, and no witness.
            if self._entries or not (new or not self._witness.begun):
                raise DamagedData(f"the journal {self.path} does not say how far it reaches")
            self.flushes = before
            return
        self.flushes, first, last = map(int, extent.split())
        if [entry[1] for entry in self._entries] != list(range(first, last + 1)):
            raise DamagedData(f"the journal {self.path} lacks entries: it says that it has {first} to {last}")
        if self.flushes < before:
            raise DamagedData(f"the journal {self.path} has lost its end: of {before} writes, {self.flushes} are left")

    # -- what the rest of the package asks

    @property
    def first_index(self) -> int:
        """The index of the first entry; there is always one once the library has begun."""
        return self._entries[0][1]

    @property
    def last_index(self) -> int:
        """The index of the last entry."""
        return self._entries[-1][1]

    def term_at(self, index: int) -> int:
        """The term of the entry at an index that is there."""
        return self._entries[index - self._entries[0][1]][2]

    def after(self, index: int) -> Sequence[Entry]:
        """The entries after an index."""
        return self._entries[max(0, index + 1 - self._entries[0][1]) :] if self._entries else ()

    def reaching_back(self, index: int, entries: int, size_bytes: int) -> int:
        """The first index of the stretch before `index` that has so many entries and bytes at most."""
        position = index - self.first_index
        lowest = max(0, position - entries)
        while position > lowest and size_bytes >= len(self._entries[position - 1][0]):
            position -= 1
            size_bytes -= len(self._entries[position][0])
        return self.first_index + position

    def note(self, key: str) -> str:
        """Something kept beside the log; "" if it was never set."""
        return self._meta.get(key, "")

    def set_note(self, key: str, value: str) -> None:
        """Keep something beside the log, with the next flush."""
        if self._meta.get(key) != value:
            self._meta[key] = value
            self._changed.add(key)

    def replace(self, entries: Sequence[Entry]) -> None:
        """Put these in the place of the whole log, at once."""
        self.clear()
        for entry in entries:
            self.add(*entry)
        self.flush()

    def flush(self) -> None:
        """Return when everything so far is on the disk."""
        if not (self._added or self._open_transaction or self._changed - {"commit"}):
            return
        with self._writing():
            self._write_added()
            if self._left_behind and self._entries:
                self._take_out()
            first, last = (self.first_index, self.last_index) if self._entries else (0, -1)
            self.set_note(EXTENT, f"{self.flushes + 1} {first} {last}")
            for key in self._changed:
                value = self._meta[key]
                self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?, ?)", (key, value, _meta_crc(key, value)))
            self._db.execute("COMMIT")
            self._open_transaction = False
            self._changed.clear()
            self.flushes += 1
            self._witness.write(self.flushes)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A transaction, which the next flush commits. If a write fails, it was the last one.

        SQLite rolls the transaction back by itself where the disk is full: what came after would be written without
        what was before it in the same transaction.
        """
        if self._failed:
            raise sqlite3.OperationalError("the journal could not be written before: it is not written any more")
        try:
            if not self._open_transaction:
                self._db.execute("BEGIN IMMEDIATE")
                self._open_transaction = True
            yield
        except (sqlite3.Error, OSError):
            self._failed = True
            raise

    def _write_added(self) -> None:
        rows = [(index, term, command, _crc(command, index, term)) for command, index, term in self._added]
        self._db.executemany("INSERT INTO entries VALUES (?, ?, ?, ?)", rows)
        self._added.clear()

    def _take_out(self) -> None:
        """Take some of the entries out of the file that a snapshot has."""
        taken = self._db.execute(
            "DELETE FROM entries WHERE idx IN (SELECT idx FROM entries WHERE idx < ? ORDER BY idx LIMIT ?)",
            (self.first_index, CUT_ROWS),
        ).rowcount
        self._left_behind = taken == CUT_ROWS

    # -- what the library asks

    def add(self, command: bytes, idx: int, term: int) -> None:
        """Append an entry."""
        entry = (command, idx, term)
        self._entries.append(entry)
        self._added.append(entry)
        self.bytes += len(command)

    def clear(self) -> None:
        """Forget all entries."""
        with self._writing():
            self._added.clear()
            self._entries.clear()
            self.bytes = 0
            self._left_behind = False
            self._db.execute("DELETE FROM entries")

    def deleteEntriesFrom(self, entryFrom: int) -> None:
        """Remove the entries from a position on: they are in conflict with the leader's."""
        removed = self._entries[entryFrom:]
        if not removed:
            return
        self.on_truncate(removed)
        with self._writing():
            self._write_added()
            self._db.execute("DELETE FROM entries WHERE idx >= ?", (removed[0][1],))
        del self._entries[entryFrom:]
        self.bytes -= sum(len(entry[0]) for entry in removed)

    def deleteEntriesTo(self, entryTo: int) -> None:
        """Forget the entries before a position: a snapshot has them. They leave the file with the next flushes."""
        removed = self._entries[:entryTo]
        if not removed:
            return
        with self._writing():
            self._write_added()
        self._left_behind = True
        del self._entries[:entryTo]
        self.bytes -= sum(len(entry[0]) for entry in removed)

    @overload
    def __getitem__(self, item: int) -> Entry: ...
    @overload
    def __getitem__(self, item: slice) -> list[Entry]: ...
    def __getitem__(self, item: int | slice) -> Entry | list[Entry]:
        return self._entries[item]

    def __len__(self) -> int:
        return len(self._entries)

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:
        """Called before anything is done about a new commit index. A leader has counted itself for it, so flush.

        A follower has not: its leader counted those that acknowledged.
        """
        if self.leads():
            self.flush()
        self.set_note("commit", str(raftCommitIndex))

    def getRaftCommitIndex(self) -> int:
        """The commit index as of the last write: it may lag, and is never ahead."""
        return min(int(self.note("commit") or 1), self.last_index)

    def setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None:
        """Keep the term and the vote: durable when it returns."""
        self.set_note("term", str(term))
        self.set_note("vote", votedForNodeId or "")
        self.flush()

    def getCurrentTerm(self) -> int:
        """The term that was kept."""
        return int(self.note("term") or 0)

    def getVotedForNodeId(self) -> str | None:
        """Who was voted for in that term."""
        return self.note("vote") or None

    def onOneSecondTimer(self) -> None:
        """Write the commit index if nothing else took it along: a member that starts alone then knows more."""
        if self._changed or self._left_behind:
            with self._writing():
                pass
            self.flush()

    def close(self) -> None:
        """Write what is left, unless a write has failed, and close."""
        try:
            if not self._failed:
                self.onOneSecondTimer()
                self.flush()
        finally:
            self._db.close()
            self._witness.close()

    def _destroy(self) -> None:
        """The library's end; the adapter closes."""
