"""An attempt's log file: what its processes print, without the secrets, up to a limit."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from node.storage.room import size
from tasks.secret import Redactor

PIECE_BYTES: Final = 64 * 1024
CLOSE_S: Final = 5.0


class LogPump:
    """Moves what comes through a pipe into a file, in a thread of its own.

    The thread may wait for a slow disk as long as it likes: the supervisor's loop, which keeps the lease's
    deadline, does not wait with it. A file that cannot be written, or has reached its limit, is given up, and the pipe
    read on, so that the work does not hang on it; `error` then says why the log is not complete.
    """

    def __init__(self, path: Path, limit_bytes: int) -> None:
        """Open the file, for appending. Raises `OSError`."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        self._left_bytes = limit_bytes
        self._limit_bytes = limit_bytes
        self._given_up = False
        self._redactor = Redactor()
        self._thread: threading.Thread | None = None
        self.error: str | None = None

    def start(self, pipe: int, ended: Callable[[], None]) -> None:
        """Begin to read `pipe`, and own it; call `ended`, in the thread, when its other ends are closed.

        Not before the worker is forked: a fork takes the forking thread along and no other.
        """
        self._thread = threading.Thread(target=self._pump, args=(pipe, ended), daemon=True, name="log")
        self._thread.start()

    def learn(self, secret: str) -> None:
        """From now on `secret` does not get into the file."""
        self._redactor.learn(secret)

    def close(self, wait_s: float = CLOSE_S) -> None:
        """Wait until all is written, for `wait_s` at most: a disk that hangs does not hold up the end of a run."""
        if self._thread is not None:
            self._thread.join(wait_s)
            if self._thread.is_alive():
                self.error = self.error or f"its end was not written within {wait_s:g} s"

    def _pump(self, pipe: int, ended: Callable[[], None]) -> None:
        try:
            while piece := os.read(pipe, PIECE_BYTES):
                self._write(self._redactor.feed(piece))
            self._write(self._redactor.rest())
        finally:
            os.close(pipe)
            os.close(self._file)
            ended()

    def _write(self, data: bytes) -> None:
        if self._given_up:
            return
        kept = data[: self._left_bytes]
        self._left_bytes -= len(kept)
        if len(kept) < len(data):
            self._given_up = True
            bound = f"{size(self._limit_bytes)}, the most that a log may hold here (ROTA_LOG_BYTES)"
            self.error = f"it is truncated at {bound}"
            kept += f"\n[the log is truncated here, at {bound}]\n".encode()
        try:
            while kept:
                kept = kept[os.write(self._file, kept) :]
        except OSError as error:
            self._given_up = True
            self.error = f"cannot write the log: {error.strerror}"
