"""Finished runs, in SQLite on each member (DESIGN.md, section 5).

What ends is written as it is applied, each run under the index of the entry that ended it, together with the
last index written; entries that are replayed after a restart change nothing. Where a member caught up by a
snapshot, or lost its last writes in a crash, the indexes in between are a *gap*, which `node.peers` fills from
another member.

`record` may be called from any thread and never waits for the disk; a thread of the history's own writes.
Readers see all that was recorded before they asked.
"""

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import msgpack

from node.state.codec import DamagedSnapshot, pack_ended, unpack_ended
from node.state.value import Ended

_log = logging.getLogger("rota.history")

AGAIN_S: Final = 1.0
"""Between two tries to write, while the disk is full or fails."""

EXPORT_RUNS_MAX: Final = 500
"""How many runs one exported portion holds: small enough to be packed between two heartbeats."""

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS ended (
  entry INTEGER NOT NULL, run_id TEXT NOT NULL, task TEXT NOT NULL, state TEXT NOT NULL, node TEXT,
  created_at_us INTEGER NOT NULL, finished_at_us INTEGER NOT NULL, packed BLOB NOT NULL,
  PRIMARY KEY (entry, run_id)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS ended_by_run ON ended (run_id, entry);
CREATE INDEX IF NOT EXISTS ended_by_age ON ended (created_at_us, run_id);
CREATE INDEX IF NOT EXISTS ended_by_task ON ended (task, created_at_us, run_id);
CREATE INDEX IF NOT EXISTS ended_by_finish ON ended (finished_at_us);
CREATE TABLE IF NOT EXISTS gap (after INTEGER NOT NULL, through INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS written (entry INTEGER NOT NULL);
INSERT INTO written SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM written);
"""

_VERSION: Final = 1


class DamagedHistory(Exception):
    """The file of finished runs cannot be read."""


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

    `on_failure` is told, in the thread that writes, if the file is found to be damaged later. While it merely cannot
    be written (the disk is full), what is to be written waits.
    """

    def __init__(self, path: Path, on_failure: Callable[[Exception], None] = lambda _error: None) -> None:
        self._path = path
        self._on_failure = on_failure
        self._pending: list[tuple[int, Ended] | Gap] = []
        self._wake = threading.Condition()
        self._closed = False
        self._file = threading.Lock()
        try:
            self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, _VERSION):
                raise DamagedHistory(f"{path} was written by another version of Rota (format {version})")
            self._db.executescript(_SCHEMA)
            self._db.execute(f"PRAGMA user_version={_VERSION}")
            self._written = int(self._db.execute("SELECT entry FROM written").fetchone()[0])
        except sqlite3.OperationalError as error:
            raise DamagedHistory(
                f"{path} cannot be opened ({error}): see to the room on its disk, and to its permissions"
            ) from error
        except sqlite3.DatabaseError as error:
            raise _damaged(path, error) from error
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
                self._db.executemany("INSERT INTO gap VALUES (?, ?)", [one for one in pending if isinstance(one, Gap)])
                self._db.execute("UPDATE written SET entry = ?", (index,))
            self._written = index
            with self._wake:
                del self._pending[: len(pending)]

    def runs(
        self, task: str | None, state: str | None, node: str | None, before: Before | None, limit: int
    ) -> Sequence[Ended]:
        """Newest first, those before `before` only. `node` is that of a run's latest attempt."""
        wanted = {"task": task, "state": state, "node": node}
        terms = [f"{column} = :{column}" for column, value in wanted.items() if value is not None]
        values: dict[str, object] = {**wanted, "limit": limit}
        if before is not None:
            terms.append("(created_at_us, run_id) < (:created_at_us, :run_id)")
            values |= before._asdict()
        where = f"WHERE {' AND '.join(terms)}" if terms else ""
        return self._read(
            f"SELECT packed FROM ended {where} ORDER BY created_at_us DESC, run_id DESC LIMIT :limit", values
        )

    def run(self, run_id: str) -> Ended | None:
        """One run; the latest to end, should a task have been deleted and made again under the same name."""
        return next(
            iter(
                self._read(
                    "SELECT packed FROM ended WHERE run_id = :run_id ORDER BY entry DESC LIMIT 1", {"run_id": run_id}
                )
            ),
            None,
        )

    def gaps(self) -> tuple[Gap, ...]:
        """What is still to be fetched from another member, oldest first."""
        self.flush()
        with self._file, closing(self._db.execute("SELECT after, through FROM gap ORDER BY after")) as rows:
            return tuple(Gap(*row) for row in rows)

    def export(self, gap: Gap) -> Portion | None:
        """The first runs of a gap of somebody else's; None if this member has not got them all itself."""
        self.flush()
        if gap.through > self._written or any(
            own.after < gap.through and gap.after < own.through for own in self.gaps()
        ):
            return None
        with self._file:
            rows = self._db.execute(
                "SELECT entry, packed FROM ended WHERE entry > ? AND entry <= ? ORDER BY entry LIMIT ?",
                (gap.after, gap.through, EXPORT_RUNS_MAX + 1),
            ).fetchall()
            if len(rows) <= EXPORT_RUNS_MAX:
                return Portion(tuple(rows), gap.through)
            last = rows[-1][0]
            whole = [row for row in rows if row[0] < last]
            if not whole:  # one entry that ended more than a portion's runs: all of them, or it would never end
                whole = self._db.execute("SELECT entry, packed FROM ended WHERE entry = ?", (last,)).fetchall()
                return Portion(tuple(whole), last)
            return Portion(tuple(whole), last - 1)

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
                self._db.execute("INSERT INTO gap VALUES (?, ?)", (portion.through, gap.through))

    def forget(self, before_us: int) -> None:
        """Delete the runs that finished before a time."""
        with self._file:
            self._db.execute("DELETE FROM ended WHERE finished_at_us < ?", (before_us,))

    def close(self) -> None:
        """Write what is left and close the file. What cannot be written is fetched from another member later."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()
        try:
            self.flush()
        except sqlite3.Error as error:
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
            "INSERT OR IGNORE INTO ended VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (
                    entry,
                    ended.run.run_id,
                    ended.run.task,
                    ended.state,
                    ended.run.attempts[-1].node if ended.run.attempts else None,
                    ended.run.created_at_us,
                    ended.finished_at_us,
                    pack_ended(ended),
                )
                for entry, ended in runs
            ),
        )

    def _read(self, query: str, values: dict[str, object]) -> list[Ended]:
        self.flush()
        with self._file, closing(self._db.execute(query, values)) as rows:
            return [unpack_ended(packed) for (packed,) in rows]

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
            except sqlite3.OperationalError as error:
                if not failed:
                    _log.error("finished runs cannot be written to %s: %s; trying again", self._path, error)
                failed = True
            except sqlite3.Error as error:
                self._on_failure(_damaged(self._path, error))
                return


def _damaged(path: Path, error: Exception) -> DamagedHistory:
    return DamagedHistory(
        f"{path} cannot be read ({error}): delete it and start again; "
        "this node fetches the finished runs from the other members"
    )


def pack_portion(portion: Portion) -> bytes:
    """A portion as msgpack."""
    return bytes(msgpack.packb([portion.runs, portion.through]))


def unpack_portion(packed: bytes) -> Portion:
    """What `pack_portion` packed. Raises `ValueError`."""
    runs, through = msgpack.unpackb(packed)
    if not isinstance(through, int):
        raise ValueError("a portion of history ends with an index")  # noqa: TRY004 - it came over the wire
    return Portion(tuple((entry, run) for entry, run in runs), through)
