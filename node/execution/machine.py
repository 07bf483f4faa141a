"""Reads how much memory this process may use: that of the machine, or less if its container or service has a limit."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")


def memory_bytes(proc: Path = _PROC) -> int:
    """Return the machine's memory, or a lower memory limit of a cgroup that contains this process. Raises `OSError`."""
    bounds = [_meminfo(proc, "MemTotal")]
    for folder, name in _memory_cgroups(proc):
        with contextlib.suppress(OSError, ValueError):  # not readable, or "max": no bound there
            bounds.append(int((folder / name).read_text()))
    return min(bounds)


def free_bytes(proc: Path = _PROC) -> int:
    """Return how much of the machine's memory could be used without swapping. Raises `OSError`."""
    return _meminfo(proc, "MemAvailable")


def _meminfo(proc: Path, field: str) -> int:
    for line in (proc / "meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == field:
            return int(rest.split()[0]) * 1024
    raise OSError(f"{proc}/meminfo has no {field}")


def cgroup_folders(proc: Path, controller: str) -> Iterator[Path]:
    """Yield the folder of this process's cgroup, and its parents up to the mount point.

    `controller` is a controller of cgroup v1; "": cgroup v2. Yields no folder if this kernel has no such cgroups, or
    they are not mounted.
    """
    own = next(
        (
            Path(path)
            for _, names, path in (line.split(":", 2) for line in (proc / "self/cgroup").read_text().splitlines())
            if controller in names.split(",")
        ),
        None,
    )
    for line in (proc / "self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        root, mounted_at = before.split()[3:5]
        right = controller in options.split(",") if kind == "cgroup" else kind == "cgroup2" and not controller
        if right and own is not None and own.is_relative_to(root):
            folder = Path(mounted_at) / own.relative_to(root)
            yield folder
            while folder != Path(mounted_at):
                folder = folder.parent
                yield folder
            return


def _memory_cgroups(proc: Path) -> Iterator[tuple[Path, str]]:
    yield from ((folder, "memory.max") for folder in cgroup_folders(proc, ""))
    yield from ((folder, "memory.limit_in_bytes") for folder in cgroup_folders(proc, "memory"))
