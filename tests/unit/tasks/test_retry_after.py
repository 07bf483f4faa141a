"""One parser of `Retry-After`, whose dates are in GMT wherever the node is."""

import ast
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tasks.retry_after import asked_wait_s

ROOT = Path(__file__).parents[3]
NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)


@pytest.fixture(params=["UTC", "America/New_York", "Asia/Kolkata"])
def _local_zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("_local_zone")
@pytest.mark.parametrize(
    ("header", "wait_s"),
    [
        ("9", 9),
        (" 0 ", 0),
        ("86400", 86400),
        ("Mon, 23 Nov 2026 12:00:09 GMT", 9),
        ("Mon, 23 Nov 2026 12:00:09 -0000", 9),
        ("Monday, 23-Nov-26 12:00:09 GMT", 9),
        ("Mon Nov 23 12:00:09 2026", 9),
        ("Mon, 23 Nov 2026 07:00:09 -0500", 9),
        ("Mon, 23 Nov 2026 11:59:00 GMT", 0),
        ("Sat, 01 Jan 0001 00:00:00 +2359", 0),
    ],
)
def test_seconds_and_each_form_of_a_date_give_the_same_wait_in_every_zone(header: str, wait_s: float) -> None:
    assert asked_wait_s(header, NOW) == wait_s


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "soon",
        "-1",
        "1.5",
        "1_0",
        "\N{ARABIC-INDIC DIGIT NINE}",
        "23 Nov",
        "Mon, 99 Nov 2026 12:00:09 GMT",
        f"Mon, 23 Nov {'9' * 30} 12:00:09 GMT",
        f"Mon, 23 Nov 2026 12:00:09 +{'9' * 30}",
    ],
)
def test_what_is_neither_asks_for_no_wait(header: str | None) -> None:
    assert asked_wait_s(header, NOW) is None


def test_a_wait_may_be_longer_than_any_number_and_is_the_callers_to_bound() -> None:
    assert asked_wait_s("9" * 5000, NOW) == float("inf")


def test_no_other_module_parses_dates_of_http() -> None:
    """Two parsers of one header disagreed by five hours."""
    found = [
        str(file.relative_to(ROOT))
        for package in ("hashing", "node", "spark_tasks", "tasks")
        for file in sorted((ROOT / package).rglob("*.py"))
        for part in ast.walk(ast.parse(file.read_text()))
        if isinstance(part, ast.ImportFrom) and part.module == "email.utils"
    ]
    assert found == ["tasks/retry_after.py"]
