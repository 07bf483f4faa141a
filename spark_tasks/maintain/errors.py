"""How a maintenance of a table fails."""

from tasks.kind import Unretryable


class NoTable(Unretryable):
    """There is no Delta table at that path or URL."""


class FileUnreadable(Unretryable):
    """A file that the table's log names is not there, or cannot be read. Nothing was changed."""


class RewriteDiffers(Unretryable):
    """The rows in the new files are not those of the old ones. Nothing was committed, and nothing was removed."""


class KeepTooShort(Unretryable):
    """`keep_h` is less than the table's own properties ask for."""


class NoRoom(Exception):
    """A disk is full, or has too little room for a sort. What was committed before, stays."""


class TableInUse(Exception):
    """Others changed the files that were being rewritten, again and again, or maintain the table themselves."""


class MaintainStopped(Exception):
    """The attempt was asked to stop. The steps that it has done count; the next run does the others."""
