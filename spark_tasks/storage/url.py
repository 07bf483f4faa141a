"""Decides which URLs are local paths, and which can be a table's (pure)."""

import re
from typing import Final

from tasks.access import check_protocol
from tasks.places.place import check_url

_SEGMENT: Final = re.compile(r"[A-Za-z0-9._=-]+")


def is_local(url: str) -> bool:
    """Whether `url` is a local path.

    >>> is_local("/data/*.csv"), is_local("file:///data/*.csv"), is_local("s3://bucket/*.csv")
    (True, True, False)
    """
    return "://" not in url or url.startswith(("file://", "local://"))


def without_protocol(url: str) -> str:
    """Return the path of a local URL.

    >>> without_protocol("file:///data/flights"), without_protocol("/data/flights")
    ('/data/flights', '/data/flights')
    """
    return url.partition("://")[2] if "://" in url else url


def table_url(url: str, *, what: str = "a table") -> str:
    """Normalize `url` for all libraries: without a slash at its end, and with the usual name of its protocol.

    Raises `ValueError` for anything but a local folder or a prefix in an S3 bucket. In the error, `what` says what the
    URL is for. Names in a bucket may have only characters that fsspec and deltalake read in the same way, because
    deltalake decodes URLs.

    >>> table_url("s3a://lake/flights/"), table_url("/data/flights"), table_url("file:///data/flights")
    ('s3://lake/flights', '/data/flights', 'file:///data/flights')
    """
    protocol = check_protocol(url)
    check_url(url)
    if protocol == "":
        return url
    if protocol != "s3":
        raise ValueError(
            f"{what} cannot be at {protocol}://: give a folder (/PATH or file:///PATH) or s3://BUCKET/PREFIX"
        )
    path = url.partition("://")[2].rstrip("/")
    segments = path.split("/")
    if len(segments) < 2:
        raise ValueError(f"{what} must be at s3://BUCKET/PREFIX: it cannot be a whole bucket")
    if not all(_SEGMENT.fullmatch(segment) and segment.strip(".") for segment in segments):
        raise ValueError(
            f"s3://BUCKET/PREFIX of {what} consists of ASCII letters, digits, '.', '_', '=' and '-', in parts that one "
            "'/' separates"
        )
    return f"s3://{path}"
