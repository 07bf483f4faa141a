"""Whether attempts can be started on this machine, as those hear of it who claim them."""

import errno
from typing import Final, Protocol

SCARCE: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.ENOBUFS})
"""What the kernel says where descriptors, processes or memory have run out."""


def scarce(error: BaseException) -> bool:
    """Whether this is want of descriptors, processes or memory, and no other fault.

    >>> scarce(OSError(errno.EMFILE, "")), scarce(MemoryError()), scarce(ValueError())
    (True, True, False)
    """
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in SCARCE)


class Ability(Protocol):
    """Hears of each attempt whether it could be started."""

    def cannot_start(self, why: str) -> None:
        """One could not, for want of descriptors, processes or memory."""

    def started(self) -> None:
        """One works here."""


class Able:
    """Leaves it at that."""

    def cannot_start(self, why: str) -> None:
        """One could not."""

    def started(self) -> None:
        """One works here."""
