"""Text from elsewhere as a terminal or a log may show it: what would steer a terminal is spelled out.

Names, paths and errors come from whoever may register a task. An escape sequence in one could change a terminal's
title, clear its screen or paint over what stands there; a carriage return, or a mark that turns the direction of
writing, could make a line say something else.
"""

import re
from typing import Final

_STEERING: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_BREAKS: Final = re.compile("[\t\n]")


def plain(text: str) -> str:
    r"""`text` with control characters and marks of direction as escapes. Line breaks and tabs stay.

    >>> plain("a\x1b[31mb\r\u202ec\n")
    'a\\x1b[31mb\\r\\u202ec\n'
    """
    return _STEERING.sub(_spelled, text)


def plain_line(text: str) -> str:
    r"""As `plain`, and all on one line.

    >>> plain_line("a\nb")
    'a\\nb'
    """
    return _BREAKS.sub(_spelled, plain(text))


def _spelled(found: re.Match[str]) -> str:
    return repr(found[0])[1:-1]
