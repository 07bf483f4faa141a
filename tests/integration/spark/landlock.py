"""Confines this process and what it starts, by Landlock: which programs may be executed. For tests.

Everything may be read and written; what is not named may not be executed, a shell among it.
"""

import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_EXECUTE: Final = 1
_PATH_BENEATH: Final = 1
_ASK_VERSION: Final = 1
_NO_NEW_PRIVILEGES: Final = 38

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long


def supported() -> bool:
    """Whether this kernel has Landlock."""
    return int(_LIBC.syscall(_CREATE, None, 0, _ASK_VERSION)) >= 1


def execute_only(programs: Iterable[Path]) -> None:
    """From now on these programs may be executed, those in folders that are named among them, and no others."""
    attribute = struct.pack("Q", _EXECUTE)
    rules = _called(_CREATE, ctypes.create_string_buffer(attribute, len(attribute)), len(attribute), 0)
    for program in programs:
        opened = os.open(program, os.O_PATH)
        _called(_ADD, rules, _PATH_BENEATH, ctypes.create_string_buffer(struct.pack("=Qi", _EXECUTE, opened)), 0)
        os.close(opened)
    _LIBC.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    _called(_RESTRICT, rules, 0)
    os.close(rules)


def _called(*arguments: object) -> int:
    result = int(_LIBC.syscall(*arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
