"""The errors of an object store: the errors of its libraries, each as one sentence that says what to do."""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tasks.errors import Away, Failed
from tasks.places.place import NoBucket

if TYPE_CHECKING:
    from tasks.places.place import Place


class NoPermission(Failed):
    """The object store refuses the credentials. Another attempt resolves them again."""


class StoreAway(Away):
    """The object store does not answer, or answers that it is overloaded."""


_NAMED: Final = {kind.__name__: kind for kind in (NoBucket, NoPermission, StoreAway)}
_QUOTED: Final = re.compile(
    rf"\b(?:{'|'.join(re.escape(kind.__module__) for kind in _NAMED.values())})\.({'|'.join(_NAMED)}): (.+)"
)
"""Matches one of this module's errors in a text that quotes it with its module, as a Python traceback does."""

_NO_BUCKET: Final = re.compile(r"NoSuchBucket|specified bucket does not exist")
_REFUSED: Final = re.compile(
    r"AccessDenied|Access Denied|Forbidden|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|InvalidToken"
    r"|TokenRefreshRequired|Unable to locate credentials|NoCredentials|status code: 40[13]|\b403 "
)
_AWAY: Final = re.compile(
    r"Could not connect|Connect(?:ion)? ?(?:timeout|was closed|refused|reset)|Connection error|Read timeout|HTTP error"
    r"|error sending request|max_retries|SlowDown|ServiceUnavailable|InternalError|Service Unavailable|timed out"
    r"|\b50[0234] (?:Internal|Bad|Service|Gateway)|dns error|ClientConnector|ServerDisconnected",
    re.IGNORECASE,
)


_LIBRARIES: Final = {"botocore", "aiobotocore", "aiohttp", "s3fs", "deltalake", "_internal"}
"""The packages whose errors count as a store's errors, as all `OSError`s do. deltalake's own errors are in
`_internal`.
"""


def store_error(error: BaseException, url: str) -> Exception | None:
    """Return the error to raise for `error` of s3fs, botocore or deltalake at `url`; None if it is no error of a store.

    >>> store_error(PermissionError("Access Denied"), "s3://lake/flights")  # doctest: +ELLIPSIS
    NoPermission("s3://lake/flights: the store refuses ... (Access Denied): ...
    >>> store_error(ValueError("x"), "s3://lake/flights")
    """
    if not isinstance(error, OSError) and type(error).__module__.partition(".")[0] not in _LIBRARIES:
        return None  # Spark's errors quote rows, whose text may match by chance
    said = " ".join(f"{type(error).__name__}: {error}".split())
    short = _short(error)
    if _NO_BUCKET.search(said):
        bucket = url.partition("://")[2].partition("/")[0]
        return NoBucket(f"{url}: the bucket {bucket!r} does not exist ({short}): make it, or correct the URL")
    if isinstance(error, PermissionError) or _REFUSED.search(said):
        return NoPermission(
            f"{url}: the store refuses this task's credentials ({short}): give `options` a key and a secret that may "
            "list, read, write and delete there"
        )
    busy = isinstance(error, OSError) and error.errno == errno.EBUSY  # s3fs: asked to slow down
    if busy or isinstance(error, ConnectionError | TimeoutError) or _AWAY.search(said):
        return StoreAway(
            f"{url}: the store does not answer ({short}): check that it runs, and `endpoint_url` in `options`"
        )
    return None


def _short(error: BaseException) -> str:
    """Return the error's message in one line without colours, because deltalake's messages have several lines and
    colours.
    """
    plain = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    lines = [line.strip(" ↳") for line in plain.splitlines()]
    return (" - ".join(line for line in lines if line) or type(error).__name__)[:300]


def quoted_error(said: str) -> Exception | None:
    r"""Return the store's error that an executor raised, from the text in which Spark quotes it; None if the
    text quotes no such error.

    >>> quoted_error("File x, line 1\nspark_tasks.storage.errors.StoreAway: s3://lake: away\n at org.apache.spark")
    StoreAway('s3://lake: away')
    """
    match = _QUOTED.search(said)
    return None if match is None else _NAMED[match[1]](match[2].strip())


@contextmanager
def store_errors(place: "Place") -> Iterator[None]:
    """Within the block, raise errors of an object store as `NoBucket`, `NoPermission` and `StoreAway`."""
    if place.is_local:
        yield
        return
    with store_errors_at(place.url):
        yield


@contextmanager
def store_errors_at(url: str) -> Iterator[None]:
    """Raise errors as `store_errors` does, for the object store at `url`."""
    try:
        yield
    except tuple(_NAMED.values()):
        raise
    except Exception as error:
        named = store_error(error, url)
        if named is None:
            raise
        raise named from error


@contextmanager
def away_errors_at(url: str) -> Iterator[None]:
    """Within the block, raise `StoreAway` if a store at `url` does not answer; other errors are raised unchanged."""
    try:
        yield
    except Exception as error:
        named = store_error(error, url)
        if not isinstance(named, StoreAway):
            raise
        raise named from error
