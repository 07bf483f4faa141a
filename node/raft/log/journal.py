# ruff: noqa: N802, N803 - the library calls the journal by these names
"""The log, the term and the vote, stored in SQLite. Every acknowledged entry is on the disk.

PySyncObj's own journal is never synced and has no checksums. This one collects the library's changes and writes them in
one transaction at `flush`: before an append is acknowledged, before a leader counts itself for a commit
(`setRaftCommitIndex`), and with every change of term or vote. The entries are kept in memory too, since the library
reads them all the time; compaction limits file and memory. `journal_file` detects damage when the file is opened.
"""

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import overload

from pysyncobj.journal import Journal

from node.raft.log.append_filter import Entry
from node.raft.log.flush_counter import FlushCounter
from node.raft.log.journal_file import EXTENT, connect, entry_crc, note_crc, open_file
from node.storage.disk_full import is_full

CUT_ROWS = 32
"""The maximum number of entries covered by a snapshot that one flush deletes from the file. Deleting all of them at
once took a sixth of a second, in which no entry was committed."""

PROBE_TIMER_S = 5
"""After this time without a flush, the journal writes as a probe, because only a write shows that the disk does not
answer. Otherwise an idle cluster may write nothing for hours, and nobody would take over this member's runs."""

FLUSH_COUNTER = "flushes"
"""The file beside the journal that holds the number of its flushes (`flush_counter`)."""


class SqliteJournal(Journal):  # type: ignore[misc]  # the library ships no types
    """The library's journal, made durable. Used by one thread at a time.

    leads: returns whether this member is the leader. on_truncate: receives the entries removed from the end.
    wait_for_room: called if the disk is full; may wait, and returns whether to write again. The constructor
    raises DamagedData if the file is damaged, LogStoreInUse if another process has it open, CannotOpen if it cannot be
    used for another reason. Writes raise sqlite3.Error or OSError if the disk fails; then no entry may be acknowledged
    any more.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._flush_counter = FlushCounter(path.with_name(FLUSH_COUNTER))
        self.leads: Callable[[], bool] = lambda: True
        self.on_truncate: Callable[[Sequence[Entry]], None] = lambda _entries: None
        self.wait_for_room: Callable[[Exception], bool] = lambda _error: False
        self._added: list[Entry] = []
        self._removed_from: int | None = None
        self._changed: set[str] = set()
        self._touched = False
        self._failed = False
        self._flushes_before = self._quiet_s = 0
        self._db, contents = open_file(path, self._flush_counter, self._connect)
        self._entries, self._meta, self.flushes, self._left_behind = contents
        self.bytes = sum(len(command) for command, *_ in self._entries)

    def _connect(self, path: Path) -> sqlite3.Connection:
        return connect(path)

    # -- for the rest of the package

    @property
    def first_index(self) -> int:
        """The index of the first entry. The log is never empty once the library has started."""
        return self._entries[0][1]

    @property
    def last_index(self) -> int:
        """The index of the last entry."""
        return self._entries[-1][1]

    def term_at(self, index: int) -> int:
        """Return the term of the entry at an index, from `first_index` to `last_index`."""
        return self._entries[index - self._entries[0][1]][2]

    def after(self, index: int) -> Sequence[Entry]:
        """Return the entries after an index."""
        return self._entries[max(0, index + 1 - self._entries[0][1]) :] if self._entries else ()

    def reaching_back(self, index: int, entries: int, size_bytes: int) -> int:
        """Return the lowest index such that the entries from it up to `index` have at most this number and size."""
        position = index - self.first_index
        lowest = max(0, position - entries)
        while position > lowest and size_bytes >= len(self._entries[position - 1][0]):
            position -= 1
            size_bytes -= len(self._entries[position][0])
        return self.first_index + position

    def note(self, key: str) -> str:
        """Return a value that is stored beside the log; "" if it was never set."""
        return self._meta.get(key, "")

    def set_note(self, key: str, value: str) -> None:
        """Store a value beside the log at the next flush."""
        if self._meta.get(key) != value:
            self._meta[key] = value
            self._changed.add(key)

    def replace(self, entries: Sequence[Entry]) -> None:
        """Replace the log by these entries, in one transaction."""
        self.clear()
        for entry in entries:
            self.add(*entry)
        self.flush()

    def flush(self) -> None:
        """Write all changes so far, and return when they are on the disk."""
        removed = self._removed_from is not None
        if not (self._added or removed or self._touched or self._changed - {"commit"}):
            return
        self._insist(self._write)
        self._insist(lambda: self._flush_counter.write(self.flushes))

    def _insist(self, write: Callable[[], None]) -> None:
        """Call `write`, and retry it once there is room if the disk is full. After other errors, refuse all writes."""
        if self._failed:
            raise sqlite3.OperationalError("an earlier write of the journal failed: it is not written any more")
        while True:
            try:
                write()
            except (sqlite3.Error, OSError) as error:
                if is_full(error) and self.wait_for_room(error):
                    continue
                self._failed = True
                raise
            return

    def _write(self) -> None:
        """Write the changes in memory to the file, in one transaction."""
        first, last = (self.first_index, self.last_index) if self._entries else (0, -1)
        self.set_note(EXTENT, f"{self.flushes + 1} {first} {last}")
        left_behind = self._left_behind
        try:
            self._db.execute("BEGIN IMMEDIATE")
            if self._removed_from is not None:
                self._db.execute("DELETE FROM entries WHERE idx >= ?", (self._removed_from,))
            rows = [(index, term, command, entry_crc(command, index, term)) for command, index, term in self._added]
            self._db.executemany("INSERT INTO entries VALUES (?, ?, ?, ?)", rows)
            if left_behind and self._entries:
                left_behind = self._delete_some()
            for key in self._changed:
                value = self._meta[key]
                self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?, ?)", (key, value, note_crc(key, value)))
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # if the disk is full, SQLite has mostly rolled back by itself
                self._db.execute("ROLLBACK")
            raise
        self._added.clear()
        self._removed_from = None
        self._left_behind = left_behind
        self._touched = False
        self._changed.clear()
        self.flushes += 1

    def _delete_some(self) -> bool:
        """Delete some of the entries that a snapshot covers from the file. Returns whether more may be left."""
        deleted = self._db.execute(
            "DELETE FROM entries WHERE idx IN (SELECT idx FROM entries WHERE idx < ? ORDER BY idx LIMIT ?)",
            (self.first_index, CUT_ROWS),
        ).rowcount
        return deleted == CUT_ROWS

    # -- for the library

    def add(self, command: bytes, idx: int, term: int) -> None:
        """Append an entry."""
        entry = (command, idx, term)
        self._entries.append(entry)
        self._added.append(entry)
        self.bytes += len(command)

    def clear(self) -> None:
        """Remove all entries."""
        self._added.clear()
        self._entries.clear()
        self.bytes = 0
        self._left_behind = False
        self._removed_from = 0

    def deleteEntriesFrom(self, entryFrom: int) -> None:
        """Remove the entries from a position on: they conflict with the leader's."""
        removed = self._entries[entryFrom:]
        if not removed:
            return
        self.on_truncate(removed)
        first = removed[0][1]
        self._added = [entry for entry in self._added if entry[1] < first]
        self._removed_from = first if self._removed_from is None else min(first, self._removed_from)
        del self._entries[entryFrom:]
        self.bytes -= sum(len(entry[0]) for entry in removed)

    def deleteEntriesTo(self, entryTo: int) -> None:
        """Remove the entries before a position: a snapshot covers them. The next flushes delete them from the file."""
        removed = self._entries[:entryTo]
        if not removed:
            return
        self._left_behind = self._touched = True
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
        """Store a new commit index, before it takes effect. A leader flushes first, since it has counted itself.

        A follower need not flush, because its leader has counted only members that acknowledged.
        """
        if self.leads():
            self.flush()
        self.set_note("commit", str(raftCommitIndex))

    def getRaftCommitIndex(self) -> int:
        """Return the commit index as of the last write, which may be lower than the real one, but never higher."""
        return min(int(self.note("commit") or 1), self.last_index)

    def setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None:
        """Store the term and the vote. They are on the disk when this returns."""
        self.set_note("term", str(term))
        self.set_note("vote", votedForNodeId or "")
        self.flush()

    def getCurrentTerm(self) -> int:
        """Return the stored term."""
        return int(self.note("term") or 0)

    def getVotedForNodeId(self) -> str | None:
        """Return the id of the member for which this one voted in the stored term; None: it has not voted."""
        return self.note("vote") or None

    def onOneSecondTimer(self) -> None:
        """Write the commit index if no other flush has, so that a member that starts alone knows it.

        After `PROBE_TIMER_S` without a flush, write in any case.
        """
        self._quiet_s = self._quiet_s + 1 if self.flushes == self._flushes_before else 0
        self._flushes_before = self.flushes
        if self._changed or self._left_behind or self._quiet_s >= PROBE_TIMER_S:
            self._touched = True
            self.flush()

    def close(self) -> None:
        """Flush, unless a write has failed before, and close the files."""
        try:
            if not self._failed:
                self._touched = self._touched or bool(self._changed or self._left_behind)
                self.flush()
        finally:
            self._db.close()
            self._flush_counter.close()

    def _destroy(self) -> None:
        """Called by the library at its end. Does nothing, since `Consensus` closes the journal."""
