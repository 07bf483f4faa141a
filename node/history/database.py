"""The tables of finished runs and of gaps: reads and writes of one member's history file.

A row of the table `ended` is a run, under the index of the log entry that ended it. `written` is the index up to which
the file is complete, apart from its gaps (`node.history.gaps`). Each row has a checksum.
"""

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from node.duty.digests import RunTally
from node.history import gaps
from node.history.file import RunPosition, conditions, crc, open_or_replace, verified_row
from node.history.tally_count import TallyCount
from node.peer.portions import Gap, Portion, first_held, remaining
from node.state.codec import pack_ended, unpack_ended
from node.state.value import EndedRun

EXPORT_RUNS_MAX: Final = 500
EXPORT_BYTES_MAX: Final = 1 << 20
"""The limits of an exported portion, in runs and bytes. They are low, so that reading, packing and signing a portion
does not delay this member's other work. Only the runs of a single entry may exceed them."""

PAGES_BATCH: Final = 256
"""How many free pages are returned to the file system in one step."""

TALLY_BATCH: Final = 200
"""How many runs are counted at a time."""

DELETE_BATCH: Final = 1000
"""The number of runs that one transaction deletes, so that other threads can read and write in between."""


class HistoryDatabase:
    """One member's history file. Raises `DamagedHistory` if it cannot be opened.

    Every method takes `lock`; it may be held around several calls. All raise `sqlite3.Error`.
    """

    def __init__(self, path: Path) -> None:
        self.lock = threading.RLock()
        self.connection, self._written = open_or_replace(path)

    @property
    def written(self) -> int:
        """The index up to which the file is written."""
        return self._written

    def is_intact(self) -> bool:
        """Whether SQLite finds nothing wrong with the file. Reads all of it."""
        with self.lock:
            return self.connection.execute("PRAGMA quick_check(1)").fetchall() == [("ok",)]

    def write(self, index: int, runs: Iterable[tuple[int, EndedRun]], new_gaps: Iterable[Gap]) -> None:
        """Add runs, each with its index, and gaps; the file is then written up to `index`."""
        with self.lock:
            with self._transaction():
                self._insert(runs)
                gaps.add(self.connection, new_gaps)
                self._set_written(index)
            self._written = index

    def runs(
        self, task: str | None, state: str | None, node: str | None, before: RunPosition | None, limit: int
    ) -> list[EndedRun]:
        """Return the runs that follow the position `before`, newest first. `node`: the node of the latest attempt."""
        wanted = conditions(task, state, node)
        values: dict[str, object] = {"task": task, "state": state, "node": node, "limit": limit}
        if before is not None:
            wanted.append("(created_at_us, run_id) < (:created_at_us, :run_id)")
            values |= before._asdict()
        where = f"WHERE {' AND '.join(wanted)}" if wanted else ""
        order = "ORDER BY created_at_us DESC, run_id DESC LIMIT :limit"
        return self._read(f"SELECT packed, crc FROM ended {where} {order}", values)

    def run(self, run_id: str) -> EndedRun | None:
        """Return the run with that id. If a task was deleted and registered again: the latest such run to end."""
        query = "SELECT packed, crc FROM ended WHERE run_id = :run_id ORDER BY entry DESC LIMIT 1"
        return next(iter(self._read(query, {"run_id": run_id})), None)

    def tally(self, after: int, since_us: int) -> RunTally:
        """Count the runs that entries after an index ended. `since_us`: about when that entry was applied.

        It reads a few rows at a time, so that other threads can write in between.
        """
        through = max(after, self._written)
        counted, position = TallyCount(since_us), (after + 1, "")
        query = (
            "SELECT entry, run_id, task, state, packed, crc FROM ended "
            "WHERE (entry, run_id) > (?, ?) AND entry <= ? ORDER BY entry, run_id LIMIT ?"
        )
        rows: list[tuple[Any, ...]] = [()]
        while rows:
            with self.lock:
                rows = self.connection.execute(query, (*position, through, TALLY_BATCH)).fetchall()
            for entry, run_id, task, state, packed, checksum in rows:
                counted.add(task, state, *verified_row((packed, checksum)))
                position = entry, run_id
        missing = any(gap.through > after and gap.after < through for gap in self.gaps())
        return counted.tally(through, complete=not missing and self._written >= after)

    def gaps(self) -> tuple[Gap, ...]:
        """Return the gaps that are still to be filled from other members, oldest first."""
        with self.lock:
            return gaps.all_gaps(self.connection)

    def export(self, asked: Gap) -> Portion | None:
        """Return the first part of another member's gap, `asked`, of which this member has all runs; None: no part."""
        written = self._written  # read before the gaps, so that these include all missing indexes up to it
        if (held := first_held(asked, written, self.gaps())) is None:
            return None
        rows, more = self._first_packed(held)
        if not more:
            return Portion(*held, tuple(rows))
        last = rows[-1][0]
        complete = [row for row in rows if row[0] < last]
        if not complete:  # a single entry ended more runs than a portion holds: send all of them
            return Portion(held.after, last, tuple(self._packed("WHERE entry = ?", last)))
        return Portion(held.after, last - 1, tuple(complete))

    def fill(self, gap: Gap, portion: Portion, runs: Iterable[tuple[int, EndedRun]]) -> None:
        """Add the runs of a portion of a gap. Raises `ValueError` if the portion is outside of the gap."""
        left = remaining(gap, portion)
        with self.lock, self._transaction():
            self._insert(runs)
            gaps.replace_gap(self.connection, gap, left)

    def give_up_gaps(self, at_us: int, before_us: int) -> None:
        """At `at_us`, drop the gaps in which all runs ended before `before_us`."""
        with self.lock, self._transaction():
            gaps.give_up(self.connection, at_us, before_us)

    def delete_older(self, before_us: int) -> None:
        """Delete the runs that finished before `before_us`."""
        old = "SELECT entry, run_id FROM ended WHERE finished_at_us < ? LIMIT ?"
        deleted = DELETE_BATCH
        while deleted == DELETE_BATCH:
            with self.lock:
                deleted = self.connection.execute(
                    f"DELETE FROM ended WHERE (entry, run_id) IN ({old})", (before_us, DELETE_BATCH)
                ).rowcount
        self._release_pages()

    def delete_first(self) -> tuple[int, int]:
        """Delete a batch of the runs that ended first. Returns their number, and when the last one finished (us)."""
        first = "FROM ended ORDER BY entry LIMIT ?"
        with self.lock, self._transaction():
            latest_us = self.connection.execute(
                f"SELECT max(finished_at_us) FROM (SELECT finished_at_us {first})", (DELETE_BATCH,)
            ).fetchone()[0]
            deleted = self.connection.execute(
                f"DELETE FROM ended WHERE (entry, run_id) IN (SELECT entry, run_id {first})", (DELETE_BATCH,)
            ).rowcount
        self._release_pages()
        return deleted, latest_us or 0

    def truncate_after(self, index: int) -> None:
        """Delete the runs that entries after `index` ended, and the gaps after it."""
        with self.lock, self._transaction():
            self.connection.execute("DELETE FROM ended WHERE entry > ?", (index,))
            gaps.truncate_after(self.connection, index)
            self._set_written(index)
        self._written = index

    @property
    def used_bytes(self) -> int:
        """The size of the file without its free pages."""
        with self.lock:
            pages, free, page_bytes = (
                self.connection.execute(f"PRAGMA {what}").fetchone()[0]
                for what in ("page_count", "freelist_count", "page_size")
            )
        return int((pages - free) * page_bytes)

    def close(self) -> None:
        """Close the file."""
        with self.lock:
            self.connection.close()

    def _release_pages(self) -> None:
        """Return free pages to the file system, a few at a time. A file of an earlier version keeps and reuses them."""
        before = -1
        while True:
            with self.lock:
                free = int(self.connection.execute("PRAGMA freelist_count").fetchone()[0])
                if free in (0, before):
                    return
                self.connection.execute(f"PRAGMA incremental_vacuum({PAGES_BATCH})").fetchall()
            before = free

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self.connection.execute("BEGIN")
        try:
            yield
            self.connection.execute("COMMIT")
        except BaseException:
            if self.connection.in_transaction:  # some errors have ended the transaction already
                self.connection.execute("ROLLBACK")
            raise

    def _set_written(self, index: int) -> None:
        self.connection.execute("UPDATE written SET entry = ?, crc = ?", (index, crc(index)))

    def _insert(self, runs: Iterable[tuple[int, EndedRun]]) -> None:
        """Insert runs. The latest record of a series of skipped or missed occurrences replaces the previous one."""
        given = list(runs)
        series = {(run.run.run_id, run.run.created_at_us): entry for entry, run in given if run.series is not None}
        for (run_id, created_at_us), entry in series.items():
            identity = (run_id, created_at_us)
            known = self.connection.execute(
                "SELECT max(entry) FROM ended WHERE run_id = ? AND created_at_us = ?", identity
            ).fetchone()[0]
            if known is not None and known > entry:
                series[identity] = 0  # another member's record is older than the one here
            elif known is not None and known < entry:
                self.connection.execute("DELETE FROM ended WHERE run_id = ? AND created_at_us = ?", identity)
        self.connection.executemany(
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

    def _read(self, query: str, values: dict[str, object]) -> list[EndedRun]:
        with self.lock, closing(self.connection.execute(query, values)) as rows:
            return [unpack_ended(*verified_row(row)) for row in rows]

    def _first_packed(self, held: Gap) -> tuple[list[tuple[int, bytes]], bool]:
        """Return the first runs of these indexes, and whether there are more. If so, the last one exceeds a limit."""
        rows: list[tuple[int, bytes]] = []
        size_bytes = 0
        query = "SELECT entry, packed, crc FROM ended WHERE entry > ? AND entry <= ? ORDER BY entry"
        with self.lock, closing(self.connection.execute(query, held)) as found:
            for entry, packed, checksum in found:
                rows.append((entry, *verified_row((packed, checksum))))
                size_bytes += len(packed)
                if len(rows) > EXPORT_RUNS_MAX or (size_bytes > EXPORT_BYTES_MAX and len(rows) > 1):
                    return rows, True
        return rows, False

    def _packed(self, where: str, *values: int) -> Sequence[tuple[int, bytes]]:
        with self.lock:
            rows = self.connection.execute(f"SELECT entry, packed, crc FROM ended {where}", values)
            return [(entry, *verified_row((packed, checksum))) for entry, packed, checksum in rows]
