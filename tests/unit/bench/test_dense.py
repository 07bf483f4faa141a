"""Histories that cannot be right, among faults as dense as a real trial's: the checker is not talked out of them."""

from typing import Any

import pytest

from bench.chaos.checker.attempts import continuous, in_time
from bench.chaos.checker.endings import endings
from bench.chaos.checker.excuses import Excuses, excused, unexcused_s
from bench.chaos.checker.occurrences import occurrences
from bench.chaos.checker.verdict import LENGTH_S, Verdict, nothing_judged
from bench.chaos.tasks import ENDS
from tests.unit.bench.sighted import dense
from tests.unit.bench.told import BEGIN_S, CLOCK, at, run, task, worked

MINUTES = 30
DUE = range(2, 60 * MINUTES, 2)
"""As of the task `allow` in half an hour: 899 occurrences."""


@pytest.fixture(scope="module")
def excuses() -> Excuses:
    end_s = BEGIN_S + 60 * MINUTES
    # As if one fault were held all the while.
    return Excuses(excused(dense(BEGIN_S, MINUTES), [(BEGIN_S, end_s)], BEGIN_S, end_s))


def judged(runs: list[dict[str, Any]], excuses: Excuses, **more: Any) -> Verdict:
    return occurrences(task(runs, **more), runs, at(60 * MINUTES), CLOCK, excuses)


def test_all_skipped_under_allow(excuses: Excuses) -> None:
    assert len(judged([run(each, "skipped") for each in DUE], excuses, overlap="allow").found) == len(DUE)


def test_all_skipped_beside_nobody(excuses: Excuses) -> None:
    assert len(judged([run(each, "skipped") for each in DUE], excuses).found) == len(DUE)


def test_all_missed(excuses: Excuses) -> None:
    found = judged([run(each, "missed") for each in DUE], excuses, overlap="allow").found
    assert len(found) > len(DUE) / 3


def test_one_missed_in_the_calm_between_two_rounds(excuses: Excuses) -> None:
    calm = {each for each in DUE if unexcused_s(BEGIN_S + each, BEGIN_S + each + 2, excuses.cluster) == 2}
    missed = sorted(calm)[len(calm) // 2]
    [found] = judged([run(each, "missed" if each == missed else "succeeded") for each in DUE], excuses).found
    assert f"(a~{missed}) was missed, and for 2.0 s its owner could have dealt with it" in found


def test_all_failed_with_nobody_at_work(excuses: Excuses) -> None:
    runs = [run(each, "failed", task="allow") for each in DUE]
    assert len(endings(runs, ENDS, [], CLOCK, excuses).found) == len(DUE)
    verdict = in_time(task(name="allow"), runs, {}, CLOCK, excuses)
    assert any("begun when due" in line for line in nothing_judged(verdict, ["allow"], [], LENGTH_S))


def test_all_begun_ten_seconds_late(excuses: Excuses) -> None:
    runs = [run(each, finished_s=each + 11) for each in DUE]
    attempts = worked(*((f"a~{each:g}", each + 10.0, each + 11.0) for each in DUE))
    assert len(in_time(task(overlap="allow"), runs, attempts, CLOCK, excuses).found) > len(DUE) / 3


def test_a_continuous_task_that_was_never_at_work_or_never_again(excuses: Excuses) -> None:
    end_s = BEGIN_S + 60 * MINUTES
    assert continuous("a", [], BEGIN_S, end_s, excuses).found
    once = [one for each in worked(("a~1", 1.0, 20.0)).values() for one in each]
    [found] = [line for line in continuous("a", once, BEGIN_S, end_s, excuses).found if "the pause" in line]
    assert "from a~1 to the pause" in found


def test_a_history_that_is_right(excuses: Excuses) -> None:
    runs = [run(each) for each in DUE]
    attempts = worked(*((f"a~{each:g}", each + 0.1, each + 1.0) for each in DUE))
    verdict = judged(runs, excuses) + in_time(task(), runs, attempts, CLOCK, excuses)
    verdict += endings([run(each, task="skip") for each in DUE], {"skip": frozenset({"succeeded"})}, [], CLOCK, excuses)
    assert verdict.found == []
    assert min(verdict.judged.values()) > len(DUE) / 3
