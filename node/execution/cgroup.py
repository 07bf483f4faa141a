"""Gives each attempt a cgroup (v2) of its own if cgroups are delegated to the node, so the kernel enforces its limits.

A node that is started in a cgroup of its own (systemd's `Delegate=yes`, a container whose cgroup file system can be
written) moves itself into the child group `rota-node`, and its attempts get groups beside that. All processes of a
group can be killed at once, so attempts get groups even if the kernel offers no controllers.
"""

import contextlib
import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from node.execution import machine, process_tree
from node.execution.limits import CONTROLLERS, Amounts

_log = logging.getLogger(__name__)

NODE: Final = "rota-node"
"""The group of the node's own processes: the node, its nursery, the supervisors."""

ATTEMPT: Final = "rota-attempt-"
"""The prefix of the names of attempts' groups. The pid and the start time of the supervisor follow."""

PERIOD_US: Final = 100_000
"""The period of a group's CPU quota, in microseconds."""

EMPTY_S: Final = 5.0
EMPTY_CHECK_S: Final = 0.002
"""How long to wait until a killed group is empty, and the pause between two checks."""


@dataclass(frozen=True, slots=True)
class Delegation:
    """The cgroup below which attempts get their groups; "" if there is none. `controllers` are enabled in it.

    `why_not` says why there is no such group, or why some controllers are not enabled; "" if all is well.
    """

    folder: str = ""
    controllers: tuple[str, ...] = ()
    why_not: str = ""

    def words(self) -> list[str]:
        """Encode as arguments of a program, without `why_not`."""
        return [self.folder, ",".join(self.controllers)]


NOTHING_DELEGATED: Final = Delegation(why_not="no cgroup was asked for")


def delegation_of(words: list[str]) -> Delegation:
    """Decode the words from `Delegation.words`."""
    folder, controllers = words
    return Delegation(folder, tuple(filter(None, controllers.split(","))))


class NotDelegated(Exception):
    """The cgroup of this process cannot have groups for attempts. The message says why."""


def take_over(proc: Path = Path("/proc")) -> Delegation:
    """If this process's cgroup is delegated to it, enable the controllers there and move the process into a child.

    Call this before the node starts any other process, because it kills the processes that an earlier start left in the
    groups of attempts. It never raises: `why_not` of the result says what is missing.
    """
    try:
        base = next(machine.cgroup_folders(proc, ""), None)
        if base is None:
            raise NotDelegated("the kernel has none, or it is not mounted here")
        if base.name == NODE and os.access(base.parent / "cgroup.procs", os.W_OK):
            base = base.parent  # the process moved itself into the child before it re-executed itself
        _check_writable(base)
        _move(base)
        controllers, why_not = _enable(base)
    except (NotDelegated, OSError) as error:
        return Delegation(why_not=f"no cgroup v2 is delegated to this node: {error}")
    for left in base.glob(f"{ATTEMPT}*"):
        if not AttemptGroup(left, ()).end():
            _log.error("the cgroup %s of an earlier attempt cannot be emptied: its processes do not end", left)
    return Delegation(str(base), controllers, why_not)


def _check_writable(base: Path) -> None:
    if not (base / "cgroup.type").exists():
        raise NotDelegated("the node was started in the machine's root cgroup (start it by systemd, or in a container)")
    for path in (base, base / "cgroup.procs", base / "cgroup.subtree_control"):
        if not os.access(path, os.W_OK):
            raise NotDelegated(
                f"{path} cannot be written (systemd: Delegate=yes, and no ProtectControlGroups=yes; Docker mounts it "
                "read-only)"
            )


def _move(base: Path) -> None:
    """Move this process, and its parents in the same cgroup (a container's init), into the node's own group."""
    ours = process_tree.lineage(os.getpid())
    inside = [int(pid) for pid in (base / "cgroup.procs").read_text().split()]
    if others := [pid for pid in inside if pid not in ours]:
        raise NotDelegated(
            f"other processes are in {base}: {', '.join(map(str, others[:5]))}; start the node in a cgroup of its own"
        )
    node = base / NODE
    node.mkdir(exist_ok=True)
    for pid in inside:
        (node / "cgroup.procs").write_text(str(pid))


def _enable(base: Path) -> tuple[tuple[str, ...], str]:
    """Enable the controllers for attempts' groups. Returns the enabled ones, and why the others are not enabled."""
    there = (base / "cgroup.controllers").read_text().split()
    why = [f"the controller {name} is not delegated to {base}" for name in CONTROLLERS.values() if name not in there]
    for name in CONTROLLERS.values():
        if name in there:
            try:
                (base / "cgroup.subtree_control").write_text(f"+{name}")
            except OSError as error:
                why.append(f"the controller {name} cannot be enabled in {base}: {error.strerror}")
    enabled = (base / "cgroup.subtree_control").read_text().split()
    return tuple(name for name in CONTROLLERS.values() if name in enabled), "; ".join(why)


class AttemptGroup:
    """The cgroup of one attempt, at `path`. `controllers` are the controllers that enforce limits in it."""

    def __init__(self, path: Path, controllers: tuple[str, ...]) -> None:
        self.path = path
        self.controllers = controllers

    @classmethod
    def made(cls, delegation: Delegation, pid: int) -> "AttemptGroup | None":
        """Make a group for the attempt that this process supervises, and move the process `pid` into it.

        Returns None if no cgroup is delegated. Takes some 10 ms, because the kernel waits until no fork is in progress
        on any processor. Raises `OSError`.
        """
        if not delegation.folder:
            return None
        own = process_tree.process(os.getpid())
        path = Path(delegation.folder) / f"{ATTEMPT}{os.getpid()}-{own.started if own else 0}"
        path.mkdir()
        group = cls(path, delegation.controllers)
        try:
            group._write("cgroup.procs", str(pid))
        except OSError:
            path.rmdir()
            raise
        return group

    def bound(self, may: Amounts) -> None:
        """Have the kernel enforce these limits if their controllers are enabled. Raises `OSError`."""
        if "memory" in self.controllers:
            self._write("memory.max", _or_max(may.memory))
            for name, value in (
                ("memory.swap.max", "0" if may.memory is not None else "max"),
                ("memory.oom.group", "1"),
            ):
                # A kernel without swap, or older than 4.19, does not have these files.
                if (self.path / name).exists():
                    self._write(name, value)
        if "pids" in self.controllers:
            self._write("pids.max", _or_max(may.processes))
        if "cpu" in self.controllers:
            share = None if may.cpu_milli is None else may.cpu_milli * PERIOD_US // 1000
            self._write("cpu.max", f"{_or_max(share)} {PERIOD_US}")

    def out_of_memory(self) -> bool:
        """Whether the kernel has killed processes of the group for want of memory."""
        return "memory" in self.controllers and self._events("memory.events").get("oom_kill", 0) > 0

    def forks_refused(self) -> int:
        """Return how often the kernel has refused to let the group start a process."""
        return self._events("pids.events").get("max", 0) if "pids" in self.controllers else 0

    def kill(self) -> None:
        """Kill every process of the group at once, those of other users too.

        Kernels before 5.14 cannot do this. So the caller always kills the processes one by one afterwards.
        """
        with contextlib.suppress(OSError):
            self._write("cgroup.kill", "1")

    def end(self, wait_s: float = EMPTY_S) -> bool:
        """Kill the group's processes, and remove the group. Blocks. Returns False if some remain after `wait_s`."""
        until_s = time.monotonic() + wait_s
        while True:
            self.kill()
            try:
                for folder, _, _ in os.walk(self.path, topdown=False):  # the attempt may have made groups of its own
                    Path(folder).rmdir()
            except FileNotFoundError:
                return True
            except OSError:
                if time.monotonic() > until_s:
                    return False
                time.sleep(EMPTY_CHECK_S)
            else:
                return True

    def _events(self, name: str) -> dict[str, int]:
        lines = (line.split() for line in (self.path / name).read_text().splitlines())
        return {key: int(value) for key, value in lines}

    def _write(self, name: str, value: str) -> None:
        (self.path / name).write_text(value)


def _or_max(value: int | None) -> str:
    return "max" if value is None else str(value)
