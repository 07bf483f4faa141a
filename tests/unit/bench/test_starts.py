"""How late what was due began, what has not begun among it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bench.sizing.figures import percentiles
from bench.sizing.starts import starts

BEGIN = datetime(2026, 11, 21, 6, 0, tzinfo=UTC)
REGISTERED = {"due-0": BEGIN - timedelta(seconds=50), "due-1": BEGIN - timedelta(seconds=20)}
SPAN = BEGIN, BEGIN + timedelta(seconds=100)
LOOKED = SPAN[1] + timedelta(seconds=5)
DUE = [("due-0", 10), ("due-0", 70), ("due-1", 40), ("due-1", 100)]
"""Tasks, and the seconds into the span."""


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def run(task: str, due_s: float, took_s: float | None = 0.02, state: str = "succeeded") -> dict[str, Any]:
    started_at = None if took_s is None else at(due_s + took_s).isoformat()
    return {"task": task, "fire_at": at(due_s).isoformat(), "started_at": started_at, "state": state}


RUNS = [run(*one) for one in DUE]


def test_all_begun() -> None:
    others = [run("due-0", -50), run("due-0", 130), run("due-7", 30)]
    told = starts(REGISTERED, 60, RUNS + others, SPAN, LOOKED)
    assert dict(told.delays_ms) == {(task, at(due_s)): 20.0 for task, due_s in DUE}
    assert told.not_begun == []


def test_a_run_counts_as_soon_as_it_has_begun_however_it_ends() -> None:
    told = starts(REGISTERED, 60, [run("due-0", 10, 0.7, "failed"), *RUNS[1:]], SPAN, LOOKED)
    assert max(told.delays_ms.values()) == 700.0
    assert told.not_begun == []


@pytest.mark.parametrize("state", [None, "claimed", "waiting", "skipped", "missed"])
def test_what_has_not_begun_is_late_until_it_is_looked_for(state: str | None) -> None:
    for number, (task, due_s) in enumerate(DUE):
        instead = [] if state is None else [run(task, due_s, None, state)]
        told = starts(REGISTERED, 60, RUNS[:number] + RUNS[number + 1 :] + instead, SPAN, LOOKED)
        assert told.not_begun == [(task, at(due_s))]
        assert told.delays_ms[task, at(due_s)] == 1000 * (105 - due_s)
        assert len(told.delays_ms) == len(DUE)


def test_no_runs_are_no_quick_ones() -> None:
    told = starts(REGISTERED, 60, [], SPAN, LOOKED)
    assert len(told.not_begun) == len(DUE)
    assert min(told.delays_ms.values()) == 5000.0
    assert not starts({}, 60, RUNS, SPAN, LOOKED).delays_ms
    with pytest.raises(ValueError, match="nothing was measured"):
        percentiles([])
