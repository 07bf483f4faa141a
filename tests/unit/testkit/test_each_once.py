"""The judgement of a schedule's occurrences, from the registration to the pause."""

from datetime import UTC, datetime, timedelta
from typing import Any, get_args

from tasks.definition.run import RunState
from testkit.each_once import lost, wrong

REGISTERED = datetime(2026, 11, 21, 6, 0, 0, 123_457, tzinfo=UTC)
TASK = {"name": "often", "registered_at": REGISTERED.isoformat(), "schedule": {"every_s": 0.5}}
UNTIL = REGISTERED + timedelta(seconds=4.9)
PAUSED = REGISTERED + timedelta(seconds=5.1)
"""Between the two one falls due, the tenth."""


def run(number: int, state: str = "succeeded", *attempts: str, trigger: str = "schedule") -> dict[str, Any]:
    """The run of an occurrence, the registration's being 0."""
    fire_at = REGISTERED + timedelta(seconds=0.5 * number)
    ends = [{"state": end} for end in attempts or (state,)]
    return {"trigger": trigger, "fire_at": fire_at.isoformat(), "state": state, "attempts": ends}


ALL = [run(number) for number in range(1, 10)]


def judged(runs: list[dict[str, Any]]) -> list[str]:
    return wrong(TASK, runs, UNTIL, PAUSED)


def test_all_there_once_and_succeeded() -> None:
    assert judged(ALL) == []
    assert judged([*ALL, run(10)]) == [], "what is due while it is being paused may be there"
    assert judged([*ALL, run(3, trigger="manual")]) == []
    assert judged([*ALL[:-1], run(9, "succeeded", "orphaned", "succeeded")]) == [], "it was tried again"


def test_an_occurrence_that_is_lost_is_seen_wherever_it_is() -> None:
    for number in range(9):
        [line] = judged(ALL[:number] + ALL[number + 1 :])
        assert "no trace" in line
        assert str(REGISTERED + timedelta(seconds=0.5 * (number + 1))) in line
    assert len(judged(ALL[3:])) == 3
    assert len(judged(ALL[:-3])) == 3
    assert len(judged([])) == 9
    assert len(lost(TASK, [], UNTIL)) == 9


def test_one_between_the_asking_and_the_pause_is_lost_if_a_later_one_is_there() -> None:
    later = PAUSED + timedelta(seconds=0.5)
    assert wrong(TASK, [*ALL, run(10), run(11)], UNTIL, later) == []
    [line] = wrong(TASK, [*ALL, run(11)], UNTIL, later)
    assert "no trace" in line


def test_whatever_has_not_succeeded_is_wrong() -> None:
    for state in sorted(set(get_args(RunState)) - {"succeeded"}):
        for number in (1, 5, 9):
            [line] = judged([one if one is not ALL[number - 1] else run(number, state) for one in ALL])
            assert f"is {state}" in line


def test_twice_is_wrong() -> None:
    assert any("2 times" in line for line in judged([*ALL, run(4)]))
    [line] = judged([*ALL[:-1], run(9, "succeeded", "succeeded", "succeeded")])
    assert "its attempts: succeeded, succeeded" in line


def test_what_was_not_due_is_wrong() -> None:
    for number in (-1, 0, 11):
        assert any("was not due" in line for line in judged([*ALL, run(number)]))
    assert any("was not due" in line for line in judged([*ALL, run(2.5)]))  # type: ignore[arg-type]


def test_a_task_that_was_never_due_shows_nothing() -> None:
    [line] = wrong(TASK, [], REGISTERED + timedelta(seconds=0.1), REGISTERED + timedelta(seconds=0.2))
    assert "never due" in line
