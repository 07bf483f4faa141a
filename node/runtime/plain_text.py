"""Makes untrusted text safe for a terminal or a log, by escaping control characters.

Names, paths and errors come from clients that may register tasks. An escape sequence in such a text could change a
terminal's title, clear its screen or overwrite text; a carriage return or a bidirectional mark could make a line read
differently.
"""

import re
from typing import Final

_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_BREAKS: Final = re.compile("[\t\n]")


def plain(text: str) -> str:
    r"""Escape control characters and bidirectional marks in `text`. Line breaks and tabs stay.

    >>> plain("a\x1b[31mb\r\u202ec\n")
    'a\\x1b[31mb\\r\\u202ec\n'
    """
    return _CONTROL.sub(_escaped, text)


def plain_line(text: str) -> str:
    r"""Escape like `plain`, and line breaks and tabs too.

    >>> plain_line("a\nb")
    'a\\nb'
    """
    return _BREAKS.sub(_escaped, plain(text))


def _escaped(found: re.Match[str]) -> str:
    return repr(found[0])[1:-1]
