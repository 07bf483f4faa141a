"""Recognizes the errors of a full disk."""

import errno
import sqlite3


def is_full(error: BaseException | None) -> bool:
    """Whether a write failed because the disk or a quota is full. It may succeed later.

    >>> is_full(OSError(errno.ENOSPC, "")), is_full(OSError(errno.EIO, "")), is_full(None)
    (True, False, False)
    """
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    code = getattr(error, "sqlite_errorcode", None) if isinstance(error, sqlite3.Error) else None
    return code is not None and code & 0xFF == sqlite3.SQLITE_FULL
