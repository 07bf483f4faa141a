"""The errors by which this machine lacks the resources to start attempts, and the port that is notified of them."""

import errno
from typing import Final, Protocol

SCARCE: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.ENOBUFS})
"""The kernel's error codes when descriptors, processes or memory have run out."""


def scarce(error: BaseException) -> bool:
    """Whether `error` means that descriptors, processes or memory have run out.

    >>> scarce(OSError(errno.EMFILE, "")), scarce(MemoryError()), scarce(ValueError())
    (True, True, False)
    """
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in SCARCE)


class LaunchObserver(Protocol):
    """Is notified, for each attempt, whether it could be started."""

    def cannot_start(self, why: str) -> None:
        """Note that an attempt could not be started, for lack of descriptors, processes or memory."""

    def started(self) -> None:
        """Note that an attempt has started."""


class IgnoreLaunches:
    """A `LaunchObserver` that does nothing."""

    def cannot_start(self, why: str) -> None:
        """Do nothing."""

    def started(self) -> None:
        """Do nothing."""
