"""What repeats is counted."""

import logging
import subprocess
import sys
from typing import Final

from node.runtime.log_repeats import EACH, KINDS_MAX, WITHIN_S, Repeats


class Log:
    """A log at a time that a test says."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.lines: list[str] = []
        self._repeats = Repeats(lambda record: self.lines.append(record.getMessage()), lambda: self.now_s)

    def say(self, text: str, *values: object, level: int = logging.ERROR) -> None:
        record = logging.LogRecord("rota", level, __file__, 0, text, values, None)
        if self._repeats.filter(record):
            self.lines.append(record.getMessage())


def test_lines_alike_are_written_for_a_while_and_then_counted() -> None:
    log = Log()
    for number in range(1000):
        log.say("no connection can be accepted (%s)", number)
    assert len(log.lines) == EACH
    log.say("something else")
    assert log.lines[-1] == "something else"
    log.now_s = WITHIN_S
    log.say("no connection can be accepted (%s)", "again")
    count = 1000 - EACH
    assert log.lines[-2:] == [
        f"dropped {count} more lines like this one within {WITHIN_S:g} s: no connection can be accepted (%s)",
        "no connection can be accepted (again)",
    ]


def test_other_lines_and_other_levels_are_not_alike_and_neither_are_whole_sentences() -> None:
    log = Log()
    for number in range(EACH + 1):
        log.say("%s", f"sentence {number}")
        log.say("run %s has ended", number, level=logging.INFO)
    for _ in range(EACH + 1):
        log.say("the same", level=logging.INFO)
    log.say("%s: %s", "a", "b")
    assert len(log.lines) == 2 * (EACH + 1) + EACH + 1


def test_what_is_remembered_is_bounded_and_nothing_is_lost_without_a_word() -> None:
    log = Log()
    for _ in range(EACH + 1):
        log.say("often")
    for number in range(KINDS_MAX):
        log.say(f"kind {number}")
    assert "dropped 1 more lines like this one within 30 s: often" in log.lines


REPEATS: Final = """
import logging
from node.runtime.logs import configure
configure("text")
for number in range(100_000):
    try:
        raise OSError(24, "Too many open files")
    except OSError:
        logging.getLogger("asyncio").exception("socket.accept() out of system resource")
"""


def test_a_line_that_repeats_without_end_is_a_few_lines_in_a_nodes_log() -> None:
    ended = subprocess.run([sys.executable, "-c", REPEATS], capture_output=True, text=True, check=True)
    assert ended.stderr.count("out of system resource") == EACH
