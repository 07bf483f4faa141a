"""Logging to standard error: one line for each message, as text or as JSON.

A separate thread writes the lines, because their reader may stop reading (a pipe to a busy container engine), or their
disk may hang. The event loop, Raft and the heartbeats never wait for either.
"""

import contextlib
import copy
import json
import logging
import os
from datetime import UTC, datetime
from logging.handlers import QueueHandler, QueueListener
from queue import Full, Queue
from time import monotonic, sleep
from typing import Final, Literal

from node.runtime.log_repeats import Repeats
from node.runtime.plain_text import plain

LINES_MAX: Final = 10_000
"""The maximum number of lines that may wait to be written. Further lines are dropped and counted."""

WRITTEN_S: Final = 2.0
"""The longest time that the process waits at its end for lines that are not written yet."""

LogFormat = Literal["text", "json"]

_QUIET: Final = ("aiohttp.access", "asyncio", "pysyncobj")
"""Loggers of libraries that log every request or reconnection. Only their warnings are shown."""


class _Json(logging.Formatter):
    """Formats a line as one JSON object: time, level, logger, message, and traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


class _Text(logging.Formatter):
    """Formats a line as text. Escapes control characters and indents continuation lines, so that no value can forge a
    line.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return plain(super().format(record)).replace("\n", "\n    ")


class _Written(logging.Handler):
    """Writes lines to a file descriptor, unbuffered."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = f"{self.format(record)}\n".encode(errors="backslashreplace")
            while line:
                line = line[os.write(self._descriptor, line) :]
        except OSError:
            return  # closed, or the disk is full; this error cannot be reported anywhere
        except Exception:  # noqa: BLE001 - a line that cannot be formatted must not end the thread that writes the others
            self.handleError(record)


class _Waiting(QueueHandler):
    """Queues lines for the thread that writes them, and never blocks."""

    queue: "Queue[logging.LogRecord | None]"

    def __init__(self, written: logging.Handler) -> None:
        super().__init__(Queue(LINES_MAX))
        self._dropped = 0
        QueueListener(self.queue, written).start()

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        record = copy.copy(record)
        record.msg, record.args = record.getMessage(), None
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            if self._dropped:
                self.queue.put_nowait(_dropped(self._dropped))
                self._dropped = 0
            self.queue.put_nowait(record)
        except Full:
            self._dropped += 1

    def flush(self) -> None:
        until_s = monotonic() + WRITTEN_S
        while self.queue.unfinished_tasks and monotonic() < until_s:
            sleep(0.001)

    def close(self) -> None:
        with contextlib.suppress(Full):
            self.queue.put_nowait(None)  # makes the thread end
        super().close()


def _dropped(lines: int) -> logging.LogRecord:
    said = f"standard error was blocked: {lines} lines of this log were dropped"
    return logging.LogRecord("rota.log", logging.WARNING, __file__, 0, said, None, None)


def configure(log_format: LogFormat, level: str = "INFO", descriptor: int = 2) -> None:
    """Send the process's logging to standard error, or another file descriptor, in this format.

    At the end of the process, `logging.shutdown` writes the queued lines; call `flush` before `os._exit`.
    """
    written = _Written(descriptor)
    written.setFormatter(_Json() if log_format == "json" else _Text())
    waiting = _Waiting(written)
    waiting.addFilter(Repeats(waiting.enqueue))
    logging.basicConfig(level=level, handlers=[waiting], force=True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def flush() -> None:
    """Wait until all queued lines are written, for `WRITTEN_S` at most."""
    for handler in logging.getLogger().handlers:
        handler.flush()
