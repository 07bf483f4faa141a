"""Removes shared memory, semaphores and queues that attempts with a user id of their own leave behind (ROTA_WORK_UIDS).

Objects are removed by their user id, because the kernel does not reliably record which process created an object: only
System V's shared memory has a pid, and another process may have that pid by now. So if an attempt had no user id of its
own, its objects stay.
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
    """Remove the shared objects of the users `uids`, who must have no process now, and be used by no other program.

    This process must be able to become these users. Objects that cannot be removed stay. Raises `OSError` if fork
    fails.
    """
    owners = {uid for kind in _SYSTEM_V for _, uid in _rows(kind)} | {uid for _, uid in _files()}
    for uid in sorted(owners.intersection(uids)):
        # A child becomes that user, because a process without all of root's rights removes only its own user's objects.
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
    """Yield the number of each System V object of a kind, and the user id that created it."""
    try:
        head, *rows = Path(f"/proc/sysvipc/{kind}").read_text().splitlines()
    except OSError:
        return  # this kernel has no such objects
    columns = head.split()
    for row in rows:
        values = dict(zip(columns, map(int, row.split()), strict=False))  # a key may be negative
        yield values[f"{kind}id" if kind != "msg" else "msqid"], values["cuid"]


def _files() -> Iterator[tuple[Path, int]]:
    for folder in _POSIX:
        with suppress(OSError):
            for path in folder.iterdir():
                with suppress(OSError):  # the object was removed meanwhile
                    yield path, path.lstat().st_uid
