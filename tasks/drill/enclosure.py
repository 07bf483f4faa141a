"""Encloses a scratch server in a domain of its own, inside that of its attempt, because a backup's content is code.

Whoever may make a table in a database may give it a constraint or a generated column that calls a function. A restore
evaluates these as the superuser who restores, and a superuser runs programs of the machine. So the server, and whatever
it starts, writes its own folder only, neither traces nor signals the attempt, which holds keys, and has no network.
"""

import ctypes
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tasks.landlock import EXECUTE, READ, READ_FILE, WRITE, WRITE_FILE, Ruleset, abi
from tasks.seccomp import enter_filter, is_supported, made_program

_SYSTEM: Final = ("/bin", "/etc", "/lib", "/lib32", "/lib64", "/opt", "/sbin", "/usr")
"""Programs, libraries and the settings that they read, as far as the attempt's own domain allows them."""

_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
_PR_SET_NO_NEW_PRIVS: Final = 38

_libc = ctypes.CDLL(None, use_errno=True)


class Enclosure:
    """A domain that a process enters between fork and exec (`enter`).

    It writes in `folder` only, and reads and runs what is in `_SYSTEM` and `programs`. `reaches`: it also reads all
    that the attempt may, and uses the network, to fetch archived log. Raises `CannotConfine`.
    """

    def __init__(self, folder: Path, programs: Iterable[str], *, reaches: bool = False) -> None:
        self._network = reaches
        self._ruleset: Ruleset | None = None
        if is_supported():
            made_program(network=reaches)  # here, so that there is less to do after a fork
        if (version := abi()) == 0:
            return
        self._ruleset = Ruleset.make(version, network=reaches)
        for path in ("/",) if reaches else (*_SYSTEM, *programs):
            self._ruleset.allow(path, READ | EXECUTE)
        for path in _DEVICES:
            self._ruleset.allow(path, READ_FILE | WRITE_FILE)
        self._ruleset.allow(str(folder), WRITE)

    def enter(self) -> None:
        """Enter the domain, irreversibly. For a forked child that executes a program next. Raises `OSError`."""
        if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS)")
        enter_filter(network=self._network)
        if self._ruleset is not None:
            self._ruleset.enter()

    def close(self) -> None:
        """Give up the ruleset; processes that have entered stay enclosed."""
        if self._ruleset is not None:
            self._ruleset.close()
