"""How deltalake spells the path of a file in a table's log.

deltalake encodes the paths that a commit names by itself. If another program has spelled a file's path in another way,
deltalake's entry does not name that file: a commit that should take it out of the table leaves it in.
"""

from typing import Final
from urllib.parse import quote, unquote

_PLAIN: Final = "/!$&'()+,:;=@~"
"""The characters that deltalake does not encode, beside letters, digits, `-`, `.` and `_`."""


def spelled_path(spelled: str) -> str | None:
    """The path of a file that the log spells so; None if deltalake would spell it in another way.

    >>> spelled_path("at=05%253A00/part%200.parquet")
    'at=05%3A00/part 0.parquet'
    >>> spelled_path("at=ü/part-0.parquet"), spelled_path("at=%3D/part-0.parquet")
    (None, None)
    """
    path = unquote(spelled)
    return path if quote(path, safe=_PLAIN) == spelled else None
