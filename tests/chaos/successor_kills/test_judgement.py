"""The judge of what became of all occurrences: it finds what is planted."""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.chaos.successor_kills.judgement import Occurrence, Seen, expected, violations
from tests.chaos.successor_kills.shapes import HAND, PARENTS, ROOTS
from tests.chaos.successor_kills.work import Line

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
EVERY = [Occurrence(NOON + timedelta(seconds=second), None) for second in range(12)]
UNTIL = NOON + timedelta(minutes=1)
BY_HAND = Occurrence(NOON + timedelta(seconds=20), 7)


def seen() -> dict[str, Seen]:
    """What there is if nothing goes wrong: tasks in the order of their levels, an occurrence after the other."""
    roots: dict[str, Collection[Occurrence]] = {**dict.fromkeys(ROOTS, EVERY), HAND: [BY_HAND]}
    found: dict[str, Seen] = {name: Seen([], []) for name in PARENTS}
    token = 0
    for occurrence in (*EVERY, BY_HAND):
        for name in PARENTS:
            state = expected(name, occurrence, roots)
            if state is None:
                continue
            token += 1
            run = f"{name}~{token}"
            ran = state in ("succeeded", "failed")
            attempts = [{"state": state, "token": token}] if ran else []
            found[name].runs.append(_run(run, occurrence, state, token if ran else None, attempts))  # type: ignore[attr-defined]
            if ran:
                end = "end" if state == "succeeded" else "failed"
                lines = (Line(run, token, "node-1", token, "begin"), Line(run, token, "node-1", token + 0.5, end))
                found[name].lines.extend(lines)  # type: ignore[attr-defined]
    return found


def _run(run: str, at: Occurrence, state: str, token: int | None, attempts: list[Any]) -> dict[str, Any]:
    ids = {"run_id": run, "fire_at": at.nominal.isoformat(), "rerun": at.rerun}
    return {**ids, "state": state, "token": token, "attempts": attempts}


def test_nothing_is_wrong_if_each_occurrence_ends_once() -> None:
    assert violations(seen(), UNTIL) == []


def test_every_end_that_is_to_be_reached_is_reached() -> None:
    states = {run["state"] for one in seen().values() for run in one.runs}
    assert states == {"succeeded", "failed", "upstream_failed", "not_needed"}


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (lambda one: one.runs.pop(), "there is nothing"),
        (lambda one: one.runs.append({**one.runs[0], "run_id": "again"}), "there is chain-2~"),
        (lambda one: one.runs[0].update(state="upstream_skipped"), "it should be succeeded"),
        (lambda one: one.lines.append(one.lines[-2]), "began after"),
        (lambda one: one.lines.extend((one.lines[-2]._replace(token=9000, at_s=9000), one.lines[-1])), "went on (end)"),
        (lambda one: one.lines.pop(), "its ledger ends with"),
        (lambda one: one.lines.append(Line("unknown", 1, "node-1", 1, "begin")), "no member knows it"),
        (lambda one: one.lines.insert(0, one.lines[0]._replace(at_s=0.1)), "and chain-1 went on"),
        (lambda one: one.runs[-1].update(attempts=one.runs[-1]["attempts"] * 2), "its attempts: succeeded, succeeded"),
    ],
)
def test_what_is_planted_is_found(plant: Any, said: str) -> None:
    found = seen()
    plant(found["chain-2"])
    assert any(said in line for line in violations(found, UNTIL)), violations(found, UNTIL)


def test_runs_of_a_queue_do_not_go_on_beside_one_another() -> None:
    found = seen()
    lines: Any = found["queue-1"].lines
    lines[1], lines[2] = lines[2], lines[1]
    assert any("beside another run" in line for line in violations(found, UNTIL))
