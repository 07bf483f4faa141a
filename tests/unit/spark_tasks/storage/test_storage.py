"""Where a table may be, what deltalake is given to open it, and what is made of a store's errors. Without a store."""

import traceback

import pytest

from spark_tasks.storage.errors import NoPermission, StoreAway, quoted_error, store_error
from spark_tasks.storage.store import delta_options
from spark_tasks.storage.url import table_url
from tasks.places.place import NoBucket

botocore = pytest.importorskip("botocore.exceptions", reason="the extra `s3` is not installed")

URL = "s3://lake/flights"


def test_a_table_s_url_is_read_by_all_libraries_in_the_same_way() -> None:
    assert [table_url(url) for url in ("s3a://lake/a=1/b.c_d-E/", "/data/x y", "file:///data")] == [
        "s3://lake/a=1/b.c_d-E",
        "/data/x y",
        "file:///data",
    ]


@pytest.mark.parametrize(
    "url",
    [
        "s3://lake",
        "s3://lake/",
        "s3:///x",
        "s3://lake//x",
        "s3://lake/../x",
        "s3://lake/./x",
        "s3://lake/a%2Fb",
        "s3://lake/a b",
        "s3://lake/a?versionId=1",
        "s3://lake/a#b",
        "s3://user:word@lake/x",
        "s3://lake:80/x",
        "gs://lake/x",
        "memory://x",
        "https://lake/x",
        "simplecache::s3://lake/x",
        "data/x",
        "/data\0x",
    ],
)
def test_any_other_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"table|file system|contain|begin|chains"):
        table_url(url)


def test_deltalake_gets_the_same_credentials_and_commits_by_conditional_writes() -> None:
    given = {"key": "k", "secret": "s", "token": "t", "endpoint_url": "https://box", "anon": None, "max_concurrency": 4}
    assert delta_options(given, "eu-west-3") == {
        "aws_region": "eu-west-3",
        "aws_conditional_put": "etag",
        "aws_access_key_id": "k",
        "aws_secret_access_key": "s",
        "aws_session_token": "t",
        "aws_endpoint_url": "https://box",
    }
    assert delta_options({"endpoint_url": "http://box"}, "x")["aws_allow_http"] == "true"
    assert delta_options({"anon": True}, "x")["aws_skip_signature"] == "true"


_KERNEL = "Kernel error -> Generic S3 error\n  \x1b[31m↳\x1b[0m Error performing GET http://box/lake/x in 1.5s, "


@pytest.mark.parametrize(
    ("error", "meaning", "said"),
    [
        (FileNotFoundError("The specified bucket does not exist"), NoBucket, "bucket 'lake' does not exist.*make it"),
        (OSError(f"{_KERNEL}404 Not Found: <Code>NoSuchBucket</Code>"), NoBucket, "bucket 'lake'"),
        (PermissionError("The AWS Access Key Id does not exist"), NoPermission, "a key and a secret that may"),
        (PermissionError(13, "Forbidden"), NoPermission, "Forbidden"),
        (botocore.NoCredentialsError(), NoPermission, "Unable to locate credentials"),
        (OSError(f"{_KERNEL}<Code>ExpiredToken</Code>"), NoPermission, "ExpiredToken"),
        (
            botocore.EndpointConnectionError(endpoint_url="http://box:9"),
            StoreAway,
            "does not answer .*http://box:9.*endpoint_url",
        ),
        (OSError(f"{_KERNEL}after 10 retries, max_retries 10, retry_timeout 180s - HTTP error"), StoreAway, "retries"),
        (ConnectionResetError("reset"), StoreAway, "reset"),
        (TimeoutError(), StoreAway, "TimeoutError"),
        (OSError("An error occurred (SlowDown)"), StoreAway, "SlowDown"),
        (OSError(16, "Please reduce your request rate."), StoreAway, "request rate"),
    ],
)
def test_a_store_s_error_is_one_sentence_that_says_what_to_do(
    error: Exception, meaning: type[Exception], said: str
) -> None:
    with pytest.raises(meaning, match=said) as told:
        raise store_error(error, URL) or AssertionError("not recognized")
    assert str(told.value).startswith(URL)
    assert "\n" not in str(told.value)
    assert "\x1b" not in str(told.value)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("AccessDenied"),
        RuntimeError("a row of Spark's: timed out"),
        KeyError("n"),
        OSError("500 rows"),
        OSError(28, "No space left on device"),
        FileNotFoundError("part-1.parquet"),
    ],
)
def test_other_errors_are_left_as_they_are(error: Exception) -> None:
    assert store_error(error, URL) is None


@pytest.mark.parametrize("kind", [NoBucket, NoPermission, StoreAway])
def test_an_executors_error_is_found_in_the_error_in_which_spark_quotes_it(kind: type[Exception]) -> None:
    raised = "".join(traceback.format_exception_only(kind("s3://lake/flights: the reason")))
    said = (
        "[WRITING_JOB_ABORTED] Writing job aborted. Caused by: org.apache.spark.api.python.PythonException: Traceback\n"
        f'  File "x.py", line 3, in write\n{raised}\tat org.apache.spark.X'
    )
    found = quoted_error(said)
    assert type(found) is kind
    assert str(found) == "s3://lake/flights: the reason"
    assert quoted_error("java.lang.OutOfMemoryError: heap") is None
