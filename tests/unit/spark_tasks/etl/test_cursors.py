"""What `rota etl reset --to` says as a cursor of the task's source."""

from typing import Any

import pytest

from spark_tasks.etl.cursors import cursor_at
from spark_tasks.etl.errors import CursorUnfit
from spark_tasks.etl.params import EtlParams

URL = "postgresql://rota@db.internal/orders"
POSTGRES = {"type": "postgres", "url": URL, "table": "orders"}
SQLITE = {"type": "sqlite", "path": "/srv/app.db", "table": "orders", "shared": True}
DELTA = {"type": "delta", "table": "/srv/orders", "shared": True}
FILES = {"type": "files", "files": "/srv/in/*.csv", "format": "csv", "columns": "id INT", "shared": True}
SINK = {"type": "postgres", "url": URL, "table": "copy", "mode": "append"}


def params(incremental: Any, source: Any = None) -> EtlParams:
    return EtlParams.model_validate({"source": source or POSTGRES, "incremental": incremental, "sink": SINK})


@pytest.mark.parametrize(
    ("source", "incremental", "to", "cursor"),
    [
        (POSTGRES, {"cursor": "at"}, "2026-11-21 10:00:00+00", {"cursor": "at", "value": "2026-11-21 10:00:00+00"}),
        (POSTGRES, {"cursor": "id", "lag_s": 0}, "7", {"cursor": "id", "value": "7"}),
        (POSTGRES, {"cursor": "id", "lag_s": 0}, None, None),
        (POSTGRES, None, None, None),
        (POSTGRES, {"xmin": True}, "815", {"xmin": True, "value": 815}),
        (SQLITE, {"cursor": "id", "lag_s": 0}, "7", {"cursor": "id", "value": 7}),
        (DELTA, {"versions": True}, "12", {"versions": True, "value": 12}),
        (FILES, {"files": True}, "1970-01-02T01:00:00+01:00", {"files": True, "value": 86400.0}),
        (POSTGRES, {"cursor": "id"}, '{"cursor": "id", "value": "9"}', {"cursor": "id", "value": "9"}),
    ],
)
def test_a_text_becomes_a_cursor(source: Any, incremental: Any, to: str | None, cursor: Any) -> None:
    assert cursor_at(params(incremental, source), to) == cursor


@pytest.mark.parametrize(
    ("source", "incremental", "to", "why"),
    [
        (POSTGRES, None, "7", "reads its source whole"),
        (POSTGRES, {"xmin": True}, "yesterday", "'yesterday' is no transaction"),
        (DELTA, {"versions": True}, "newest", "'newest' is no version"),
        (FILES, {"files": True}, "2026-01-05 09:00", "is no time with an offset, such as"),
        (POSTGRES, {"cursor": "id"}, "{", "the cursor is no JSON"),
        (POSTGRES, {"cursor": "id"}, '{"cursor": "id"}', "an object with a `value`"),
    ],
)
def test_what_is_no_cursor_is_refused(source: Any, incremental: Any, to: str, why: str) -> None:
    with pytest.raises(CursorUnfit, match=why):
        cursor_at(params(incremental, source), to)
