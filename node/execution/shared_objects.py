"""Removes shared memory, semaphores and queues that attempts with a user id of their own leave behind (ROTA_WORK_UIDS).

Only an object's user tells which attempt it belongs to: the kernel records the creating process only for System V's
shared memory, by a pid that another process may have by now. Objects of an attempt without its own user id stay.
"""

import ctypes
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

_REMOVE: Final = 0
"""IPC_RMID."""

_libc = ctypes.CDLL(None)
_SYSTEM_V: Final[Mapping[str, Callable[[int], int]]] = {
    "shm": lambda number: int(_libc.shmctl(number, _REMOVE, None)),
    "sem": lambda number: int(_libc.semctl(number, 0, _REMOVE)),
    "msg": lambda number: int(_libc.msgctl(number, _REMOVE, None)),
}
_POSIX: Final = (Path("/dev/shm"), Path("/dev/mqueue"))  # noqa: S108  an ordinary file system in memory, for all users
"""Folders of POSIX shared memory and message queues. Queues are found only if their file system is mounted."""


def remove_shared(uids: range) -> None:
    """Remove the shared objects of the users `uids`. These users have no process now, and belong to no other program.

    This process can become these users. Objects that cannot be removed stay. Raises `OSError` if fork fails.
    """
    owners = {uid for kind in _SYSTEM_V for _, uid in _rows(kind)} | {uid for _, uid in _files()}
    for uid in sorted(owners.intersection(uids)):
        # A child becomes that user: without all of root's rights, a process removes only its own user's objects.
        pid = os.fork()
        if pid == 0:
            _remove_and_exit(uid)
        os.waitpid(pid, 0)


def _remove_and_exit(uid: int) -> NoReturn:
    try:
        os.setgroups(())
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        for kind, remove in _SYSTEM_V.items():
            for number in [number for number, owner in _rows(kind) if owner == uid]:
                remove(number)
        for path in [path for path, owner in _files() if owner == uid]:
            with suppress(OSError):
                path.unlink()
    finally:
        os._exit(0)


def _rows(kind: str) -> Iterator[tuple[int, int]]:
    """The numbers of System V's objects of a kind, and the users that created them."""
    try:
        head, *rows = Path(f"/proc/sysvipc/{kind}").read_text().splitlines()
    except OSError:
        return  # a kernel without them
    columns = head.split()
    for row in rows:
        values = dict(zip(columns, map(int, row.split()), strict=False))  # a key may be negative
        yield values[f"{kind}id" if kind != "msg" else "msqid"], values["cuid"]


def _files() -> Iterator[tuple[Path, int]]:
    for folder in _POSIX:
        with suppress(OSError):
            for path in folder.iterdir():
                with suppress(OSError):  # it has gone meanwhile
                    yield path, path.lstat().st_uid
