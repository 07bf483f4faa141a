"""A thread writes the log: no other thread waits for its reader, and the end of the process writes all of it."""

import json
import re
import subprocess
import sys
from typing import Final

from node.runtime.logs import LINES_MAX

SAID: Final = 2 * LINES_MAX
KEPT: Final = LINES_MAX - 1

SAYS_A_LOT: Final = f"""
import logging, sys
from node.runtime.logs import configure
configure("text")
log = logging.getLogger("rota")
for number in range({SAID}):
    log.info("%d %s", number, 100 * "x")
print("all said", flush=True)
sys.stdin.readline()
log.info("the last")
"""

FAILS: Final = """
import logging
from node.runtime.logs import configure
configure("json")
try:
    raise ValueError("what was it")
except ValueError:
    logging.getLogger("rota").exception("it %s", "failed")
"""

ENDS_AT_ONCE: Final = """
import logging, os
from node.runtime.logs import configure, flush
configure("text")
logging.getLogger("rota").critical("the end of it")
flush()
os._exit(1)
"""


def test_a_reader_that_stops_blocks_no_thread_and_dropped_lines_are_counted() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", SAYS_A_LOT], text=True, stdin=pipe, stdout=pipe, stderr=pipe) as one:
        assert one.stdin is not None
        assert one.stdout is not None
        assert one.stderr is not None
        assert one.stdout.readline() == "all said\n"  # though no line has been read
        lines = [one.stderr.readline()]
        while f"rota: {KEPT} " not in lines[-1]:  # it has caught up, so that there is room again
            lines.append(one.stderr.readline())
        one.stdin.write("\n")
        one.stdin.close()
        lines += one.stderr.readlines()
    numbers = [int(found[1]) for line in lines if (found := re.search(r"rota: (\d+) x", line))]
    lost = [int(found[1]) for line in lines if (found := re.search(r"(\d+) lines of this log were dropped", line))]
    assert numbers == sorted(set(numbers))
    assert len(numbers) + sum(lost) == SAID > len(numbers)
    assert lines[-1].endswith("rota: the last\n")


def test_all_that_was_said_is_written_when_the_process_ends() -> None:
    ended = subprocess.run([sys.executable, "-c", FAILS], capture_output=True, text=True, check=True)
    line = json.loads(ended.stderr)
    assert (line["level"], line["logger"], line["message"]) == ("error", "rota", "it failed")
    assert "ValueError: what was it" in line["traceback"]


def test_it_can_be_waited_for_before_an_end_without_any_order() -> None:
    ended = subprocess.run([sys.executable, "-c", ENDS_AT_ONCE], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.endswith("rota: the end of it\n")


STEERS: Final = """
import logging
from node.runtime.logs import configure
configure("text")
log = logging.getLogger("rota.runs")
log.error("a failed: %s", "no \\x1b[2J\\r\\u202e\\x9b31m\\n2026-01-01 00:00:00,000 INFO    rota: forged")
try:
    raise ValueError("\\x1b[2J\\n2026-01-01 00:00:00,000 INFO    rota: forged")
except ValueError:
    log.exception("b failed")
"""


def test_what_is_told_in_a_line_neither_steers_a_terminal_nor_passes_for_a_line_of_its_own() -> None:
    done = subprocess.run([sys.executable, "-c", STEERS], capture_output=True, check=True)
    lines = done.stderr.decode().splitlines()
    assert "\\x1b[2J\\r\\u202e\\x9b31m" in lines[0]
    assert sum("forged" in line for line in lines) == 2
    assert all(line.startswith("    ") or " ERROR " in line for line in lines)
    assert not [char for line in lines for char in line if not char.isprintable()]
