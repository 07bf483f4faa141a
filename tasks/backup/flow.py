"""A stream of bytes from one thread to another, with a bound on the bytes in between."""

import threading
from collections import deque
from typing import Final

AHEAD_BYTES: Final = 4 << 20
"""The number of bytes from which a writer waits for the reader."""


class ReaderGone(Exception):
    """The reader of a flow has ended before it had read everything."""


class Flow:
    """A stream with one writer and one reader, each in a thread of its own. The chunks are not copied."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._chunks: deque[bytes] = deque()
        self._held_bytes = 0
        self._rest = memoryview(b"")
        """The part of the current chunk that the reader has not taken."""
        self._ended = False
        self._writers_error: BaseException | None = None
        self._readers_error: BaseException | None = None

    def write(self, chunk: bytes) -> int:
        """Pass a chunk on, which must not change afterwards. Waits while too much has not been read.

        Raises the error with which the reader has ended.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._held_bytes < AHEAD_BYTES or self._readers_error is not None)
            self._check()
            if chunk:
                self._chunks.append(chunk)
                self._held_bytes += len(chunk)
                self._changed.notify_all()
        return len(chunk)

    def check(self) -> None:
        """Raise the error with which the reader has ended, if it has."""
        with self._changed:
            self._check()

    def _check(self) -> None:
        if self._readers_error is not None:
            raise self._readers_error

    def flush(self) -> None:
        """Do nothing: each chunk is passed on at once."""

    def end(self, error: BaseException | None = None) -> None:
        """End the stream. With an error the reader gets this error instead of the end, after all that was written."""
        with self._changed:
            self._ended, self._writers_error = True, error
            self._changed.notify_all()

    def abandon(self, error: BaseException | None = None) -> None:
        """End reading: each later `write` raises `error`, or `ReaderGone`. What was not read is dropped."""
        with self._changed:
            self._readers_error = error or ReaderGone("the reader of the stream has ended")
            self._chunks.clear()
            self._held_bytes = 0
            self._changed.notify_all()

    def chunk(self) -> bytes:
        """Return the next chunk; empty at the end. Raises the error with which the writer has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._chunks or self._ended)
            if self._chunks:
                found = self._chunks.popleft()
                self._held_bytes -= len(found)
                self._changed.notify_all()
                return found
            if self._writers_error is not None:
                raise self._writers_error
            return b""

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, at most `size` of them if it is not negative; empty at the end.

        Raises the error with which the writer has ended.
        """
        if not self._rest:
            self._rest = memoryview(self.chunk())
        taken = self._rest if size < 0 else self._rest[:size]
        self._rest = self._rest[len(taken) :]
        return bytes(taken)
