"""Lines of the log that repeat are counted, and not written each: whoever causes one must not fill the disk with it.

Two warnings or errors are alike if they come from the same place: the same logger, level and text before its values are
put in. Other lines are alike only if they say the same.
"""

import logging
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final

EACH: Final = 50
"""Lines alike that are written within `WITHIN_S`; those that follow are counted."""

WITHIN_S: Final = 30.0

KINDS_MAX: Final = 1_000
"""Kinds of lines that are remembered at once."""

_VALUES: Final = re.compile(r"%[-+ #0-9.*]*[a-z]")


@dataclass(slots=True)
class _Kind:
    since_s: float
    written: int = 0
    left_out: int = 0


class Repeats(logging.Filter):
    """Lets through what has not been said too often; says itself how often it was. For a handler.

    Of what was left out it is told when its time is over: with the next line of any kind.
    """

    def __init__(self, tell: Callable[[logging.LogRecord], None], now_s: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._tell = tell
        self._now_s = now_s
        self._kinds: dict[tuple[str, int, str], _Kind] = {}
        self._changing = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is to be written."""
        if record.levelno < logging.INFO:
            return True  # whoever asks for those wants them all
        now_s = self._now_s()
        with self._changing:
            over = self._over(now_s)
            kind = self._kinds.setdefault((record.name, record.levelno, _text(record)), _Kind(now_s))
            written = kind.written < EACH
            kind.written += written
            kind.left_out += not written
        for (name, level, text), left_out in over:
            said = f"{left_out} more lines like this one within {WITHIN_S:g} s are left out: {text}"
            self._tell(logging.LogRecord(name, level, __file__, 0, said, None, None))
        return written

    def _over(self, now_s: float) -> list[tuple[tuple[str, int, str], int]]:
        """Forget the kinds whose time is over; those of which lines were left out, and how many."""
        told: list[tuple[tuple[str, int, str], int]] = []
        # They are in the order in which their time began.
        while self._kinds:
            key, kind = next(iter(self._kinds.items()))
            if now_s - kind.since_s < WITHIN_S and len(self._kinds) < KINDS_MAX:
                break
            del self._kinds[key]
            if kind.left_out:
                told.append((key, kind.left_out))
        return told


def _text(record: logging.LogRecord) -> str:
    """What lines alike have in common. A text that is all values is one of its own."""
    template = str(record.msg)
    if record.levelno < logging.WARNING:
        return record.getMessage()
    return template if _VALUES.sub("", template).strip(" :,.") else record.getMessage()
