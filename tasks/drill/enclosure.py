"""Encloses a scratch server in a domain of its own, inside that of its attempt, because a backup's content is code.

Whoever may make a table in a database may give it a constraint or a generated column that calls a function. A restore
evaluates these as the superuser who restores, and a superuser runs programs of the machine and loads libraries. So the
server runs no other program, opens nothing but its own folder, the system's libraries and what they read, uses no
network, connects to no socket, and neither traces nor signals the attempt, which holds keys.

`python -P -m tasks.drill.enclosure ROOM PROGRAM ARGUMENT...` enters the domain and becomes the server. It imports
nothing large, because the drill waits for it. A kernel without Landlock restricts system calls only.
"""

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Final, NamedTuple

from tasks.landlock import READ, READ_FILE, RUN, WRITE, WRITE_FILE, Ruleset, abi
from tasks.seccomp import enter_filter

_SYSTEM: Final = ("/etc", "/lib", "/lib32", "/lib64", "/opt", "/usr")
"""Libraries and the settings that they read, as far as the attempt's own domain allows them."""

_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
_LOADERS: Final = ("lib64/ld-linux-*.so.*", "lib/ld-linux-*.so.*", "lib/ld-musl-*.so.*")
_PR_SET_NO_NEW_PRIVS: Final = 38


class ServerRoom(NamedTuple):
    """The folders of an enclosed server."""

    #: Folders that it may read, beside the system's.
    reads: tuple[str, ...]
    #: Folders in which it may write, make and remove files.
    writes: tuple[str, ...]

    def argv(self, program: str, *arguments: str) -> list[str]:
        """Return the command line by which `program` becomes a server in this room."""
        return [sys.executable, "-P", "-m", "tasks.drill.enclosure", json.dumps(self), program, *arguments]


def enclose(room: ServerRoom, program: str) -> None:
    """Give up, irreversibly, all rights but those of a server in `room` that runs `program`. Raises `OSError`."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS)")
    enter_filter(network=False, calls=False)
    if not (version := abi()):
        return
    ruleset = Ruleset.make(version, network=False)
    loaders = [str(path) for pattern in _LOADERS for path in Path("/").glob(pattern)]
    for paths, rights in (
        ((*_SYSTEM, *room.reads), READ),
        (_DEVICES, READ_FILE | WRITE_FILE),
        (room.writes, READ | WRITE),
        ((program, *loaders), RUN),
    ):
        for path in paths:
            ruleset.allow(path, rights)
    ruleset.enter()
    ruleset.close()


if __name__ == "__main__":
    given, program, *arguments = sys.argv[1:]
    enclose(ServerRoom(*json.loads(given)), program)
    os.execv(program, [program, *arguments])  # noqa: S606  no shell is wanted
