"""Finds an attempt's processes through /proc, and stops, continues and kills them.

A worker leads its own session and process group, but the processes that it starts may leave both (with `setsid`, as
many daemons do). They are found nevertheless: the supervisor adopts orphans, so they all stay below the supervisor.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tasks.processes import stat_fields

END_CHECK_S = 0.005
END_CHECK_S_MAX = 0.5
"""The pause between two checks of killed processes, which doubles up to `END_CHECK_S_MAX`."""

PASSES_MAX = 64
"""The most passes of `freeze`. A few suffice, because each pass stops all processes that it finds, so these cannot
fork any more."""


@dataclass(frozen=True, slots=True)
class Process:
    """An entry of the process table. The pid and `started` together identify a process."""

    #: The process id.
    pid: int
    #: The pid of the parent.
    parent: int
    #: The id of the process group.
    group: int
    #: The id of the session.
    session: int
    #: The state as one letter, as in /proc/PID/stat: `T` is stopped, `Z` a zombie.
    state: str
    #: When the process was started, in clock ticks since boot.
    started: int


def process(pid: int) -> Process | None:
    """Read the process with that pid; None if it does not exist."""
    try:
        values = stat_fields(pid)
    except (FileNotFoundError, ProcessLookupError):
        return None
    except PermissionError:
        return _unreadable(pid)
    return Process(
        pid=pid,
        parent=int(values[1]),
        group=int(values[2]),
        session=int(values[3]),
        state=values[0].decode(),
        started=int(values[19]),
    )


def _unreadable(pid: int) -> Process | None:
    """Collect the known facts of a process whose files in /proc are not readable (/proc mounted with hidepid)."""
    try:
        # An unknown start counts as a late one, so that a process in an attempt's session counts as the attempt's.
        return Process(pid=pid, parent=0, group=os.getpgid(pid), session=os.getsid(pid), state="?", started=sys.maxsize)
    except OSError:
        return None


def uids(pid: int) -> tuple[int, ...]:
    """Read the real, effective, saved and file system's user ids of a process; empty if it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_bytes()
    except OSError:
        return ()
    line = next((line for line in status.splitlines() if line.startswith(b"Uid:")), b"")
    return tuple(map(int, line.split()[1:]))


def processes() -> list[Process]:
    """Read every visible process, including zombies."""
    found = (process(int(name)) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208  (see `stat_fields`)
    return [one for one in found if one is not None]


def lineage(pid: int) -> set[int]:
    """Return the pids of a process and of its ancestors."""
    found: set[int] = set()
    while pid and (one := process(pid)) is not None:
        found.add(pid)
        pid = one.parent
    return found


def descendants(roots: Iterable[int], table: Iterable[Process]) -> list[Process]:
    """Return every process in `table` below `roots`, parents first, without the roots themselves, without zombies."""
    children: dict[int, list[Process]] = {}
    for one in table:
        children.setdefault(one.parent, []).append(one)
    found: list[Process] = []
    queue = list(roots)
    for pid in queue:
        for child in children.get(pid, ()):
            queue.append(child.pid)
            if child.state not in "ZX":
                found.append(child)
    return found


def below(root: int) -> list[int]:
    """Return the pids of the processes below `root`, zombies too, at a cost that grows only with their threads.

    It may miss some while processes start and end, so it is good for counting them, not for killing them.
    """
    found: list[int] = []
    queue = [root]
    for pid in queue:
        try:
            threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208  (see `process`)
        except OSError:
            continue  # the process has ended
        for thread in threads:
            try:
                with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:  # noqa: PTH123
                    children = [int(child) for child in file.read().split()]
            except OSError:
                continue
            queue += children
            found += children
    return found


def send(pid: int, number: int) -> bool:
    """Send a signal to a process. Returns False if the process is gone.

    Returns True also for a process that may not be signalled (sudo): it still runs, like a process that hangs in the
    kernel, and a caller that waits for its end must go on waiting.
    """
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def send_group(group: int, number: int) -> bool:
    """Send a signal to a whole process group. False: the group is gone; True also if it may not be signalled."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def out_of_reach(pids: Iterable[int]) -> list[int]:
    """Return those of `pids` whose processes run, but may not be signalled by this process."""
    return sorted(pid for pid in pids if not _may_signal(pid))


def _may_signal(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return True


def freeze(root: int, group: int | None, table: Callable[[], list[Process]] = processes) -> set[int]:
    """Stop every process below `root`, first the whole process group `group` at once. Returns the stopped pids.

    The result includes processes that may not be signalled, so that a call tries each of them once, not in each pass.
    """
    if group is not None:
        send_group(group, signal.SIGSTOP)
    stopped: set[int] = set()
    for _ in range(PASSES_MAX):
        found = [one for one in descendants([root], table()) if one.pid not in stopped and _runs(one, group)]
        if not found:
            break
        for one in found:
            if one.group == group or send(one.pid, signal.SIGSTOP):
                stopped.add(one.pid)
    return stopped


def _runs(one: Process, group: int | None) -> bool:
    # Every process of the group has got the signal, even if its state does not show this yet. A process outside of the
    # group that is stopped already was stopped by the work itself, and must stay stopped when the rest continues.
    return one.group == group or one.state not in "Tt"


def thaw(root: int, group: int | None, stopped: set[int]) -> None:
    """Continue the processes that `freeze` stopped, and the whole group `group`."""
    for one in reversed(descendants([root], processes())):
        if one.pid in stopped and one.group != group:
            send(one.pid, signal.SIGCONT)
    if group is not None:
        send_group(group, signal.SIGCONT)


def kill(root: int, group: int | None) -> set[int]:
    """Kill every process below `root`. Returns their pids.

    Stops the processes first, so that they cannot start others in the meantime.
    """
    freeze(root, group)
    if group is not None:
        send_group(group, signal.SIGKILL)
    found = descendants([root], processes())
    for one in found:
        send(one.pid, signal.SIGKILL)
    return {one.pid for one in found}


def end_children(group: int) -> None:
    """Kill every process below this one, and wait until none is left. `group` is the worker's pid and process group.

    Blocks for as long as one of these processes hangs in the kernel.
    """
    pause_s = END_CHECK_S
    leader: int | None = group
    while True:
        kill(os.getpid(), leader)
        try:
            while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                # The kernel may use the number of a group again once its leader is reaped.
                leader = None if pid == group else leader
        except ChildProcessError:
            return
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, END_CHECK_S_MAX)


def boot_id() -> str:
    """Read the id of this boot of the machine. Pids and start times are comparable within one boot only."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
