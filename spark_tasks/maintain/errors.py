"""The errors of the maintenance of a table."""

from tasks.kind import Unretryable


class NoTable(Unretryable):
    """There is no Delta table at that path or URL."""


class FileUnreadable(Unretryable):
    """A file that the table's log names is not there, or cannot be read. Nothing was changed."""


class RewriteDiffers(Unretryable):
    """The rows in the new files differ from those in the old ones. Nothing was committed, and nothing was removed."""


class KeepTooShort(Unretryable):
    """`keep_h` is less than the table's own properties require."""


class NoRoom(Exception):
    """A disk is full, or has too little room for a sort. Earlier commits stay."""


class TableInUse(Exception):
    """Other writers kept changing files while they were rewritten, or another attempt maintains the table."""


class MaintainStopped(Exception):
    """The attempt was asked to stop. Its completed steps stay in effect; the next run does the other steps."""
