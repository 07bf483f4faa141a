"""Kills leftovers: processes of attempts that outlived their supervisor. An attempt is recorded while it runs.

A node's workers normally die with it. This module is for the case that supervisor and node were both killed, and a
process that the work had started lives on. Such processes are found by the attempt's record in the data folder, and by
a variable in their environment that names the data folder, unless they removed it. If an attempt had a user id of its
own, all its processes are found by that id.
"""

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Final

from node.execution import process_tree
from node.execution.cgroup import AttemptGroup
from node.execution.shared_objects import remove_shared
from node.storage.removal import remove_tree
from tasks.processes import MARK, RUN_MARK, stat_fields

NO_UIDS: Final = range(0)

WAIT_S: Final = 10.0
CHECK_S: Final = 0.01
CHECK_S_MAX: Final = 0.5
"""The pause between two checks of the killed processes. It doubles up to `CHECK_S_MAX`: each check reads the whole
process table, and a process that hangs in the kernel may take hours to end."""

READABLE_S: Final = 1.0
"""How long to wait until /proc shows a new worker."""

EXEC_WAIT_S: Final = 1.0
EXEC_CHECK_S: Final = 0.001
"""How long to wait for the environment of a process that is in execve, and the pause between two checks."""

_CODE, _ENV_START, _ENV_END = 26, 50, 51
"""Fields of /proc/PID/stat, counted from 1: the address of the program, and the start and end of its environment."""


class LeftoversRemain(Exception):
    """Processes of an attempt could not be killed. If the node joined now, two attempts could work at once."""


@dataclass(frozen=True, slots=True)
class Record:
    """The processes of an attempt. Their start times distinguish them from later processes with the same pids."""

    #: The id of the boot in which the processes were started.
    boot: str
    #: The pid of the supervisor.
    supervisor: int
    #: The start time of the supervisor, in clock ticks since boot.
    supervisor_started: int
    #: The pid of the worker, which is also its process group.
    worker: int
    #: The start time of the worker, in clock ticks since boot.
    worker_started: int
    #: The value of `RUN_MARK` in the environment of the attempt's processes.
    mark: str = ""
    #: The folder of the attempt's cgroup; "": it had no cgroup.
    cgroup: str = ""


def mark_of(folder: Path) -> str:
    """Return the value of `MARK` for a data folder."""
    return str(folder.resolve())


def record_path(folder: Path, supervisor: int) -> Path:
    """Return the path of an attempt's record."""
    return folder / "groups" / f"{supervisor}.json"


def record_of(worker: int) -> Record:
    """Make the record of this supervisor and its worker, which have no attempt yet. Raises `OSError`."""
    own, other = process_tree.process(os.getpid()), _once_readable(worker)
    return Record(
        boot=process_tree.boot_id(),
        supervisor=os.getpid(),
        supervisor_started=own.started if own else 0,
        worker=worker,
        worker_started=other.started if other else 0,
    )


def write_record(folder: Path, record: Record, run_mark: str, group: AttemptGroup | None = None) -> Path:
    """Write the record of an attempt, and return its path. `group` is the attempt's cgroup. Raises `OSError`.

    The record is not synced to the disk, because no process is left after a crash of the machine.
    """
    path = record_path(folder, record.supervisor)
    marked = replace(record, mark=run_mark, cgroup="" if group is None else str(group.path))
    text = json.dumps({each.name: getattr(marked, each.name) for each in fields(marked)})
    try:
        path.write_text(text)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return path


def _once_readable(pid: int) -> process_tree.Process | None:
    """Wait until /proc shows a worker, and return it. With hidepid, a worker is hidden until it opens its memory."""
    until_s = time.monotonic() + READABLE_S
    while (one := process_tree.process(pid)) is None or one.state == "?":
        if time.monotonic() > until_s:
            break
        time.sleep(EXEC_CHECK_S)
    return one


def _records(folder: Path) -> list[Record]:
    boot = process_tree.boot_id()
    found: list[Record] = []
    for path in sorted((folder / "groups").glob("*.json")):
        try:
            record = Record(**json.loads(path.read_text()))
        except (ValueError, TypeError, OSError):
            # The record was truncated by a crash, or was removed after the listing because its attempt has ended. If
            # processes of it are left, they are still found by the mark in their environment.
            continue
        if record.boot == boot:
            found.append(record)
    return found


def _is_of(one: process_tree.Process, record: Record, by_pid: dict[int, process_tree.Process]) -> bool:
    if (one.pid, one.started) in {
        (record.supervisor, record.supervisor_started),
        (record.worker, record.worker_started),
    }:
        return True
    if record.worker not in (one.group, one.session):
        return False
    # The kernel does not reuse a group's number while the group has members. A living leader must be the worker.
    leader = by_pid.get(record.worker)
    return one.started >= record.worker_started and (leader is None or leader.started == record.worker_started)


def _environment_has(pid: int, entries: frozenset[bytes]) -> bool:
    until_s = time.monotonic() + EXEC_WAIT_S
    try:
        while not (environment := Path(f"/proc/{pid}/environ").read_bytes()):
            if _was_given_none(pid) or time.monotonic() > until_s:
                return False
            time.sleep(EXEC_CHECK_S)
    except OSError:
        # The process is gone, or belongs to another user, or is a kernel thread: it is not a leftover.
        return False
    return entries.issubset(environment.split(b"\0"))


def _was_given_none(pid: int) -> bool:
    """Whether a process runs its program, and its environment is really empty (`env -i`).

    If this is False, a process that shows no environment is in the midst of execve. The kernel first replaces the
    memory, then copies the environment into it, and sets the program's address last (`create_elf_tables` and its caller
    in fs/binfmt_elf.c). Close-on-exec descriptors are closed before all this, so a caller that waits until they are
    closed may see an empty environment for a moment. Raises `OSError` if the process is gone, or is a kernel thread.
    """
    Path(f"/proc/{pid}/exe").readlink()
    values = stat_fields(pid)
    code, start, end = (int(values[field - 3]) for field in (_CODE, _ENV_START, _ENV_END))
    return code != 0 and start == end


def _find(records: Iterable[Record], entries: frozenset[bytes], uids: range = NO_UIDS) -> list[int]:
    table = process_tree.processes()
    by_pid = {one.pid: one for one in table}
    spared = process_tree.lineage(os.getpid())  # they have the mark too if a task started this node
    known = list(records)
    ours = {
        one.pid
        for one in table
        if one.state not in "ZX"
        and one.pid not in spared
        and (
            any(_is_of(one, record, by_pid) for record in known)
            or _environment_has(one.pid, entries)
            or (uids and any(uid in uids for uid in process_tree.uids(one.pid)))
        )
    }
    below = {one.pid for one in process_tree.descendants(ours, table)} - spared
    return sorted(ours | below)


def _kill(records: list[Record], marks: dict[str, str], wait_s: float, uids: range) -> int:
    """Kill the processes of `records`, processes with the variables `marks` in their environment, and those of `uids`.

    Also removes these users' objects in shared memory. Blocks until the processes are gone, and returns how many there
    were. Raises `LeftoversRemain` after `wait_s`.
    """
    entries = frozenset(f"{name}={value}".encode() for name, value in marks.items())
    killed: set[int] = set()
    until_s = time.monotonic() + wait_s
    pause_s = CHECK_S
    groups = [AttemptGroup(Path(record.cgroup), ()) for record in records if record.cgroup]
    for group in groups:
        group.kill()  # at once, including processes that this one may not signal
    while pids := _find(records, entries, uids):
        if time.monotonic() > until_s:
            raise LeftoversRemain(_remaining(pids, process_tree.out_of_reach(pids)))
        for pid in pids:
            process_tree.send(pid, signal.SIGKILL)
        killed.update(pids)
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, CHECK_S_MAX)
    if uids:
        remove_shared(uids)
    for group in groups:
        if not group.end(max(0.0, until_s - time.monotonic())):
            raise LeftoversRemain(f"the cgroup {group.path} of an attempt has processes that do not end when killed")
    return len(killed)


def _remaining(pids: list[int], beyond: list[int]) -> str:
    """Say which processes are left, why, and what to do. `beyond`: the processes that may not be signalled."""
    if beyond:
        return (
            f"processes {', '.join(map(str, beyond))} of an attempt belong to another user (sudo?), and this node may "
            f"not signal them; end them as root (kill -9 {' '.join(map(str, beyond))}), or restart the machine or "
            "container"
        )
    return (
        f"processes {', '.join(map(str, pids))} of an attempt do not end when killed (a hanging disk or network "
        "mount?); end them, or restart the machine"
    )


def kill_leftovers(folder: Path, wait_s: float = WAIT_S, uids: range = NO_UIDS) -> int:
    """Kill the processes that an earlier node on `folder` left, and remove its scratch folders. Returns their number.

    Every process of a user in `uids` counts as a leftover: no other program has these user ids (`ROTA_WORK_UIDS`).
    Blocks until they are gone; raises `LeftoversRemain` after `wait_s`. The caller must hold the folder's lock, and
    must not have joined nor have started its nursery yet.
    """
    try:
        count = _kill(_records(folder), {MARK: mark_of(folder)}, wait_s, uids)
    except LeftoversRemain as error:
        raise LeftoversRemain(
            f"an earlier start of this node left processes behind: {error}; then start the node again"
        ) from None
    remove_tree(folder / "groups")
    remove_tree(folder / "scratch")
    return count


def kill_attempt(
    folder: Path, supervisor: int, run_mark: str, scratch: Path, wait_s: float = WAIT_S, uids: range = NO_UIDS
) -> int:
    """Kill the remaining processes of one attempt whose supervisor was killed, and remove its scratch folder.

    `uids` contains the attempt's user id, if it has one of its own.
    Blocks until the processes are gone, and returns how many there were; raises `LeftoversRemain` after `wait_s`.
    """
    records = [record for record in _records(folder) if record.supervisor == supervisor]
    # Match MARK as well as RUN_MARK: another cluster's node on this machine may have a run with the same id and token.
    count = _kill(records, {MARK: mark_of(folder), RUN_MARK: run_mark}, wait_s, uids)
    remove_tree(scratch)
    with contextlib.suppress(OSError):
        # The processes are gone. A record that cannot be removed does no harm.
        record_path(folder, supervisor).unlink()
    return count
