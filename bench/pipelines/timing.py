"""Processes that are timed, with all that they start."""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from node.cli.local import wait_for
from node.execution.process_tree import processes

ROOT: Final = Path(__file__).parents[2]

LOOK_S: Final = 0.2
"""How often its memory is looked at."""


class TimedRun(NamedTuple):
    """How long a process took, from its start to its end, and the processor time of all that it started.

    `peak_mib` is the most memory that it and its JVM had at once (RSS).
    """

    wall_s: float
    cpu_s: float
    peak_mib: float
    output: str


def timed(argv: Sequence[str], environ: Mapping[str, str]) -> TimedRun:
    """Run Python with these arguments in a session of its own, and wait until nothing of it is left.

    Python processes that Spark starts for its tasks do not count as its memory. Raises `RuntimeError` if it fails.
    """
    os.sync()  # what others wrote before is not to be written while this is timed
    # Into files: the JVM, which ends a moment after the process that started it, would keep pipes open.
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        began_s = time.monotonic()
        run = subprocess.Popen(
            [sys.executable, *argv],
            cwd=ROOT,
            env=os.environ | environ,
            stdout=out,
            stderr=errors,
            start_new_session=True,
        )
        peak_bytes, used_s = 0, dict[int, float]()
        ended_s = _cpu_of_ended_s()
        while True:
            try:
                run.wait(timeout=LOOK_S)
                break
            except subprocess.TimeoutExpired:
                _note(used_s, run.pid)
                peak_bytes = max(peak_bytes, sum(map(_rss_bytes, _driver(run.pid))))
        wall_s = time.monotonic() - began_s
        _note(used_s, run.pid)
        used_s[run.pid] = _cpu_of_ended_s() - ended_s
        wait_for("all of it has ended", lambda: not _session(run.pid), deadline_s=60)
        out.seek(0)
        errors.seek(0)
        if run.returncode != 0:
            said = errors.read()[-4000:]
            raise RuntimeError(f"{' '.join(argv)[:200]}: exit code {run.returncode}\n{said}")
        return TimedRun(wall_s, sum(used_s.values()), peak_bytes / 2**20, out.read())


def _note(used_s: dict[int, float], leader: int) -> None:
    """Note the processor time so far of each process of a session. One that has ended meanwhile keeps what it had."""
    for pid in _session(leader):
        used_s[pid] = max(used_s.get(pid, 0.0), _cpu_s(pid))


def _cpu_of_ended_s() -> float:
    """The processor time of the children of this process that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _cpu_s(pid: int) -> float:
    try:
        values = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")


def _session(leader: int) -> list[int]:
    return [one.pid for one in processes() if one.session == leader and one.state != "Z"]


def _driver(pid: int) -> list[int]:
    """The process, and the children of it that do not run Python: its JVM, directly or behind a shell."""
    below = {pid}
    for one in sorted(processes(), key=lambda one: one.started):
        if one.parent in below and "python" not in _program(one.pid):
            below.add(one.pid)
    return sorted(below)


def _program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/exe").readlink().name
    except OSError:
        return ""


def _rss_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
