"""What an earlier process of this member may have left running: recorded while it runs, killed at the next start.

A node's workers die with it. This is for the case where that failed: supervisor and node both killed, while
something that the work had started lived on. An attempt's record in the data folder names its processes, and
every process below the nursery has the data folder in its environment, unless it took that away itself.
"""

import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from node.execution import tree

MARK: Final = "NURSERY_OF"
"""The variable that names the data folder. Not ROTA_*: workers do not inherit those."""

RUN_MARK: Final = "NURSERY_RUN"
"""The variable that names the attempt: run and token."""

WAIT_S: Final = 10.0
LOOK_S: Final = 0.01
LOOK_S_MAX: Final = 0.5
"""Between two looks at what was killed: ever longer, since each is at all processes, and some take hours to end."""


class LeftoversRemain(Exception):
    """Processes of an attempt could not be killed: joining now could let two attempts work at once."""


@dataclass(frozen=True, slots=True)
class Record:
    """The processes of an attempt. Start times, in ticks, tell them from others that got their pids later."""

    boot: str
    supervisor: int
    supervisor_started: int
    worker: int
    worker_started: int
    mark: str


def mark(folder: Path) -> str:
    """The value of `MARK` for a data folder."""
    return str(folder.resolve())


def record_path(folder: Path, supervisor: int) -> Path:
    """Where an attempt is recorded."""
    return folder / "groups" / f"{supervisor}.json"


def write_record(folder: Path, worker: int, run_mark: str) -> Path:
    """Record the attempt of this supervisor. Raises `OSError`. Not synced: a machine that crashes leaves nobody."""
    own, other = tree.process(os.getpid()), tree.process(worker)
    path = record_path(folder, os.getpid())
    path.parent.mkdir(parents=True, exist_ok=True)
    record = Record(
        tree.boot_id(), os.getpid(), own.started if own else 0, worker, other.started if other else 0, run_mark
    )
    path.write_text(json.dumps(asdict(record)))
    return path


def _records(folder: Path) -> list[Record]:
    boot = tree.boot_id()
    found: list[Record] = []
    for path in sorted((folder / "groups").glob("*.json")):
        try:
            record = Record(**json.loads(path.read_text()))
        except (ValueError, TypeError, OSError):
            # Cut short by a crash, or removed since it was listed: another attempt has just ended. Where processes
            # of it are left, they are still found by the mark in their environment.
            continue
        if record.boot == boot:
            found.append(record)
    return found


def _is_of(one: tree.Process, record: Record, by_pid: dict[int, tree.Process]) -> bool:
    if (one.pid, one.started) in {
        (record.supervisor, record.supervisor_started),
        (record.worker, record.worker_started),
    }:
        return True
    if record.worker not in (one.group, one.session):
        return False
    # While anybody is in a group, its number is given to no new process. Where its leader lives it must be ours.
    leader = by_pid.get(record.worker)
    return one.started >= record.worker_started and (leader is None or leader.started == record.worker_started)


def _environment_has(pid: int, entries: frozenset[bytes]) -> bool:
    try:
        return entries.issubset(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:
        # Gone, or somebody else's: not one of ours in either case.
        return False


def _spared() -> set[int]:
    """This process and those above it, who may bear the mark where a node is started from within a task."""
    spared: set[int] = set()
    pid = os.getpid()
    while pid and (one := tree.process(pid)) is not None:
        spared.add(pid)
        pid = one.parent
    return spared


def _find(records: Iterable[Record], entries: frozenset[bytes]) -> list[int]:
    table = tree.processes()
    by_pid = {one.pid: one for one in table}
    spared = _spared()
    known = list(records)
    ours = {
        one.pid
        for one in table
        if one.state not in "ZX"
        and one.pid not in spared
        and (any(_is_of(one, record, by_pid) for record in known) or _environment_has(one.pid, entries))
    }
    below = {one.pid for one in tree.descendants(ours, table)} - spared
    return sorted(ours | below)


def _kill(records: list[Record], marks: dict[str, str], wait_s: float) -> int:
    """Kill all of them, and what has these variables in its environment, and wait until they are gone. How many there
    were.
    """
    entries = frozenset(f"{name}={value}".encode() for name, value in marks.items())
    killed: set[int] = set()
    until_s = time.monotonic() + wait_s
    pause_s = LOOK_S
    while pids := _find(records, entries):
        if time.monotonic() > until_s:
            raise LeftoversRemain(_remaining(pids))
        for pid in pids:
            tree.send(pid, signal.SIGKILL)
        killed.update(pids)
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, LOOK_S_MAX)
    return len(killed)


def _remaining(pids: list[int]) -> str:
    """What is left, why, and what to do about it."""
    if beyond := tree.out_of_reach(pids):
        return (
            f"processes {', '.join(map(str, beyond))} of an attempt are another user's (sudo?), and this node may not "
            f"signal them; end them as root (kill -9 {' '.join(map(str, beyond))}), or restart the machine or container"
        )
    return (
        f"processes {', '.join(map(str, pids))} of an attempt do not end when killed (a hanging disk or network "
        "mount?); end them, or restart the machine"
    )


def kill_leftovers(folder: Path, wait_s: float = WAIT_S) -> int:
    """Kill what an earlier node on `folder` left running, and clear its scratch folders. How many there were.

    Blocks until they are gone; raises `LeftoversRemain` after `wait_s`. To be called by the one process that
    holds the folder's lock, before it joins and before its nursery starts.
    """
    try:
        count = _kill(_records(folder), {MARK: mark(folder)}, wait_s)
    except LeftoversRemain as error:
        raise LeftoversRemain(f"an earlier start of this node left work behind: {error}; then start it again") from None
    shutil.rmtree(folder / "groups", ignore_errors=True)
    shutil.rmtree(folder / "scratch", ignore_errors=True)
    return count


def kill_attempt(folder: Path, supervisor: int, run_mark: str, scratch: Path, wait_s: float = WAIT_S) -> int:
    """Kill what is left of one attempt whose supervisor was killed, and clear its scratch folder.

    Blocks; raises `LeftoversRemain` after `wait_s`.
    """
    records = [record for record in _records(folder) if record.supervisor == supervisor]
    # Of this folder too: nodes of another cluster on this machine may have a run of that name, under that token.
    count = _kill(records, {MARK: mark(folder), RUN_MARK: run_mark}, wait_s)
    shutil.rmtree(scratch, ignore_errors=True)
    with contextlib.suppress(OSError):
        # Nothing of it is left: that is what counts, and not a disk that can no longer be written.
        record_path(folder, supervisor).unlink()
    return count
