"""Writes an attempt's log file: the output of its processes, with secrets redacted, up to a limit."""

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
    """Copies the output of an attempt from a pipe into a file, in its own thread.

    The thread may wait for a slow disk, and the supervisor's loop, which enforces the lease's deadline, does not wait
    for the thread. When the file cannot be written or has reached its limit, the pump stops writing but keeps reading
    the pipe, so that the work does not block. `error` then says why the log is incomplete.
    """

    def __init__(self, path: Path, limit_bytes: int, whose: str = "this node's limit (ROTA_LOG_BYTES)") -> None:
        """Open the file at `path` to append at most `limit_bytes`. `whose` is the limit's name. Raises `OSError`."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        self._left_bytes = limit_bytes
        self._limit = f"{size(limit_bytes)}, {whose}"
        self._given_up = False
        self._redactor = Redactor()
        self._thread: threading.Thread | None = None
        self.error: str | None = None

    def start(self, pipe: int, ended: Callable[[], None]) -> None:
        """Read `pipe`, and close it at its end; then call `ended`, in the pump's thread.

        Call this after the worker is forked: a fork copies only the thread that forks.
        """
        self._thread = threading.Thread(target=self._pump, args=(pipe, ended), daemon=True, name="log")
        self._thread.start()

    def learn(self, secret: str) -> None:
        """From now on, redact `secret` from the file."""
        self._redactor.learn(secret)

    def close(self, wait_s: float = CLOSE_S) -> None:
        """Wait until the output is written, at most `wait_s`, so that a hanging disk does not delay a run's end."""
        if self._thread is not None:
            self._thread.join(wait_s)
            if self._thread.is_alive():
                self.error = self.error or f"the end of the log was not written within {wait_s:g} s"

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
            self.error = f"the log is truncated at {self._limit}"
            kept += f"\n[the log is truncated here, at {self._limit}]\n".encode()
        try:
            while kept:
                kept = kept[os.write(self._file, kept) :]
        except OSError as error:
            self._given_up = True
            self.error = f"cannot write the log: {error.strerror}"
