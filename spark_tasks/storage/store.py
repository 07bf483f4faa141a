"""A store's bucket and region, as deltalake needs them, and whether the store honours conditional writes."""

import errno
from collections.abc import Mapping
from typing import Any, Final

from spark_tasks.storage.errors import store_errors
from tasks.places.place import Place

_NAMES: Final = {
    "key": "aws_access_key_id",
    "secret": "aws_secret_access_key",
    "token": "aws_session_token",
    "endpoint_url": "aws_endpoint_url",
}

REGION: Final = "us-east-1"
"""The region for a store that names none. Most S3-compatible stores use it in signatures only."""


def delta_options(options: Mapping[str, Any], region: str) -> dict[str, str]:
    """Return deltalake's storage options from fsspec's `options` for s3://, with secrets resolved. They must not be
    logged.

    >>> delta_options({"key": "k", "endpoint_url": "http://box:9000", "max_concurrency": 3}, "us-east-1")
    ... # doctest: +NORMALIZE_WHITESPACE
    {'aws_region': 'us-east-1', 'aws_conditional_put': 'etag', 'aws_access_key_id': 'k',
     'aws_endpoint_url': 'http://box:9000', 'aws_allow_http': 'true'}
    """
    # A commit is a conditional write: if two writers write one version, the store refuses the second.
    chosen = {"aws_region": region, "aws_conditional_put": "etag"}
    chosen |= {theirs: str(options[ours]) for ours, theirs in _NAMES.items() if options.get(ours) is not None}
    if str(options.get("endpoint_url", "")).startswith("http://"):
        chosen["aws_allow_http"] = "true"
    if options.get("anon"):
        chosen["aws_skip_signature"] = "true"
    if options.get("requester_pays"):
        chosen["aws_request_payer"] = "true"
    return chosen


def open_store(place: Place) -> dict[str, str] | None:
    """Check that the bucket exists, and return deltalake's options for the place; None for a local folder.

    Raises `NoBucket`, `NoPermission` and `StoreAway`.
    """
    if place.is_local:
        return None
    bucket = place.path.partition("/")[0]
    with store_errors(place):
        try:
            about = place.files.call_s3("head_bucket", Bucket=bucket)
        except FileNotFoundError as error:
            # The answer to HEAD has no body with the reason, but only the bucket can be missing here.
            raise FileNotFoundError(f"NoSuchBucket: {error}") from None
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            raise PermissionError(f"{error}: the token has expired, or `endpoint_url` is of another region") from None
    headers = about.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    region = about.get("BucketRegion") or headers.get("x-amz-bucket-region") or REGION
    return delta_options(place.options, str(region))


def heeds_conditions(place: Place, probe: str) -> bool:
    """Whether the store refuses a conditional write to a name that exists already; a local folder always does.

    The test writes the empty file `probe` in the place. Raises the errors of `store_errors`.
    """
    if place.is_local:
        return True
    with store_errors(place):
        return not (place.write_new(probe, b"") and place.write_new(probe, b""))
