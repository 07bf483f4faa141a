"""Writes stored files to the first destination, and the same bytes to other destinations at the same time.

Each other destination has a thread and a buffer of its own, so the first one never waits for them. A destination that
falls too far behind, fails or does not answer gets no more bytes: the attempt copies what is missing afterwards.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import IO, Any, Final, NamedTuple, cast

from tasks.places.place import Place

BEHIND_MAX_BYTES: Final = 48 << 20
"""The most bytes that wait for one destination. Destinations share the memory of bytes that wait for several."""

SILENT_S: Final = 180.0
"""The time after which a destination that finishes no write is given up."""

_LOOK_S: Final = 0.5


class Behind(Exception):
    """A destination fell too far behind the first one."""


class Silent(Exception):
    """A destination has not answered for too long."""


class _Piece(NamedTuple):
    """A part of a file's bytes; None: the file ends, complete or not."""

    name: str
    content: bytes | None
    complete: bool = True


class Branch:
    """Writes files to one destination beside the first: a thread that takes pieces from a buffer."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.whole: set[str] = set()
        """The names of the files that were written completely."""
        self.fault: Exception | None = None
        self._waiting: deque[_Piece] = deque()
        self._waiting_bytes = 0
        self._busy = False
        self._ended = False
        self._moved_s = time.monotonic()
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name=f"copy to {place.url}", daemon=True).start()

    def put(self, piece: _Piece) -> None:
        """Take a piece, without waiting. Ignores it after a fault."""
        with self._changed:
            if self.fault is not None:
                return
            if not self._waiting and not self._busy:
                self._moved_s = time.monotonic()
            self._waiting.append(piece)
            self._waiting_bytes += len(piece.content or b"")
            if self._waiting_bytes > BEHIND_MAX_BYTES:
                self._fail(Behind(f"more than {BEHIND_MAX_BYTES >> 20} MiB behind the first destination"))
            self._changed.notify_all()

    def finish(self, step: Callable[[], None]) -> None:
        """Wait until all pieces are written, or the branch has a fault. Calls `step` meanwhile, which may raise."""
        try:
            while True:
                step()
                with self._changed:
                    if self.fault is not None or not (self._waiting or self._busy):
                        return
                    silent_s = time.monotonic() - self._moved_s
                    if silent_s > SILENT_S:
                        self._fail(Silent(f"has not answered for {silent_s:.0f} s"))
                    self._changed.wait(_LOOK_S)
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def stop(self) -> None:
        """Write no more."""
        with self._changed:
            self._ended = True
            self._fail(Behind("the attempt ended"))
            self._changed.notify_all()

    def _fail(self, fault: Exception) -> None:
        self.fault = self.fault or fault
        self._waiting.clear()
        self._waiting_bytes = 0

    def _run(self) -> None:
        files: dict[str, tuple[AbstractContextManager[IO[bytes]], IO[bytes]]] = {}
        while (piece := self._next()) is not None:
            try:
                self._write(files, piece)
            except Exception as error:  # noqa: BLE001  storage libraries raise any exception; it becomes the fault
                with self._changed:
                    self._fail(error)
            with self._changed:
                self._busy = False
                self._moved_s = time.monotonic()
                self._waiting_bytes = max(0, self._waiting_bytes - len(piece.content or b""))
                self._changed.notify_all()
        for name in list(files):
            _abandon(files, name, self.place)

    def _next(self) -> _Piece | None:
        """Return the next piece, once there is one; None: no more will come."""
        with self._changed:
            while not self._waiting:
                if self._ended or self.fault is not None:
                    return None
                self._changed.wait()
            self._busy = True
            return self._waiting.popleft()

    def _write(self, files: dict[str, tuple[AbstractContextManager[IO[bytes]], IO[bytes]]], piece: _Piece) -> None:
        if piece.name not in files:
            if not piece.complete:
                return
            begun: AbstractContextManager[IO[bytes]] = self.place.writing(piece.name)
            files[piece.name] = (begun, begun.__enter__())
        opening, file = files[piece.name]
        if piece.content is not None:
            file.write(piece.content)
        elif piece.complete:
            del files[piece.name]
            opening.__exit__(None, None, None)
            self.whole.add(piece.name)
        else:
            _abandon(files, piece.name, self.place)


def _abandon(files: dict[str, tuple[AbstractContextManager[IO[bytes]], IO[bytes]]], name: str, place: Place) -> None:
    """Close and remove an incomplete file, as far as the destination allows it."""
    opening, _ = files.pop(name)
    gone = Behind("not complete")
    # The destination has failed already, and its fault is reported; the next run removes what is left there.
    with suppress(Exception):
        opening.__exit__(Behind, gone, None)
    with suppress(Exception):
        place.remove(name)


class _TeeFile:
    """A file whose bytes go to the first destination's file and to all branches."""

    def __init__(self, name: str, file: IO[bytes], branches: Sequence[Branch]) -> None:
        self._name, self._file, self._branches = name, file, branches

    def write(self, content: Any) -> int:
        """Write the next bytes. Returns their number."""
        self._file.write(content)
        kept = bytes(content)  # the same object, if it is `bytes`; a copy, if the caller uses its buffer again
        for branch in self._branches:
            branch.put(_Piece(self._name, kept))
        return len(kept)


class Tee:
    """An `ObjectSink` that writes to the first destination, and to all branches."""

    def __init__(self, first: Place, branches: Sequence[Branch]) -> None:
        self._first = first
        self._branches = branches

    @contextmanager
    def writing(self, name: str) -> Iterator[IO[bytes]]:
        """Open a file for writing. When the block ends, it is complete at the first destination only."""
        try:
            with self._first.writing(name) as file:
                yield cast(IO[bytes], _TeeFile(name, file, self._branches))
        except BaseException:
            self._end(name, complete=False)
            raise
        self._end(name, complete=True)

    def _end(self, name: str, *, complete: bool) -> None:
        for branch in self._branches:
            branch.put(_Piece(name, None, complete))
