"""How this process asks the kernel for memory."""

import ctypes
from typing import Final

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
"""Numbers of settings in glibc's malloc.h."""

_MAPPED_FROM_BYTES: Final = 4 << 20
_KEPT_BYTES: Final = 16 << 20


def keep_freed_memory() -> None:
    """Let the C library keep freed memory, 16 MiB of each heap at most, and use it again (mallopt(3)).

    Content passes in pieces of a megabyte. For each, glibc would map memory anew, and the kernel would fill it with
    zeros: a twentieth of a backup's time. Other C libraries have no such setting.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _MAPPED_FROM_BYTES)
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
