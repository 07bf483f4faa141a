# ruff: noqa: N802, N803 - the library calls the journal by these names
"""The log, the term and the vote, on SQLite: what has been acknowledged is on the disk.

PySyncObj's own journal is never synced and has no checksums. This one collects what the library adds and writes
it in one transaction when it is told to `flush`: before an append is acknowledged, before a leader counts itself
for a commit (`setRaftCommitIndex`), and with every change of term or vote. The entries are in memory
as well, since the library reads them all the time; compaction bounds both.
"""

import sqlite3
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import overload

from pysyncobj.journal import Journal

from node.raft.errors import FolderInUse, damaged
from node.raft.trimming import Entry
from node.raft.wal import lost_commits

_SCHEMA = """
CREATE TABLE IF NOT EXISTS entries
  (idx INTEGER PRIMARY KEY, term INTEGER NOT NULL, command BLOB NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID;
"""
_KEY = struct.Struct("<QQ")


def _crc(command: bytes, index: int, term: int) -> int:
    return zlib.crc32(command, zlib.crc32(_KEY.pack(index, term)))


def _meta_crc(key: str, value: str) -> int:
    return zlib.crc32(f"{key}={value}".encode())


class SqliteJournal(Journal):  # type: ignore[misc]  # the library ships no types
    """The library's journal, made durable. Used by one thread at a time.

    `leads` says whether this member is the leader; `on_truncate` is told of entries that are removed from the
    end. Raises DamagedData if what is there cannot
    be trusted, FolderInUse if another process has it open; sqlite3.Error where the disk fails, after which
    nothing may be acknowledged any more.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bytes = 0
        self.leads: Callable[[], bool] = lambda: True
        self.on_truncate: Callable[[Sequence[Entry]], None] = lambda _entries: None
        self._entries: list[Entry] = []
        self._meta: dict[str, str] = {}
        self._added: list[Entry] = []
        self._changed: set[str] = set()
        self._open_transaction = False
        if (lost := lost_commits(path.with_name(f"{path.name}-wal"))) > 0:
            # Before it is opened: SQLite would drop them, and with the next write the file would look whole.
            raise damaged(f"the journal {path} is broken off: at least {lost} of its writes would be lost")
        try:
            self._db = self._connect()
            self._read()
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise FolderInUse(f"another process has {path} open: one data folder serves one node") from error
            raise damaged(f"the journal {path} cannot be opened ({error})") from error
        except sqlite3.DatabaseError as error:
            raise damaged(f"the journal {path} cannot be read ({error})") from error

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
        for key, value, crc in self._db.execute("SELECT key, value, crc FROM meta"):
            if _meta_crc(key, value) != crc:
                raise damaged(f"the journal {self.path} has a wrong checksum for its {key}")
            self._meta[key] = value
        for index, term, command, crc in self._db.execute("SELECT idx, term, command, crc FROM entries ORDER BY idx"):
            if not isinstance(command, bytes) or _crc(command, index, term) != crc:
                raise damaged(f"the journal {self.path} has a wrong checksum at entry {index}")
            if self._entries and index != self._entries[-1][1] + 1:
                raise damaged(f"the journal {self.path} lacks entries before {index}")
            self._entries.append((command, index, term))
            self.bytes += len(command)
        if self._entries and self._entries[-1][2] > self.getCurrentTerm():
            raise damaged(f"the journal {self.path} has entries of a later term than its own")

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
        self._begin()
        self._write_added()
        for key in self._changed:
            value = self._meta[key]
            self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?, ?)", (key, value, _meta_crc(key, value)))
        self._db.execute("COMMIT")
        self._open_transaction = False
        self._changed.clear()

    def _begin(self) -> None:
        if not self._open_transaction:
            self._db.execute("BEGIN IMMEDIATE")
            self._open_transaction = True

    def _write_added(self) -> None:
        rows = [(index, term, command, _crc(command, index, term)) for command, index, term in self._added]
        self._db.executemany("INSERT INTO entries VALUES (?, ?, ?, ?)", rows)
        self._added.clear()

    # -- what the library asks

    def add(self, command: bytes, idx: int, term: int) -> None:
        """Append an entry."""
        entry = (command, idx, term)
        self._entries.append(entry)
        self._added.append(entry)
        self.bytes += len(command)

    def clear(self) -> None:
        """Forget all entries."""
        self._begin()
        self._added.clear()
        self._entries.clear()
        self.bytes = 0
        self._db.execute("DELETE FROM entries")

    def deleteEntriesFrom(self, entryFrom: int) -> None:
        """Remove the entries from a position on: they are in conflict with the leader's."""
        removed = self._entries[entryFrom:]
        if not removed:
            return
        self.on_truncate(removed)
        self._begin()
        self._write_added()
        self._db.execute("DELETE FROM entries WHERE idx >= ?", (removed[0][1],))
        del self._entries[entryFrom:]
        self.bytes -= sum(len(entry[0]) for entry in removed)

    def deleteEntriesTo(self, entryTo: int) -> None:
        """Forget the entries before a position: a snapshot has them."""
        removed = self._entries[:entryTo]
        if not removed:
            return
        self._begin()
        self._write_added()
        self._db.execute("DELETE FROM entries WHERE idx <= ?", (removed[-1][1],))
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
        if self._changed:
            self._begin()
            self.flush()

    def close(self) -> None:
        """Write what is left, and close."""
        self.onOneSecondTimer()
        self.flush()
        self._db.close()

    def _destroy(self) -> None:
        """The library's end; the adapter closes."""
