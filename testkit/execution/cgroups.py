"""A cgroup of its own for a test, where this process may make one; with the controllers that the kernel has there."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from node.execution import machine
from node.execution.cgroup import AttemptGroup, Delegation
from node.execution.limits import CONTROLLERS


@contextmanager
def own_cgroup(user: int | None = None) -> Iterator[Path | None]:
    """The folder of a new cgroup without processes, removed at the end; None if this process can make none.

    It is `user`'s, as systemd's `Delegate=yes` would have it.
    """
    own = next(machine.cgroup_folders(Path("/proc"), ""), None)
    folder = None if own is None else own / f"rota-test-{secrets.token_hex(4)}"
    try:
        if folder is not None:
            folder.mkdir()
    except OSError:
        folder = None
    if folder is None:
        yield None
        return
    if user is not None:
        for path in (folder, *(folder / f"cgroup.{name}" for name in ("procs", "threads", "subtree_control"))):
            os.chown(path, user, user)
    try:
        yield folder
    finally:
        assert AttemptGroup(folder, ()).end(), f"{folder} has processes that do not end"


def delegated(folder: Path) -> Delegation:
    """What a node would make of a cgroup in which no process is."""
    there = (folder / "cgroup.controllers").read_text().split()
    with contextlib.suppress(OSError):
        for name in CONTROLLERS.values():
            if name in there:
                (folder / "cgroup.subtree_control").write_text(f"+{name}")
    enabled = (folder / "cgroup.subtree_control").read_text().split()
    return Delegation(str(folder), tuple(name for name in CONTROLLERS.values() if name in enabled))
