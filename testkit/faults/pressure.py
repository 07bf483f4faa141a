"""Processes that keep a machine busy: its processors, its memory, its disk. They belong to nobody's cluster.

Each is in a session of its own, so that where the kernel shares the processor between sessions it takes a share of its
own; none has a lower priority than a node.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from testkit.burden import BurdenGone, Look

TIMES_OVER: Final = 8
"""So many processes that only compute for each core."""

MEMORY_MIB: Final = 2048
DISK_MIB: Final = 256

_COMPUTE: Final = "while True: pass"

_TOUCH: Final = """
import sys
held = bytearray(int(sys.argv[1]) << 20)
turn = 0
while True:
    turn = turn % 255 + 1
    for at in range(0, len(held), 4096):
        held[at] = turn
"""

_WRITE: Final = """
import os, sys
block = os.urandom(1 << 20)
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT, 0o600)
while True:
    os.lseek(file, 0, os.SEEK_SET)
    for number in range(int(sys.argv[2])):
        os.write(file, block)
        if number % 8 == 7:
            os.fsync(file)
"""


@contextmanager
def pressure(
    folder: Path,
    times_over: int = TIMES_OVER,
    memory_mib: int = MEMORY_MIB,
    disk_mib: int = DISK_MIB,
) -> Iterator[Look]:
    """Every core busy `times_over` times, so much memory written to in turns, and a file of so many MiB written flat
    out, with a sync for each 8 MiB. The look raises `BurdenGone` unless all processes live; they are gone at the end.
    """
    computing = times_over * len(os.sched_getaffinity(0))
    programs: list[tuple[str, tuple[str, ...]]] = [("computes", (_COMPUTE,))] * computing
    if memory_mib:
        programs.append(("writes to memory", (_TOUCH, str(memory_mib))))
    if disk_mib:
        programs.append(("writes to the disk", (_WRITE, str(folder / "written-flat-out"), str(disk_mib))))
    with ExitStack() as stack:
        processes = [(what, stack.enter_context(_running(program))) for what, program in programs]

        def look() -> None:
            ended = [
                f"process {process.pid}, which {what}, has ended with {process.returncode}"
                for what, process in processes
                if process.poll() is not None
            ]
            if ended:
                raise BurdenGone("; ".join(ended))

        yield look


@contextmanager
def _running(program: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", *program], start_new_session=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
