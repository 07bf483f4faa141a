"""Finished runs, in SQLite on each member (DESIGN.md, section 5).

What ends is written as it is applied, each run under the index of the entry that ended it, together with the
last index written; entries that are replayed after a restart change nothing. Where a member caught up by a
snapshot, or lost its last writes in a crash, the indexes in between are a *gap*, which `node.peers` fills from
another member.

`record` may be called from any thread and never waits for the disk; a thread of the history's own writes.
Readers see all that was recorded before they asked.

Each row has a checksum. A damaged file is set aside, at the start or before the next one, and what was in it is a gap.
"""

import logging
import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgpack

from node.aside import is_damage, set_aside
from node.history.filters import COMMON, terms
from node.state.codec import DamagedSnapshot, pack_ended, unpack_ended
from node.state.value import Ended

_log = logging.getLogger("rota.history")

AGAIN_S: Final = 1.0
"""Between two tries to write, while the disk is full or fails."""

EXPORT_RUNS_MAX: Final = 500
"""How many runs one exported portion holds: small enough to be packed between two heartbeats."""

FORGET_AT_ONCE: Final = 1000
"""So many runs are deleted in one transaction: others read and write in between."""

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
CREATE TABLE IF NOT EXISTS gap (after INTEGER NOT NULL, through INTEGER NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS written (entry INTEGER NOT NULL, crc INTEGER NOT NULL);
"""

_NEW_GAP: Final = "INSERT INTO gap VALUES (?, ?, ?)"

_VERSION: Final = 2


class DamagedHistory(Exception):
    """The file of finished runs cannot be used."""


class _WrongChecksum(sqlite3.DatabaseError):
    """A row is not what was written."""


class Gap(NamedTuple):
    """The indexes `after < i <= through`, of which this member may have missed what ended."""

    after: int
    through: int


class Portion(NamedTuple):
    """Runs that ended under some indexes in a row, up to and including `through`, packed to be sent."""

    runs: tuple[tuple[int, bytes], ...]
    through: int


class Before(NamedTuple):
    """A place in a list that is sorted newest first by when runs were made, then by their ids."""

    created_at_us: int
    run_id: str


class History:
    """The finished runs that one member knows. Raises `DamagedHistory` if its file cannot be used.

    `on_failure` is told, in whatever thread finds it out, if the file is found to be damaged later. While it merely
    cannot be written (the disk is full), what is to be written waits.
    """

    def __init__(self, path: Path, on_failure: Callable[[Exception], None] = lambda _error: None) -> None:
        self._path = path
        self._on_failure = on_failure
        self._pending: list[tuple[int, Ended] | Gap] = []
        self._wake = threading.Condition()
        self._closed = False
        self._file = threading.Lock()
        self._damaged = False
        try:
            self._db, self._written = _opened(path)
        except (sqlite3.Error, OSError) as error:
            raise DamagedHistory(
                f"{path} cannot be opened ({error}): see to the room on its disk, and to its permissions"
            ) from error
        self._index = self._written
        self._thread = threading.Thread(target=self._write_on, name="history", daemon=True)
        self._thread.start()

    @property
    def written(self) -> int:
        """The last index whose runs are in the file."""
        return self._written

    def record(self, index: int, ended: Iterable[tuple[int, Ended]]) -> None:
        """Take what the entries up to `index` ended. Indexes at or below `written` are known already."""
        with self._wake:
            before = len(self._pending)
            self._pending.extend((entry, run) for entry, run in ended if entry > self._written)
            self._index = max(self._index, index)
            if len(self._pending) > before:
                self._wake.notify()

    def jumped(self, index: int) -> None:
        """The state was taken over from a snapshot at `index`: what ended since the last index was not seen here."""
        with self._wake:
            if index > self._index:
                self._pending.append(Gap(self._index, index))
                self._index = index
                self._wake.notify()

    def flush(self) -> None:
        """Write all that was recorded; called before every read. Raises `sqlite3.Error`; then nothing is lost."""
        with self._file:
            with self._wake:
                pending, index = self._pending[:], self._index
            if index <= self._written and not pending:
                return
            with self._transaction():
                self._insert(one for one in pending if not isinstance(one, Gap))
                self._db.executemany(_NEW_GAP, [(*one, _crc(*one)) for one in pending if isinstance(one, Gap)])
                self._db.execute("UPDATE written SET entry = ?, crc = ?", (index, _crc(index)))
            self._written = index
            with self._wake:
                del self._pending[: len(pending)]

    def runs(
        self, task: str | None, state: str | None, node: str | None, before: Before | None, limit: int
    ) -> Sequence[Ended]:
        """Newest first, those before `before` only. `node` is that of a run's latest attempt."""
        wanted = {"task": task, "state": state, "node": node}
        asked = terms(task, state, node)
        values: dict[str, object] = {**wanted, "limit": limit}
        if before is not None:
            asked.append("(created_at_us, run_id) < (:created_at_us, :run_id)")
            values |= before._asdict()
        where = f"WHERE {' AND '.join(asked)}" if asked else ""
        return self._read(
            f"SELECT packed, crc FROM ended {where} ORDER BY created_at_us DESC, run_id DESC LIMIT :limit", values
        )

    def run(self, run_id: str) -> Ended | None:
        """One run; the latest to end, should a task have been deleted and made again under the same name."""
        query = "SELECT packed, crc FROM ended WHERE run_id = :run_id ORDER BY entry DESC LIMIT 1"
        return next(iter(self._read(query, {"run_id": run_id})), None)

    def gaps(self) -> tuple[Gap, ...]:
        """What is still to be fetched from another member, oldest first."""
        with self._watching():
            self.flush()
            with self._file, closing(self._db.execute("SELECT after, through, crc FROM gap ORDER BY after")) as rows:
                return tuple(Gap(*_checked(row)) for row in rows)

    def export(self, gap: Gap) -> Portion | None:
        """The first runs of a gap of somebody else's; None if this member has not got them all itself."""
        with self._watching():
            self.flush()
        if gap.through > self._written or any(
            own.after < gap.through and gap.after < own.through for own in self.gaps()
        ):
            return None
        rows = self._packed(
            "WHERE entry > ? AND entry <= ? ORDER BY entry LIMIT ?", gap.after, gap.through, EXPORT_RUNS_MAX + 1
        )
        if len(rows) <= EXPORT_RUNS_MAX:
            return Portion(tuple(rows), gap.through)
        last = rows[-1][0]
        whole = [row for row in rows if row[0] < last]
        if not whole:  # one entry that ended more than a portion's runs: all of them, or it would never end
            return Portion(tuple(self._packed("WHERE entry = ?", last)), last)
        return Portion(tuple(whole), last - 1)

    def _packed(self, where: str, *values: int) -> list[tuple[int, bytes]]:
        with self._watching(), self._file:
            rows = self._db.execute(f"SELECT entry, packed, crc FROM ended {where}", values)
            return [(entry, *_checked((packed, crc))) for entry, packed, crc in rows]

    def fill(self, gap: Gap, portion: Portion) -> None:
        """Take a portion of a gap from another member. Raises `ValueError` if it is not one."""
        try:
            runs = [(int(entry), unpack_ended(packed)) for entry, packed in portion.runs]
        except (DamagedSnapshot, TypeError) as error:
            raise ValueError(f"what a member sent as its finished runs is not that: {error}") from error
        with self._file, self._transaction():
            self._insert(runs)
            self._db.execute("DELETE FROM gap WHERE after = ? AND through = ?", gap)
            if portion.through < gap.through:
                rest = (portion.through, gap.through)
                self._db.execute(_NEW_GAP, (*rest, _crc(*rest)))

    def forget(self, before_us: int) -> None:
        """Delete the runs that finished before a time."""
        old = "SELECT entry, run_id FROM ended WHERE finished_at_us < ? LIMIT ?"
        deleted = FORGET_AT_ONCE
        while deleted == FORGET_AT_ONCE:
            with self._file:
                deleted = self._db.execute(
                    f"DELETE FROM ended WHERE (entry, run_id) IN ({old})", (before_us, FORGET_AT_ONCE)
                ).rowcount

    def close(self) -> None:
        """Write what is left and close the file. What cannot be written is fetched from another member later."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()
        try:
            self.flush()
        except sqlite3.Error as error:
            if not self._damaged:  # else it has been said, and the file is gone from here
                _log.error("the last finished runs could not be written to %s: %s", self._path, error)
        with self._file:
            self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # some failures have ended it already
                self._db.execute("ROLLBACK")
            raise

    def _insert(self, runs: Iterable[tuple[int, Ended]]) -> None:
        self._db.executemany(
            "INSERT OR IGNORE INTO ended VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (
                    entry,
                    ended.run.run_id,
                    ended.run.task,
                    ended.state,
                    ended.run.attempts[-1].node if ended.run.attempts else None,
                    ended.run.created_at_us,
                    ended.finished_at_us,
                    packed := pack_ended(ended),
                    _crc(packed),
                )
                for entry, ended in runs
            ),
        )

    def _read(self, query: str, values: dict[str, object]) -> list[Ended]:
        with self._watching():
            self.flush()
            with self._file, closing(self._db.execute(query, values)) as rows:
                return [unpack_ended(*_checked(row)) for row in rows]

    @contextmanager
    def _watching(self) -> Iterator[None]:
        """Tell if what is read, or written, is damaged."""
        try:
            yield
        except sqlite3.Error as error:
            if is_damage(error) and not self._closed:
                self._found_damaged(error)
            raise

    def _found_damaged(self, error: sqlite3.Error) -> None:
        with self._wake:
            if self._damaged:
                return
            self._damaged = True
        kept = _put_aside(self._path)
        self._on_failure(
            DamagedHistory(
                f"{self._path} is damaged ({error}), and is kept as {kept}: start this node again, and it fetches the "
                "finished runs from the other members"
            )
        )

    def _write_on(self) -> None:
        failed = False
        while True:
            with self._wake:
                if failed:
                    self._wake.wait_for(lambda: self._closed, AGAIN_S)
                else:
                    self._wake.wait_for(lambda: self._closed or self._pending)
                if self._closed:
                    return
            try:
                self.flush()
                failed = False
            except sqlite3.Error as error:
                if is_damage(error):
                    self._found_damaged(error)
                    return
                if not failed:
                    _log.error("finished runs cannot be written to %s: %s; trying again", self._path, error)
                failed = True


def _opened(path: Path) -> tuple[sqlite3.Connection, int]:
    """The file, and the last index written to it; a new one in the place of one that is damaged.

    Raises `sqlite3.Error`, `OSError`, `DamagedHistory`.
    """
    try:
        return _open(path)
    except sqlite3.Error as error:
        if not is_damage(error):
            raise
        kept = _put_aside(path)
        _log.error("%s is damaged (%s): kept as %s; the other members are asked for what was in it", path, error, kept)
        return _open(path)


def _open(path: Path) -> tuple[sqlite3.Connection, int]:
    db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    try:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, _VERSION):
            raise DamagedHistory(f"{path} was written by another version of Rota (format {version})")
        db.executescript(_SCHEMA)
        if version == 0:
            db.execute("INSERT INTO written VALUES (0, ?)", (_crc(0),))
            db.execute(f"PRAGMA user_version={_VERSION}")
        found = db.execute("SELECT entry, crc FROM written").fetchall()
        if not found:
            raise _WrongChecksum("it does not say how far it reaches")
        [written] = _checked(found[-1])
        return db, int(written)
    except BaseException:
        db.close()
        raise


def _put_aside(path: Path) -> str:
    files = [path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm"), path]
    return set_aside(files)[-1].name


def _crc(*values: object) -> int:
    return zlib.crc32(b" ".join(value if isinstance(value, bytes) else str(value).encode() for value in values))


def _checked(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row without its checksum, which is the last value. Raises `_WrongChecksum`."""
    *values, crc = row
    if _crc(*values) != crc:
        raise _WrongChecksum("a row is not what was written")
    return tuple(values)


def pack_portion(portion: Portion) -> bytes:
    """A portion as msgpack."""
    return bytes(msgpack.packb([portion.runs, portion.through]))


def unpack_portion(packed: bytes) -> Portion:
    """What `pack_portion` packed. Raises `ValueError`."""
    runs, through = msgpack.unpackb(packed)
    if not isinstance(through, int):
        raise ValueError("a portion of history ends with an index")  # noqa: TRY004 - it came over the wire
    return Portion(tuple((entry, run) for entry, run in runs), through)
