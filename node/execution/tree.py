"""The processes of an attempt: found through /proc, stopped, continued and killed, whatever group they are in.

A worker leads a session and a process group of its own, but what it starts may leave both (`setsid`, PySpark's
daemon). Because the supervisor adopts orphans, everything that the work has started stays below it.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

PASSES_MAX = 64
"""Each pass stops all it finds, so that only those not yet found can start others; a few passes suffice."""


@dataclass(frozen=True, slots=True)
class Process:
    """A line of the process table. `started` is in clock ticks since boot: with the pid, it names a process."""

    pid: int
    parent: int
    group: int
    session: int
    state: str
    started: int


def process(pid: int) -> Process | None:
    """The process with that pid, or None if there is none."""
    try:
        # No pathlib: this is read for every process of the machine while an attempt waits to be frozen.
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            line = os.read(descriptor, 4096)
        finally:
            os.close(descriptor)
    except (FileNotFoundError, ProcessLookupError):
        return None
    except PermissionError:
        return _unreadable(pid)
    # The name, in parentheses, may hold spaces and parentheses itself.
    values = line[line.rindex(b")") + 2 :].split()
    return Process(pid, int(values[1]), int(values[2]), int(values[3]), values[0].decode(), int(values[19]))


def _unreadable(pid: int) -> Process | None:
    """What the kernel tells anybody of a process whose line is kept from us (a /proc with hidepid)."""
    try:
        # No start is taken for a late one: what is in an attempt's session is rather believed to be the attempt's.
        return Process(pid, 0, os.getpgid(pid), os.getsid(pid), "?", sys.maxsize)
    except OSError:
        return None


def processes() -> list[Process]:
    """Every process that can be seen, zombies included."""
    found = (process(int(name)) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208  (see `process`)
    return [one for one in found if one is not None]


def descendants(roots: Iterable[int], table: Iterable[Process]) -> list[Process]:
    """Everything in `table` below `roots`, parents first; not the roots themselves, and no zombies."""
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


def send(pid: int, number: int) -> bool:
    """Send a signal to a process. False if it is gone.

    One that we may not signal (sudo) is still there, like one that hangs in the kernel: whoever waits for it to
    stop or to end waits on, and must not end over it.
    """
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def send_group(group: int, number: int) -> bool:
    """Send a signal to a process group, all at once. False if it is gone; as `send` where we may signal none of it."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def out_of_reach(pids: Iterable[int]) -> list[int]:
    """Those of `pids` that run and that we may not signal."""
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
    """Stop everything below `root`, the process group `group` first and at once. The pids that it stopped.

    Those that are out of reach are among them: they are tried again at the next look, and not at the next pass.
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
    # Of our own group all are stopped, the state may just not show it yet; of the others, those that are
    # stopped already were so by their own choice, and are to stay so when the rest goes on.
    return one.group == group or one.state not in "Tt"


def thaw(root: int, group: int | None, stopped: set[int]) -> None:
    """Let what `freeze` stopped go on, and all that is in `group`."""
    for one in reversed(descendants([root], processes())):
        if one.pid in stopped and one.group != group:
            send(one.pid, signal.SIGCONT)
    if group is not None:
        send_group(group, signal.SIGCONT)


def kill(root: int, group: int | None) -> set[int]:
    """Kill everything below `root`, and say what there was.

    It is stopped first: what is stopped starts nothing new behind our back.
    """
    freeze(root, group)
    if group is not None:
        send_group(group, signal.SIGKILL)
    found = descendants([root], processes())
    for one in found:
        send(one.pid, signal.SIGKILL)
    return {one.pid for one in found}


def boot_id() -> str:
    """Names this start of the machine: pids and start times compare within it only."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
