"""One member's finished runs: recorded in memory at once, written to SQLite by a thread of their own.

A run is recorded when the entry that ended it is applied, under that entry's index. Replayed entries change nothing.
If a member caught up by a snapshot, or lost its last writes in a crash, the indexes in between are a *gap*, which
`node.history.gap_filler` fills from other members.

`record` may be called from any thread and never waits for the disk. Readers see all runs that were recorded before they
asked: runs that cannot be written while the disk is full are read from memory.

A damaged file is set aside, when it is found or at the next start, and its content becomes a gap.
"""

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from node.duty.digests import RunTally
from node.history.database import HistoryDatabase
from node.history.file import DamagedHistory, RunPosition, put_aside
from node.peer.portions import Gap, Portion
from node.state.codec import DamagedSnapshot, unpack_ended
from node.state.value import EndedRun
from node.storage.disk_full import has_ample_room, is_full
from node.storage.quarantine import is_damage

_log = logging.getLogger("rota.history")

HISTORY: Final = "history.db"
"""The name of the file in a node's data folder."""

RETRY_S: Final = 1.0
"""Seconds between two attempts to write while the disk is full or fails."""

SERIES_S: Final = 1.0
"""Seconds for which updates of a series of skipped or missed occurrences are gathered, to write the series once."""


class HistoryStore:
    """The finished runs that one member knows. Raises `DamagedHistory` if its file cannot be used.

    `on_failure` is called, in any thread, if the file is found to be damaged later. While the file merely cannot be
    written (the disk is full), recorded runs wait in memory.
    """

    def __init__(self, path: Path, on_failure: Callable[[Exception], None] = lambda _error: None) -> None:
        self._path = path
        self._on_failure = on_failure
        self._pending: list[tuple[int, EndedRun] | Gap] = []
        self._urgent = False
        self._wake = threading.Condition()
        self._closed = False
        self._damaged = False
        self._database = HistoryDatabase(path)
        self._index = self._database.written
        self._thread = threading.Thread(target=self._write_until_closed, name="history", daemon=True)
        self._thread.start()

    # -- recording

    @property
    def written(self) -> int:
        """The last index whose runs are in the file."""
        return self._database.written

    def record(self, index: int, ended: Iterable[tuple[int, EndedRun]]) -> None:
        """Record the runs that the entries up to `index` ended. Indexes up to `written` are ignored."""
        with self._wake:
            new = [(entry, run) for entry, run in ended if entry > self._database.written]
            self._pending.extend(new)
            self._index = max(self._index, index)
            self._urgent = self._urgent or any(run.series is None for _, run in new)
            if new:
                self._wake.notify()

    def jumped(self, index: int) -> None:
        """Record a gap up to `index`: a snapshot replaced the state, so runs that ended before were not seen here."""
        with self._wake:
            if index > self._index:
                self._pending.append(Gap(self._index, index))
                self._index = index
                self._urgent = True
                self._wake.notify()

    def flush(self) -> None:
        """Write all recorded runs and gaps. If it raises `sqlite3.Error`, they stay recorded."""
        with self._database.lock:
            with self._wake:
                pending, index = self._pending[:], self._index
                self._urgent = False
            if index <= self._database.written and not pending:
                return
            runs = (one for one in pending if not isinstance(one, Gap))
            self._database.write(index, runs, [one for one in pending if isinstance(one, Gap)])
            with self._wake:
                del self._pending[: len(pending)]

    # -- reading

    def runs(
        self, task: str | None, state: str | None, node: str | None, before: RunPosition | None, limit: int
    ) -> Sequence[EndedRun]:
        """Return the runs that follow the position `before`, newest first. `node`: the node of the latest attempt."""
        with self._report_damage():
            unwritten = self._flush_or_pending()
            written = self._database.runs(task, state, node, before, limit)
        return with_unwritten(written, unwritten, task, state, node, before, limit) if unwritten else written

    def run(self, run_id: str) -> EndedRun | None:
        """Return the run with that id. If a task was deleted and registered again: the latest such run to end."""
        with self._report_damage():
            for ended in reversed(self._flush_or_pending()):
                if ended.run.run_id == run_id:
                    return ended
            return self._database.run(run_id)

    def tally(self, after: int, since_us: int) -> RunTally:
        """Count the runs that entries after an index ended. `since_us`: about when that entry was applied.

        Raises `sqlite3.Error`, or `DamagedSnapshot` for a run that cannot be read.
        """
        with self._report_damage():
            self._flush_or_pending()  # runs that cannot be written are for the next tally
            return self._database.tally(after, since_us)

    # -- gaps, filled from other members

    def gaps(self) -> tuple[Gap, ...]:
        """Return the gaps that are still to be filled from other members, oldest first."""
        with self._report_damage():
            self._flush_or_pending()  # a gap that cannot be written cannot be filled either
            return self._database.gaps()

    def export(self, asked: Gap) -> Portion | None:
        """Return the first part of another member's gap, `asked`, of which this member has all runs; None: no part."""
        with self._report_damage():
            self._flush_or_pending()  # runs that cannot be written are not sent, because they are after `written`
            return self._database.export(asked)

    def fill(self, gap: Gap, portion: Portion) -> None:
        """Add a portion of a gap, from another member. Raises `ValueError` if it is not a portion of that gap."""
        try:
            runs = [(int(entry), unpack_ended(packed)) for entry, packed in portion.runs]
        except (DamagedSnapshot, TypeError) as error:
            raise ValueError(f"another member sent finished runs that cannot be read: {error}") from error
        self._database.fill(gap, portion, runs)

    # -- deleting

    def delete_older(self, at_us: int, before_us: int) -> None:
        """At `at_us`, delete the runs that finished before `before_us`, and drop the gaps with only such runs."""
        with self._report_damage():
            self.flush()
            self._database.give_up_gaps(at_us, before_us)
            self._database.delete_older(before_us)

    def trim(self, limit_bytes: int) -> tuple[int, int]:
        """Delete the runs that ended first until the file uses `limit_bytes` at most. Raises `sqlite3.Error`.

        Returns the number of deleted runs, and when the last one finished, in microseconds; (0, 0): no run was deleted.
        """
        count = through_us = 0
        if self.used_bytes <= limit_bytes:
            return count, through_us
        while self.used_bytes > limit_bytes - limit_bytes // 10:  # with a margin for the next runs
            with self._report_damage():
                deleted, latest_us = self._database.delete_first()
            if not deleted:
                break
            count, through_us = count + deleted, max(through_us, latest_us)
        return count, through_us

    @property
    def used_bytes(self) -> int:
        """The size of the file without its free pages. Raises `sqlite3.Error`."""
        return self._database.used_bytes

    def truncate_after(self, index: int) -> None:
        """Delete the runs that entries after `index` ended, since other entries replace those entries.

        Call it only while the member is stopped. Raises `sqlite3.Error`.
        """
        if index < self._database.written:
            self._database.truncate_after(index)
            self._index = index

    # -- the writer thread

    def close(self) -> None:
        """Write the recorded runs and close the file. Runs that cannot be written are fetched from another member."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()
        try:
            self.flush()
        except sqlite3.Error as error:
            if not self._damaged:  # else the damage is reported already, and the file is set aside
                _log.error("the last finished runs could not be written to %s: %s", self._path, error)
        self._database.close()

    def _write_until_closed(self) -> None:
        failed = False
        while True:
            with self._wake:
                if failed:
                    self._wake.wait_for(lambda: self._closed, RETRY_S)
                else:
                    self._wake.wait_for(lambda: self._closed or self._pending)
                    self._wake.wait_for(lambda: self._closed or self._urgent, SERIES_S)
                if self._closed:
                    return
            try:
                self.flush()
                failed = False
            except sqlite3.Error as error:
                if self._is_damage(error):
                    self._report(error)
                    return
                if not failed:
                    _log.error(
                        "finished runs cannot be written to %s: %s; they are kept in memory until they can%s",
                        self._path,
                        error,
                        ". Delete something on the file system of ROTA_DATA" if is_full(error) else "",
                    )
                failed = True

    def _flush_or_pending(self) -> list[EndedRun]:
        """Write the recorded runs. Returns those that cannot be written now, in order, to be read from memory.

        Raises `sqlite3.Error` if the file is damaged. All other errors are logged, and retried, by the writer thread.
        """
        try:
            self.flush()
        except sqlite3.Error as error:
            if self._is_damage(error):
                raise
            with self._wake:
                return [one[1] for one in self._pending if not isinstance(one, Gap)]
        return []

    @contextmanager
    def _report_damage(self) -> Iterator[None]:
        """A context that reports damage if an error in its block shows that the file is damaged."""
        try:
            yield
        except sqlite3.Error as error:
            if not self._closed and self._is_damage(error):
                self._report(error)
            raise

    def _is_damage(self, error: sqlite3.Error) -> bool:
        """Whether the file is damaged.

        SQLite reports a damaged page number, if greater than any valid one, as a full disk. So after that error, if the
        disk has room, the file is checked.
        """
        if is_damage(error) or not is_full(error):
            return is_damage(error)
        try:
            return has_ample_room(self._path.parent) and not self._database.is_intact()
        except (OSError, sqlite3.Error):
            return False  # the next write may show it

    def _report(self, error: sqlite3.Error) -> None:
        with self._wake:
            if self._damaged:
                return
            self._damaged = True
        kept = put_aside(self._path)
        self._on_failure(
            DamagedHistory(
                f"{self._path} is damaged ({error}), and is kept as {kept}: restart this node, and it fetches the "
                "finished runs from the other members"
            )
        )


def with_unwritten(
    written: Sequence[EndedRun],
    unwritten: Iterable[EndedRun],
    task: str | None,
    state: str | None,
    node: str | None,
    before: tuple[int, str] | None,
    limit: int,
) -> list[EndedRun]:
    """List finished runs, newest first: `written`, which pass these filters, and those of `unwritten` that pass them.

    `unwritten` is in the order in which it was recorded; the other arguments are those of `HistoryStore.runs`.
    """
    latest = {_identity(run): run for run in unwritten}
    wanted = [run for run in latest.values() if _passes(run, task, state, node, before)]
    merged = [*wanted, *(run for run in written if _identity(run) not in latest)]
    return sorted(merged, key=_identity, reverse=True)[:limit]


def _identity(ended: EndedRun) -> tuple[int, str]:
    """Return the creation time and id, by which lists are sorted."""
    return ended.run.created_at_us, ended.run.run_id


def _passes(
    ended: EndedRun, task: str | None, state: str | None, node: str | None, before: tuple[int, str] | None
) -> bool:
    attempts = ended.run.attempts
    return (
        (task is None or ended.run.task == task)
        and (state is None or ended.state == state)
        and (node is None or (bool(attempts) and attempts[-1].node == node))
        and (before is None or _identity(ended) < before)
    )
