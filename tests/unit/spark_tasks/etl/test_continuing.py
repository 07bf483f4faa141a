"""Whether a task that was changed may go on from what its sink has kept of its last batch."""

from typing import Any

import pytest

from spark_tasks.contracts.source import SourceReplaced
from spark_tasks.etl.continuing import kept, resume_cursor
from spark_tasks.etl.params import EtlParams

URL = "postgresql://rota@db.internal/shop"
BY_ID = {"cursor": "id", "lag_s": 0}
AT_7 = {"cursor": "id", "value": 7}


def task(source: Any, incremental: Any = BY_ID, mode: str = "append") -> EtlParams:
    sink: dict[str, Any] = {"type": "postgres", "url": URL, "table": "copy", "mode": mode}
    sink |= {"keys": ["id"]} if mode == "upsert" else {}
    return EtlParams.model_validate({"source": source, "incremental": incremental, "sink": sink})


def postgres(**more: Any) -> Any:
    return {"type": "postgres", "url": URL, "table": "orders"} | more


def sqlite(path: str = "/srv/app.db") -> Any:
    return {"type": "sqlite", "path": path, "table": "orders", "shared": True}


def files(glob: str) -> Any:
    return {"type": "files", "files": glob, "format": "csv", "columns": "id INT", "shared": True}


def http(url: str) -> Any:
    return {"type": "http", "url": url, "columns": {"id": "int"}}


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (postgres(), postgres(table="public.orders")),
        (postgres(), postgres(url="postgresql://other@new.internal:5433/shop?sslmode=require")),
        (postgres(table=None, query="SELECT 1 AS id"), postgres(table=None, query="SELECT 1 AS id, 2 AS n")),
        (http("https://a.internal/orders"), http("https://b.internal/orders?size=9")),
    ],
)
def test_a_task_goes_on_whose_source_is_the_same(before: Any, now: Any) -> None:
    assert resume_cursor(task(now), "copy", kept(task(before), AT_7)) == AT_7


@pytest.mark.parametrize(
    ("before", "now", "names"),
    [
        (postgres(), postgres(table="customers"), ("table orders in the database shop", "table customers in")),
        (postgres(), postgres(url="postgresql://rota@db/till"), ("the database shop", "the database till")),
        (postgres(), postgres(table=None, query="SELECT 1 AS id"), ("table orders", "a query in the database shop")),
        (sqlite(), sqlite("/srv/other.db"), ("/srv/app.db", "/srv/other.db")),
        (http("https://a/orders"), http("https://a/customers"), ("the API at /orders", "the API at /customers")),
    ],
)
def test_another_source_is_refused_and_the_error_says_how_to_begin(before: Any, now: Any, names: Any) -> None:
    with pytest.raises(SourceReplaced) as refused:
        resume_cursor(task(now), "copy", kept(task(before), AT_7))
    said = str(refused.value)
    assert all(name in said for name in (*names, "up to 7", "`rota etl reset copy`")), said
    assert """`rota etl reset copy --to '{"cursor": "id", "value": 7}'`""" in said


def test_another_glob_is_refused() -> None:
    by_time = {"files": True}
    last = kept(task(files("/in/a/*.csv"), by_time), {"files": True, "value": 3.5})
    with pytest.raises(SourceReplaced, match=r"the files /in/a/\*.csv up to 3\.5"):
        resume_cursor(task(files("/in/*/*.csv"), by_time), "copy", last)


def test_rows_are_not_appended_again_where_reading_whole_begins_or_ends() -> None:
    whole, by_id = task(postgres(), None), task(postgres())
    with pytest.raises(SourceReplaced, match="has the rows up to 7, and without `incremental` all of them"):
        resume_cursor(whole, "copy", kept(by_id, AT_7))
    with pytest.raises(SourceReplaced, match="the whole source, whose rows `incremental` would append once more"):
        resume_cursor(by_id, "copy", kept(whole, None))
    assert resume_cursor(whole, "copy", kept(whole, None)) is None


def test_all_rows_may_be_appended_to_a_sink_that_was_reset() -> None:
    """As when somebody empties the sink, and has the source read whole from now on."""
    whole = task(postgres(), None)
    assert resume_cursor(whole, "copy", kept(whole, None)) is None


def test_an_upsert_may_read_its_source_whole_and_then_what_is_new() -> None:
    whole, by_id = task(postgres(), None, "upsert"), task(postgres(), mode="upsert")
    assert resume_cursor(whole, "copy", kept(by_id, AT_7)) is None
    assert resume_cursor(by_id, "copy", kept(whole, None)) is None


def test_after_a_reset_the_source_is_read_from_its_beginning() -> None:
    assert resume_cursor(task(postgres()), "copy", kept(task(postgres()), None)) is None


def test_a_cursor_from_before_its_source_was_kept_is_taken_as_it_is() -> None:
    assert resume_cursor(task(postgres(table="customers")), "copy", AT_7) == AT_7
