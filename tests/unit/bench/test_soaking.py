"""The soak's checks find what they are there for."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bench.soaking import checks, journal

BEGIN = datetime(2026, 11, 21, 6, 0, 0, 500_000, tzinfo=UTC)


def seen(folder: Path, *lines: str) -> journal.Journal:
    """A journal of lines `run token what step`."""
    file = folder / "journal"
    texts = []
    for line in lines:
        run, token, what, step = line.split()
        texts.append(f"{run} {token} 7 1.0 {what} {step}\n")
    file.write_text("".join(texts))
    return journal.read(file)


GOOD = (
    "a~1 1 start 0",
    "a~1 1 saving 5",
    "a~1 1 saved 5",
    "a~1 1 saving 10",
    "a~1 3 start 10",
    "a~1 3 end 20",
    "a~2 4 start 0",
    "a~2 4 end 20",
)


def test_work_that_was_taken_over_in_order_is_well(tmp_path: Path) -> None:
    assert journal.faults(seen(tmp_path, *GOOD), ["a"], []) == []


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("a~1 1 beat 9", "token 1 worked (line 9) after token 3"),
        ("a~1 3 beat 9", "a~1 worked (line 9) beside a~2"),
        ("a~3 2 start 0", "token 2 began to work after token 4"),
        ("a~2 5 start 6", "began at 6; saved before it was 0"),
    ],
)
def test_two_at_once_a_token_that_fell_and_a_lost_checkpoint_are_found(tmp_path: Path, line: str, says: str) -> None:
    assert says in " ".join(journal.faults(seen(tmp_path, *GOOD, line), ["a"], []))


def test_what_was_saved_may_not_be_lost(tmp_path: Path) -> None:
    lines = ("a~1 1 start 0", "a~1 1 saving 5", "a~1 1 saved 5", "a~1 2 start 0")
    assert "saved before it was 5" in " ".join(journal.faults(seen(tmp_path, *lines), ["a"], []))
    assert journal.faults(seen(tmp_path, *lines), ["a"], ["a"]) == []  # it is to begin anew


def test_work_without_a_claim_is_found(tmp_path: Path) -> None:
    told = {"a~1": {"state": "succeeded", "cancelling": None, "token": 3}}
    found = journal.against(seen(tmp_path, *GOOD), told, {"a~1": {1, 3}, "a~2": set()})
    assert found == ["a~2: token 4 worked, and history knows no such claim"]


def test_a_success_that_never_came_to_its_end_is_found(tmp_path: Path) -> None:
    told = {"a~1": {"state": "succeeded", "cancelling": None, "token": 1}}
    assert "never came to its end" in journal.against(seen(tmp_path, *GOOD[:4]), told, {"a~1": {1}})[0]


def due(*seconds: float, state: str = "succeeded") -> list[dict[str, Any]]:
    return [
        {"task": "a", "trigger": "schedule", "fire_at": (BEGIN + timedelta(seconds=each)).isoformat(), "state": state}
        for each in seconds
    ]


@pytest.mark.parametrize(
    ("runs", "says"),
    [
        (due(2, 4, 6), None),
        (due(2, 6), "was due, and there is no trace of it"),
        (due(2, 4, 4, 6), "is there 2 times"),
        (due(2, 3, 4, 6), "was not due, and is there"),
        (due(2), "nothing is there after"),
        (due(2, 4) + due(6, state="missed"), "0 missed by its count, 1 in history"),
    ],
)
def test_every_due_time_is_there_once(runs: list[dict[str, Any]], says: str | None) -> None:
    task = {
        "name": "a",
        "schedule": {"every_s": 2.0},
        "registered_at": BEGIN.isoformat(),
        "skipped": 0,
        "missed": 0,
    }
    paused = BEGIN + timedelta(seconds=6 + checks.LATE_S)
    found = checks.occurrences(task, runs, paused)
    assert found == [] if says is None else says in " ".join(found)


def test_a_token_is_given_once() -> None:
    runs = [
        {"run_id": "a~1", "attempts": [{"token": 1}, {"token": 3}]},
        {"run_id": "a~2", "attempts": [{"token": 3}]},
    ]
    assert checks.tokens(runs) == ["token 3 was given to a~1 and to a~2"]
