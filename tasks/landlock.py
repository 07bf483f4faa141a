"""Landlock: a process gives up, for good, every access to files that it did not name (landlock(7)).

It has three system calls, called here through ctypes; they need no root, and exist since Linux 5.13. A ruleset lists
the accesses that stay allowed. `Ruleset.enter` puts the calling thread into a *domain* with these rules. Its children
inherit the domain, and further domains can only remove rights. Files that are open already stay open. A domain also
keeps its processes from tracing others (and so from reading their environment), and, since ABI 6, from signalling
processes outside and connecting to their abstract sockets.

ABI 1 counts as no Landlock, because it refuses to rename a file into another folder, whatever the rules allow.
"""

import ctypes
import errno
import os
import stat
import struct
from contextlib import suppress
from typing import Final

_CREATE: Final = 444
_ADD: Final = 445
_RESTRICT: Final = 446
"""The numbers of the system calls, the same on every architecture."""

EXECUTE: Final = 1 << 0
WRITE_FILE: Final = 1 << 1
READ_FILE: Final = 1 << 2
READ_FOLDER: Final = 1 << 3
MAKE_CHAR: Final = 1 << 6
MAKE_BLOCK: Final = 1 << 11
REFER: Final = 1 << 13
TRUNCATE: Final = 1 << 14
IOCTL: Final = 1 << 15
_ALL: Final = (1 << 16) - 1

READ: Final = READ_FILE | READ_FOLDER
RUN: Final = READ_FILE | EXECUTE
WRITE: Final = _ALL & ~(EXECUTE | MAKE_CHAR | MAKE_BLOCK | IOCTL)
"""The rights to read, write, make, rename and remove files and folders."""

_OF_A_FILE: Final = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL

_HANDLED: Final = {2: REFER | (REFER - 1), 3: TRUNCATE | (TRUNCATE - 1), 5: _ALL}
"""The rights that Landlock knows, by the first ABI that knows them."""

_NETWORK_SINCE: Final = 4
_TCP: Final = 3
_SCOPES_SINCE: Final = 6
_SCOPES: Final = 3

OLDEST: Final = 2
NEWEST: Final = 7
"""The newest supported ABI. Later ABIs are used like this one; the rights that they add are not supported here."""

_PATH_BENEATH: Final = 1

UNSEEN: Final = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP, errno.ENAMETOOLONG)
"""The error codes for a path at which this user can see no file."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_add = ctypes.CDLL(None, use_errno=True).syscall
_add.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
_add.restype = ctypes.c_long


class CannotConfine(OSError):
    """The kernel has Landlock, but refused a ruleset or a domain. The attempt must not run unconfined."""


def _call(*arguments: object) -> int:
    return _checked(int(_libc.syscall(*arguments)))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise CannotConfine(number, f"landlock: {os.strerror(number)}")
    return result


def abi() -> int:
    """Return the Landlock ABI to use on this kernel, from `OLDEST` to `NEWEST`; 0: it has none, or it is too old."""
    try:
        found = _call(_CREATE, None, ctypes.c_size_t(0), 1)
    except CannotConfine:
        return 0  # ENOSYS, EOPNOTSUPP (not among the kernel's LSMs), EPERM (a container's seccomp filter)
    return 0 if found < OLDEST else min(found, NEWEST)


def handled(version: int) -> int:
    """Return the rights to files that the ABI `version` can take away.

    >>> [handled(version).bit_length() for version in (2, 3, 4, 5, 7)]
    [14, 15, 15, 16, 16]
    """
    return max(rights for since, rights in _HANDLED.items() if since <= version)


def located(path: str, folder: int | None = None, *, follow: bool = False) -> int | None:
    """Open `path`, relative to the open `folder`, with O_PATH. Returns None if this user can see no file there.

    A symlink itself is opened, unless `follow` is set. Raises `OSError`.
    """
    try:
        return os.open(path, os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW), dir_fd=folder)
    except OSError as error:
        if error.errno in UNSEEN:
            return None
        raise


class Ruleset:
    """The rights that a process keeps. `descriptor` may be sent to another process, which makes a `Ruleset` from it."""

    def __init__(self, version: int, descriptor: int) -> None:
        self.version = version
        self.descriptor = descriptor
        self._handled = handled(version)

    @classmethod
    def make(cls, version: int, *, network: bool) -> "Ruleset":
        """Make a ruleset that allows no file yet. `network`: it does not restrict TCP. Raises `CannotConfine`."""
        tcp = 0 if network or version < _NETWORK_SINCE else _TCP
        scopes = _SCOPES if version >= _SCOPES_SINCE else 0
        attribute = struct.pack("=QQQ", handled(version), tcp, scopes)
        # Older kernels know only the first fields of the struct.
        size = 8 if version < _NETWORK_SINCE else 16 if version < _SCOPES_SINCE else 24
        return cls(version, _call(_CREATE, ctypes.create_string_buffer(attribute, 24), ctypes.c_size_t(size), 0))

    def allow(self, path: str | int, rights: int) -> bool:
        """Allow `rights` to the file or folder that is now at `path` (or open as `path`), and to everything below it.

        Symlinks are followed. Returns False if this user can see no file at `path`; access to it then stays refused.
        Raises `CannotConfine`.
        """
        descriptor = located(path, follow=True) if isinstance(path, str) else path
        if descriptor is None:
            return False
        try:
            given = rights & self._handled
            if given & ~_OF_A_FILE and not stat.S_ISDIR(os.fstat(descriptor).st_mode):
                given &= _OF_A_FILE
            if given:
                _checked(_add(_ADD, self.descriptor, _PATH_BENEATH, struct.pack("=Qi", given, descriptor), 0))
        finally:
            if isinstance(path, str):
                os.close(descriptor)
        return True

    def enter(self) -> None:
        """Put the calling thread into the domain, irreversibly. PR_SET_NO_NEW_PRIVS must be set before.

        Raises `CannotConfine`.
        """
        _call(_RESTRICT, self.descriptor, 0)

    def close(self) -> None:
        """Close the descriptor."""
        with suppress(OSError):
            os.close(self.descriptor)
