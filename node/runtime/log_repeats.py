"""Limits repeated log lines and counts the dropped ones, so that no client can fill the disk by causing log lines.

Two warnings or errors are of one kind if they have the same logger, level and format string. Other lines are of one
kind only if their whole text is the same.
"""

import logging
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final

EACH: Final = 50
"""The maximum number of lines of one kind that are written within `WITHIN_S`. Further lines are only counted."""

WITHIN_S: Final = 30.0

KINDS_MAX: Final = 1_000
"""The maximum number of kinds of lines that are tracked at once."""

_VALUES: Final = re.compile(r"%[-+ #0-9.*]*[a-z]")


@dataclass(slots=True)
class _Kind:
    since_s: float
    written: int = 0
    left_out: int = 0


class Repeats(logging.Filter):
    """A handler's filter that drops lines beyond the limit, and reports how many it dropped.

    After `WITHIN_S`, the next line of any kind triggers this report, which is passed to `tell`.
    """

    def __init__(self, tell: Callable[[logging.LogRecord], None], now_s: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._tell = tell
        self._now_s = now_s
        self._kinds: dict[tuple[str, int, str], _Kind] = {}
        self._changing = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write a line."""
        if record.levelno < logging.INFO:
            return True  # debug lines are never limited
        now_s = self._now_s()
        with self._changing:
            over = self._over(now_s)
            kind = self._kinds.setdefault((record.name, record.levelno, _text(record)), _Kind(now_s))
            written = kind.written < EACH
            kind.written += written
            kind.left_out += not written
        for (name, level, text), left_out in over:
            said = f"dropped {left_out} more lines like this one within {WITHIN_S:g} s: {text}"
            self._tell(logging.LogRecord(name, level, __file__, 0, said, None, None))
        return written

    def _over(self, now_s: float) -> list[tuple[tuple[str, int, str], int]]:
        """Forget the kinds whose time is over. Returns the kinds with dropped lines, and the number of these lines."""
        told: list[tuple[tuple[str, int, str], int]] = []
        # Kinds are in the order in which their time began.
        while self._kinds:
            key, kind = next(iter(self._kinds.items()))
            if now_s - kind.since_s < WITHIN_S and len(self._kinds) < KINDS_MAX:
                break
            del self._kinds[key]
            if kind.left_out:
                told.append((key, kind.left_out))
        return told


def _text(record: logging.LogRecord) -> str:
    """Return the text that lines of one kind share: a warning's or error's format string, unless it has only values."""
    template = str(record.msg)
    if record.levelno < logging.WARNING:
        return record.getMessage()
    return template if _VALUES.sub("", template).strip(" :,.") else record.getMessage()
