"""Which errors of PostgreSQL and its driver another attempt would meet again."""

from typing import Any

import pytest

pytest.importorskip("adbc_driver_manager", reason="the extra `spark` is not installed")

from adbc_driver_manager import AdbcStatusCode, Error

from spark_tasks.postgres.session import QueryFailed, QueryUnfit, ServerAway, ServerRefused, translated_errors

IO = AdbcStatusCode.IO


def test_a_value_that_is_refused_while_it_is_copied_is_found_by_its_column() -> None:
    context: Any = [  # the names are text by their types, and bytes in fact
        (b"PG_DIAG_MESSAGE_PRIMARY", b"invalid byte sequence"),
        (b"PG_DIAG_CONTEXT", b"COPY t, line 1, column a b"),
    ]
    with pytest.raises(QueryUnfit, match=r"^column a b: invalid byte sequence \(22021\)$"), translated_errors():
        raise Error("x", status_code=AdbcStatusCode.INVALID_DATA, sqlstate="22021", details=context)


@pytest.mark.parametrize(
    ("status", "said", "sqlstate", "raised"),
    [
        (IO, '[libpq] Failed to connect: connection to server at "db" failed: Connection refused', None, ServerAway),
        (IO, "Error writing tuple field data: server closed the connection unexpectedly", None, ServerAway),
        (IO, "[libpq] Failed to commit: no connection to the server", None, ServerAway),
        (IO, "[libpq] Failed to begin transaction: ", None, ServerAway),
        (IO, "Error occurred writing COPY data: ", None, QueryUnfit),
        (IO, "nanoarrow call failed: ArrowArrayStreamGetNext(...): the file is damaged", None, QueryFailed),
        (AdbcStatusCode.INTERNAL, "Can't map Arrow type 'struct' to Postgres type", None, QueryUnfit),
        (AdbcStatusCode.INVALID_ARGUMENT, "Row #1 has value '9', which exceeds the limits", None, QueryUnfit),
        (AdbcStatusCode.INVALID_DATA, "[libpq] ERROR: date out of range", "22008", QueryUnfit),
        (IO, "[libpq] FATAL: terminating connection due to administrator command", "57P01", ServerAway),
        (IO, "[libpq] ERROR: could not extend file: No space left on device", "53100", QueryFailed),
        (IO, "[libpq] Failed to connect: FATAL: password authentication failed for user", None, ServerRefused),
    ],
)
def test_a_server_is_away_only_if_it_cannot_be_reached(
    status: AdbcStatusCode, said: str, sqlstate: str | None, raised: type[Exception]
) -> None:
    with pytest.raises(raised) as caught, translated_errors():
        raise Error(said, status_code=status, sqlstate=sqlstate)
    assert type(caught.value) is raised
