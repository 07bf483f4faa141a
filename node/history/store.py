"""Finished runs, in SQLite on each member (DESIGN.md, section 5).

What ends is written as it is applied, each run under the index of the entry that ended it, together with the
last index written; entries that are replayed after a restart change nothing. Where a member caught up by a
snapshot, or lost its last writes in a crash, the indexes in between are a *gap*, which `node.history.backfill` fills
from other members.

`record` may be called from any thread and never waits for the disk; a thread of the history's own writes.
Readers see all that was recorded before they asked; what cannot be written, as the disk is full, they get from memory.

Each row has a checksum. A damaged file is set aside, at the start or before the next one, and what was in it is a gap.
"""

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from node.history import gaps
from node.history.file import DamagedHistory, checked, crc, opened, put_aside
from node.history.filters import terms
from node.history.unwritten import with_unwritten
from node.peer.portions import Gap, Portion, first_held, left_of
from node.state.codec import DamagedSnapshot, pack_ended, unpack_ended
from node.state.value import EndedRun
from node.storage.disk_full import is_full
from node.storage.quarantine import is_damage

_log = logging.getLogger("rota.history")

HISTORY: Final = "history.db"
"""The name of the file in a node's data folder."""

AGAIN_S: Final = 1.0
"""Between two tries to write, while the disk is full or fails."""

SERIES_S: Final = 1.0
"""Series of occurrences that are passed over, and only go on, are gathered for so long: each is written once then."""

EXPORT_RUNS_MAX: Final = 500
"""How many runs one exported portion holds: small enough to be packed between two heartbeats."""

PAGES_AT_ONCE: Final = 256
"""So many pages of the file are given back to the disk in one go, after runs were deleted."""

FORGET_AT_ONCE: Final = 1000
"""So many runs are deleted in one transaction: others read and write in between."""


class Before(NamedTuple):
    """A place in a list that is sorted newest first by when runs were made, then by their ids."""

    created_at_us: int
    run_id: str


class HistoryStore:
    """The finished runs that one member knows. Raises `DamagedHistory` if its file cannot be used.

    `on_failure` is told, in whatever thread finds it out, if the file is found to be damaged later. While it merely
    cannot be written (the disk is full), what is to be written waits.
    """

    def __init__(self, path: Path, on_failure: Callable[[Exception], None] = lambda _error: None) -> None:
        self._path = path
        self._on_failure = on_failure
        self._pending: list[tuple[int, EndedRun] | Gap] = []
        self._hurry = False
        self._wake = threading.Condition()
        self._closed = False
        self._file = threading.Lock()
        self._damaged = False
        self._db, self._written = opened(path)
        self._index = self._written
        self._thread = threading.Thread(target=self._write_on, name="history", daemon=True)
        self._thread.start()

    @property
    def written(self) -> int:
        """The last index whose runs are in the file."""
        return self._written

    def record(self, index: int, ended: Iterable[tuple[int, EndedRun]]) -> None:
        """Take what the entries up to `index` ended. Indexes at or below `written` are known already."""
        with self._wake:
            new = [(entry, run) for entry, run in ended if entry > self._written]
            self._pending.extend(new)
            self._index = max(self._index, index)
            self._hurry = self._hurry or any(run.series is None for _, run in new)
            if new:
                self._wake.notify()

    def jumped(self, index: int) -> None:
        """The state was taken over from a snapshot at `index`: what ended since the last index was not seen here."""
        with self._wake:
            if index > self._index:
                self._pending.append(Gap(self._index, index))
                self._index = index
                self._hurry = True
                self._wake.notify()

    def flush(self) -> None:
        """Write all that was recorded. Raises `sqlite3.Error`; then nothing is lost."""
        with self._file:
            with self._wake:
                pending, index = self._pending[:], self._index
                self._hurry = False
            if index <= self._written and not pending:
                return
            with self._transaction():
                self._insert(one for one in pending if not isinstance(one, Gap))
                gaps.add(self._db, [one for one in pending if isinstance(one, Gap)])
                self._db.execute("UPDATE written SET entry = ?, crc = ?", (index, crc(index)))
            self._written = index
            with self._wake:
                del self._pending[: len(pending)]

    def runs(
        self, task: str | None, state: str | None, node: str | None, before: Before | None, limit: int
    ) -> Sequence[EndedRun]:
        """Newest first, those before `before` only. `node` is that of a run's latest attempt."""
        wanted = {"task": task, "state": state, "node": node}
        asked = terms(task, state, node)
        values: dict[str, object] = {**wanted, "limit": limit}
        if before is not None:
            asked.append("(created_at_us, run_id) < (:created_at_us, :run_id)")
            values |= before._asdict()
        where = f"WHERE {' AND '.join(asked)}" if asked else ""
        with self._watching():
            unwritten = self._unwritten()
            written = self._read(
                f"SELECT packed, crc FROM ended {where} ORDER BY created_at_us DESC, run_id DESC LIMIT :limit", values
            )
        return with_unwritten(written, unwritten, task, state, node, before, limit) if unwritten else written

    def run(self, run_id: str) -> EndedRun | None:
        """One run; the latest to end, should a task have been deleted and made again under the same name."""
        query = "SELECT packed, crc FROM ended WHERE run_id = :run_id ORDER BY entry DESC LIMIT 1"
        with self._watching():
            for ended in reversed(self._unwritten()):
                if ended.run.run_id == run_id:
                    return ended
            return next(iter(self._read(query, {"run_id": run_id})), None)

    def gaps(self) -> tuple[Gap, ...]:
        """What is still to be fetched from another member, oldest first."""
        with self._watching():
            self._unwritten()  # a gap that cannot be written down cannot be filled either
            with self._file:
                return gaps.known(self._db)

    def export(self, asked: Gap) -> Portion | None:
        """The first runs of a gap of somebody else's that this member knows all of; None if it knows nothing of it."""
        with self._watching():
            self._unwritten()  # it is not sent: `written` does not reach it
        written = self._written  # looked at before the gaps: what is missing up to there is among those
        if (held := first_held(asked, written, self.gaps())) is None:
            return None
        rows = self._packed("WHERE entry > ? AND entry <= ? ORDER BY entry LIMIT ?", *held, EXPORT_RUNS_MAX + 1)
        if len(rows) <= EXPORT_RUNS_MAX:
            return Portion(*held, tuple(rows))
        last = rows[-1][0]
        whole = [row for row in rows if row[0] < last]
        if not whole:  # one entry that ended more than a portion's runs: all of them, or it would never end
            return Portion(held.after, last, tuple(self._packed("WHERE entry = ?", last)))
        return Portion(held.after, last - 1, tuple(whole))

    def _packed(self, where: str, *values: int) -> list[tuple[int, bytes]]:
        with self._watching(), self._file:
            rows = self._db.execute(f"SELECT entry, packed, crc FROM ended {where}", values)
            return [(entry, *checked((packed, crc))) for entry, packed, crc in rows]

    def fill(self, gap: Gap, portion: Portion) -> None:
        """Take a portion of a gap from another member. Raises `ValueError` if it is not one."""
        left = left_of(gap, portion)
        try:
            runs = [(int(entry), unpack_ended(packed)) for entry, packed in portion.runs]
        except (DamagedSnapshot, TypeError) as error:
            raise ValueError(f"what a member sent as its finished runs is not that: {error}") from error
        with self._file, self._transaction():
            self._insert(runs)
            gaps.put_in_place(self._db, gap, left)

    def forget(self, at_us: int, before_us: int) -> None:
        """At `at_us`, delete the runs that finished before `before_us`, and miss no longer what did."""
        with self._watching():
            self.flush()
            with self._file, self._transaction():
                gaps.give_up(self._db, at_us, before_us)
        old = "SELECT entry, run_id FROM ended WHERE finished_at_us < ? LIMIT ?"
        deleted = FORGET_AT_ONCE
        while deleted == FORGET_AT_ONCE:
            with self._file:
                deleted = self._db.execute(
                    f"DELETE FROM ended WHERE (entry, run_id) IN ({old})", (before_us, FORGET_AT_ONCE)
                ).rowcount
        self._give_back()

    def trim(self, limit_bytes: int) -> tuple[int, int]:
        """Delete the runs that ended first, until the file holds `limit_bytes` at most. How many, and up to when the
        last of them had finished, in microseconds; (0, 0) where it is not too large. Raises `sqlite3.Error`.
        """
        if self.held_bytes <= limit_bytes:
            return 0, 0
        count = through_us = 0
        first = "FROM ended ORDER BY entry LIMIT ?"
        while self.held_bytes > limit_bytes - limit_bytes // 10:  # not again with the next run
            with self._watching(), self._file, self._transaction():
                latest = self._db.execute(
                    f"SELECT max(finished_at_us) FROM (SELECT finished_at_us {first})", (FORGET_AT_ONCE,)
                ).fetchone()[0]
                deleted = self._db.execute(
                    f"DELETE FROM ended WHERE (entry, run_id) IN (SELECT entry, run_id {first})", (FORGET_AT_ONCE,)
                ).rowcount
            if not deleted:
                break
            count, through_us = count + deleted, max(through_us, latest)
        self._give_back()
        return count, through_us

    @property
    def held_bytes(self) -> int:
        """How much of the file is in use. Raises `sqlite3.Error`."""
        with self._file:
            pages, free, page_bytes = (
                self._db.execute(f"PRAGMA {what}").fetchone()[0]
                for what in ("page_count", "freelist_count", "page_size")
            )
        return int((pages - free) * page_bytes)

    def _give_back(self) -> None:
        """Let the disk have the pages that are free, a few at a time. A file of an earlier version keeps them, and uses
        them again.
        """
        before = -1
        while True:
            with self._file:
                free = int(self._db.execute("PRAGMA freelist_count").fetchone()[0])
                if free in (0, before):
                    return
                self._db.execute(f"PRAGMA incremental_vacuum({PAGES_AT_ONCE})").fetchall()
            before = free

    def cut(self, index: int) -> None:
        """Forget what the entries after `index` ended: others come in their place. For a member that does not run.

        Raises `sqlite3.Error`.
        """
        if index >= self._written:
            return
        with self._file, self._transaction():
            self._db.execute("DELETE FROM ended WHERE entry > ?", (index,))
            gaps.cut(self._db, index)
            self._db.execute("UPDATE written SET entry = ?, crc = ?", (index, crc(index)))
        self._written = self._index = index

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

    def _insert(self, runs: Iterable[tuple[int, EndedRun]]) -> None:
        """Of a series that goes on, its latest record takes the place of the one before."""
        given = list(runs)
        series = {(run.run.run_id, run.run.created_at_us): entry for entry, run in given if run.series is not None}
        for (run_id, created_at_us), entry in series.items():
            identity = (run_id, created_at_us)
            known = self._db.execute(
                "SELECT max(entry) FROM ended WHERE run_id = ? AND created_at_us = ?", identity
            ).fetchone()[0]
            if known is not None and known > entry:
                series[identity] = 0  # what another member sends is older than what is known
            elif known is not None and known < entry:
                self._db.execute("DELETE FROM ended WHERE run_id = ? AND created_at_us = ?", identity)
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
                    crc(packed),
                )
                for entry, ended in given
                if ended.series is None or series[ended.run.run_id, ended.run.created_at_us] == entry
            ),
        )

    def _unwritten(self) -> list[EndedRun]:
        """Write what was recorded; what of it cannot be written now, in order, to be read from here.

        Raises `sqlite3.Error` if the file is damaged. Else the writing thread says what is wrong, and tries again.
        """
        try:
            self.flush()
        except sqlite3.Error as error:
            if is_damage(error):
                raise
            with self._wake:
                return [one[1] for one in self._pending if not isinstance(one, Gap)]
        return []

    def _read(self, query: str, values: dict[str, object]) -> list[EndedRun]:
        with self._file, closing(self._db.execute(query, values)) as rows:
            return [unpack_ended(*checked(row)) for row in rows]

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
        kept = put_aside(self._path)
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
                    self._wake.wait_for(lambda: self._closed or self._hurry, SERIES_S)
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
                    _log.error(
                        "finished runs cannot be written to %s: %s; they are kept in memory until they can%s",
                        self._path,
                        error,
                        ". Delete something on the file system of ROTA_DATA" if is_full(error) else "",
                    )
                failed = True
