"""Which URLs can be the destination of backups."""

from typing import Final

from tasks.access import check_protocol
from tasks.place import check_url

KEEPS_NOTHING: Final = {
    "memory": "its content is lost when the run ends",
    **dict.fromkeys(("http", "https"), "it is read-only"),
}
"""The file systems that a task may name as a source but not as the destination of a backup, and why."""


def checked(url: str) -> str:
    """`url`, if its text allows it as a destination. Raises `ValueError`. Touches no file."""
    if (protocol := check_protocol(url)) in KEEPS_NOTHING:
        raise ValueError(
            f"{protocol}:// cannot keep a backup ({KEEPS_NOTHING[protocol]}): give a folder or an s3:// URL"
        )
    check_url(url)
    return url
