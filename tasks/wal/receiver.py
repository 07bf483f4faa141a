"""Receives the log of a server and archives it: one thread reads the stream, another stores the received bytes.

A position is confirmed to the server only after a page of the archive names the objects up to it. So the server keeps
log that an attempt has received but not stored. While a segment fills, pieces of it are stored every few seconds, so
that even a moment some seconds ago can be restored. Once the segment is complete, it is stored again as one object.
"""

import logging
import os
import queue
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeVar

from tasks.backup.archive import CHUNK_BYTES, Writer
from tasks.errors import Away
from tasks.postgres.wal_position import WalPosition, segment_start
from tasks.wal.archive import ArchiveAway
from tasks.wal.plan import StreamPart
from tasks.wal.server import FEEDBACK_S, WalConnection
from tasks.wal.writer import ArchiveWriter, Ask

T = TypeVar("T")

HOUSEKEEPING_S: Final = 600.0
"""How often log that no backup needs is removed, by a thread beside the one that stores."""

_SETTLED_S: Final = 20.0
"""How long after its start a stream first removes log: what it has to catch up with comes first."""

CONFIRM_S: Final = 1.0
"""How often the server is told at most that more is archived: until then it keeps the log, also for a next attempt."""

SEGMENTS_MAX: Final = 4
"""The number of segments that may wait in the scratch folder to be stored. At this number, the stream is not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """A range of the log in a file of the scratch folder."""

    #: The file.
    path: Path
    #: The LSN of the file's first byte.
    file_start: int
    #: The LSN of the range's first byte.
    start: int
    #: The LSN after its last byte.
    end: int
    #: Whether it is the whole segment, so that the file is removed once it is stored.
    whole: bool


STORE_MAX_S: Final = 60.0
"""How long one range may take to be stored. Then the stream is ended: a server that stops waits for its streams."""

RETRY_S: Final = 20.0
"""How long a write to the archive that failed is tried again, before the stream is given up."""

_ASKED_S: Final = 0.5
_PAUSE_S: Final = 0.25
_PAUSE_MAX_S: Final = 5.0

HANGS_S: Final = 300.0
"""How long the end of a stream waits until what was received is stored."""

CANCELLED_S: Final = 5.0
"""As `HANGS_S`, once the attempt was asked to stop."""


class ArchiveHangs(Away):
    """The place of the archive neither takes a file nor refuses it."""


class StoringEnded(Exception):
    """The thread that was asked has ended."""


class WalStorer:
    """Stores ranges of the log in a separate thread, in the order in which they were queued."""

    def __init__(self, writer: ArchiveWriter, timeline: int, log: logging.Logger) -> None:
        self._writer = writer
        self._log = log
        self._given_up = threading.Event()
        self._timeline = timeline
        self._waiting: queue.Queue[Filled | Callable[[], None] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name="store WAL", daemon=True)
        self._error: BaseException | None = None
        self._house: threading.Thread | None = None
        self.storing_since_s: float | None = None
        """When the storing of the present range began (monotonic clock); None: no range is being stored."""
        self.stored = 0
        """The LSN up to which pages name the stored objects; 0: no page yet."""
        self._thread.start()

    @property
    def waiting(self) -> int:
        """The number of ranges that wait or are being stored."""
        return self._waiting.unfinished_tasks

    def put(self, work: Filled | Callable[[], None]) -> None:
        """Queue a range to be stored, or other work that uses the writer, which only this thread may use."""
        self._waiting.put(work)

    def ask(self, work: Callable[[], T]) -> T:
        """Run `work`, which uses the writer, between two ranges. Returns its result, to another thread.

        Raises its error, which ends the storing unless the storage has refused something, and `StoringEnded`.
        """
        asked: Future[T] = Future()

        def run() -> None:
            try:
                asked.set_result(work())
            except ArchiveAway as error:
                asked.set_exception(error)
            except BaseException as error:
                asked.set_exception(error)
                raise

        self.put(run)
        while not asked.done():
            if not self._thread.is_alive():
                raise StoringEnded
            wait([asked], _ASKED_S)
        return asked.result()

    def keep_house(self, housekeeping: Callable[[Ask], None]) -> None:
        """Call `housekeeping` in a thread of its own, unless an earlier one still works: removing files takes long."""
        if self._house is None or not self._house.is_alive():
            self._house = threading.Thread(
                target=self._keep_house, args=(housekeeping,), name="remove old WAL", daemon=True
            )
            self._house.start()

    def _keep_house(self, housekeeping: Callable[[Ask], None]) -> None:
        try:
            housekeeping(self.ask)
        except StoringEnded:
            pass  # the next attempt or stream removes the rest
        except BaseException as error:  # noqa: BLE001  `check` raises it in the thread of the attempt
            self._error = self._error or error

    def check(self) -> None:
        """Raise the error that stopped the storing, if there was one."""
        if self._error is not None:
            raise self._error

    def end(self, stop: Callable[[], bool]) -> bool:
        """Wait until all queued ranges are stored, or dropped after an error, and end the thread.

        Returns False if the storage hangs; the thread goes on then. Waits for less long once `stop` returns True.
        """
        self._waiting.put(None)
        began_s = time.monotonic()
        stopped_s: float | None = None
        while self._thread.is_alive():
            self._thread.join(0.1)
            now_s = time.monotonic()
            if stopped_s is None and stop():
                stopped_s = now_s
                self._given_up.set()
            if now_s - began_s > HANGS_S or (stopped_s is not None and now_s - stopped_s > CANCELLED_S):
                return not self._thread.is_alive()
        return True

    def _run(self) -> None:
        while (work := self._waiting.get()) is not None:
            try:
                if self._error is not None:
                    continue
                if isinstance(work, Filled):
                    self.storing_since_s = time.monotonic()
                    self._store(work)
                else:
                    work()
            except BaseException as error:  # noqa: BLE001  `check` raises it in the thread of the attempt
                self._error = error
            finally:
                self.storing_since_s = None
                self._waiting.task_done()

    def _store(self, filled: Filled) -> None:
        def dump(out: Writer) -> None:
            with filled.path.open("rb") as file:
                file.seek(filled.start - filled.file_start)
                left = filled.end - filled.start
                while left:
                    chunk = file.read(min(left, CHUNK_BYTES))
                    out.write(chunk)
                    left -= len(chunk)

        type_: Literal["segment", "piece"] = "segment" if filled.whole else "piece"
        stored = self._again(lambda: self._writer.store(type_, self._timeline, filled.start, filled.end, dump))
        self._again(lambda: self._writer.add([stored]))
        self.stored = filled.end
        self._again(self._writer.add_index)
        if filled.whole:
            filled.path.unlink()

    def _again(self, write: Callable[[], T]) -> T:
        """Return the result of `write`, which is tried again for a while if the storage refuses it."""
        began_s, pause_s = time.monotonic(), _PAUSE_S
        while True:
            try:
                return write()
            except ArchiveAway as error:
                if time.monotonic() - began_s > RETRY_S or self._given_up.wait(pause_s):
                    raise
                self._log.warning("%s; trying again", error)
                pause_s = min(pause_s * 2, _PAUSE_MAX_S)


class WalReceiver:
    """Streams one part of the log into an archive, until the part ends or the attempt must stop."""

    def __init__(
        self,
        *,
        connection: WalConnection,
        writer: ArchiveWriter,
        part: StreamPart,
        segment_bytes: int,
        scratch: Path,
        piece_s: float,
        housekeeping: Callable[[Ask], None],
        log: logging.Logger,
    ) -> None:
        self._connection = connection
        self._part = part
        self._segment_bytes = segment_bytes
        self._scratch = scratch
        self._piece_s = piece_s
        self._housekeeping = housekeeping
        self._kept_house_s = time.monotonic() - HOUSEKEEPING_S + _SETTLED_S
        self._log = log
        self._storer = WalStorer(writer, part.timeline, log)
        self._at = part.start
        self._pieced = part.start
        self._pieced_s = self._said_s = time.monotonic()
        self._confirmed = 0
        self._file: int | None = None
        self._path = scratch

    @property
    def position(self) -> WalPosition:
        """The position up to which the log was received."""
        return WalPosition(self._part.timeline, self._at)

    @property
    def settled(self) -> bool:
        """Whether pages name all that was received."""
        return self._at in {self._part.start, self._storer.stored}

    def run(self, stop: Callable[[], bool], cancelled: Callable[[], bool], tell: Callable[[], None]) -> bool:
        """Receive until the timeline ends, or `stop` returns True. Returns whether the timeline ended.

        `tell` is called about once a second. Raises `Fenced`, and the errors of the server and the storage. If
        `cancelled` returns True, what was received and cannot be stored soon is left to the server, which keeps it.
        """
        try:
            self._connection.start(self._part.timeline, self._part.start, self._part.end)
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch.mkdir()
            ended = self._receive(stop, tell)
        finally:
            # Store the received bytes even if the server is gone.
            self._piece()
            self._close()
            ended_well = self._storer.end(cancelled)
        if not ended_well and not cancelled():
            raise ArchiveHangs(f"the place of the archive has neither taken nor refused a file for {HANGS_S:.0f} s")
        if not ended_well:
            self._log.warning("not all that was received could be stored; the server keeps it for the next attempt")
            return False
        self._storer.check()
        self._confirm(now=True)
        return ended

    def _receive(self, stop: Callable[[], bool], tell: Callable[[], None]) -> bool:
        told_s = time.monotonic()
        while not stop():
            self._storer.check()
            if self._storer.waiting < SEGMENTS_MAX:
                content = self._connection.read(wait_s=0.5)
            else:
                # psycopg2 sends feedback only while it reads; without any, the server would end the stream.
                content = b""
                time.sleep(0.05)
                if time.monotonic() - self._said_s >= FEEDBACK_S:
                    self._confirm(now=True)
            if content is None:
                return True
            self._take(content)
            now_s = time.monotonic()
            if now_s - self._pieced_s >= self._piece_s and not self._storer.waiting:
                # While earlier ranges wait, a piece would come late, and the segment is stored again anyway.
                self._piece()
            if now_s - self._kept_house_s >= HOUSEKEEPING_S:
                self._kept_house_s = now_s
                self._storer.keep_house(self._housekeeping)
            since_s = self._storer.storing_since_s
            if since_s is not None and now_s - since_s > STORE_MAX_S:
                self._connection.close()
                raise ArchiveAway(f"the place of the archive has not taken a file for {now_s - since_s:.0f} s")
            self._confirm()
            if now_s - told_s >= 1:
                told_s = now_s
                tell()
        return False

    def _take(self, content: bytes) -> None:
        rest = memoryview(content)
        while rest:
            begins = segment_start(self._at, self._segment_bytes)
            if self._file is None:
                self._path = self._scratch / f"{begins:016X}"
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            taken = rest[: begins + self._segment_bytes - self._at]
            _write(self._file, taken)
            self._at += len(taken)
            rest = rest[len(taken) :]
            if self._at == begins + self._segment_bytes:
                self._close()
                self._storer.put(Filled(path=self._path, file_start=begins, start=begins, end=self._at, whole=True))
                self._pieced, self._pieced_s = self._at, time.monotonic()

    def _piece(self) -> None:
        """Queue the bytes of the present segment that were received since the last piece."""
        self._pieced_s = time.monotonic()
        if self._at > self._pieced:
            begins = segment_start(self._pieced, self._segment_bytes)
            self._storer.put(Filled(path=self._path, file_start=begins, start=self._pieced, end=self._at, whole=False))
            self._pieced = self._at

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _confirm(self, *, now: bool = False) -> None:
        """Tell the server what it may remove: at once if `now`, or if more is archived and it was not told just now."""
        stored, now_s = self._storer.stored, time.monotonic()
        if now or (stored > self._confirmed and now_s - self._said_s >= CONFIRM_S):
            self._connection.confirm(stored)
            self._confirmed, self._said_s = stored, now_s


def _write(descriptor: int, content: memoryview) -> None:
    while content:
        content = content[os.write(descriptor, content) :]
