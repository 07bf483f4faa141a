"""Memory that was freed, back to the system: the C library keeps it for the next allocation."""

import ctypes


def give_back() -> None:
    """Have the C library give back what is free. Takes milliseconds; does nothing where it is not glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))
