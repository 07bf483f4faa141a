"""Recognizes the errors of a full disk."""

import errno
import os
import sqlite3
from pathlib import Path
from typing import Final

AMPLE_BYTES: Final = 16 << 20
"""With this much free space, a small write does not fail for lack of space."""


def is_full(error: BaseException | None) -> bool:
    """Whether a write failed because the disk or a quota is full, so that it may succeed later.

    >>> is_full(OSError(errno.ENOSPC, "")), is_full(OSError(errno.EIO, "")), is_full(None)
    (True, False, False)
    """
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    code = getattr(error, "sqlite_errorcode", None) if isinstance(error, sqlite3.Error) else None
    return code is not None and code & 0xFF == sqlite3.SQLITE_FULL


def has_ample_room(folder: Path) -> bool:
    """Whether the file system of `folder` has at least `AMPLE_BYTES` of free space. Raises `OSError`."""
    space = os.statvfs(folder)
    return space.f_bavail * space.f_frsize >= AMPLE_BYTES
