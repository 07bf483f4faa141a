"""Processes of this machine, as a test looks for them."""

from collections.abc import Iterable
from pathlib import Path

from node.execution import process_tree
from tasks.processes import MARK


def marked(folder: Path) -> list[int]:
    """The processes of the attempts of the node with that data folder, and of what starts them: they bear its mark."""
    mark = f"{MARK}={folder.resolve()}".encode()
    return [pid for pid in _pids() if mark in _environment(pid)]


def described(pid: int) -> str:
    """A process for an error: its pid, parent, state and command."""
    found = process_tree.process(pid)
    if found is None:
        return f"{pid}: gone"
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError as error:
        command = f"its command cannot be read ({error.strerror})"
    return f"{pid} (parent {found.parent}, state {found.state}): {command}"


def process_state(pid: int) -> str:
    """A process's state as the kernel names it: R, S, D, T, Z; empty if there is none of that pid."""
    found = process_tree.process(pid)
    return "" if found is None else found.state


def _pids() -> Iterable[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
