"""What was due is there, was begun in time or passed over with reason, and ended as it may."""

from datetime import datetime
from typing import Any

import pytest

from bench.chaos.checker.attempts import LATE_S, continuous, in_time
from bench.chaos.checker.endings import endings, never
from bench.chaos.checker.excuses import SLOW_S, Excuses, Spans, full, full_disks, slow
from bench.chaos.checker.occurrences import occurrences
from bench.chaos.checker.verdict import LENGTH_S, MUST, SKIPPED, Verdict, nothing_judged
from bench.chaos.records import Attempt
from bench.chaos.recovery import Struck
from bench.chaos.tasks import ENDS, NEEDED
from tests.unit.bench.told import BEGIN_S, CLOCK, at, run, task, worked

Runs = list[dict[str, Any]]


def due(*seconds: float) -> Runs:
    return [run(each) for each in seconds]


def judged(runs: Runs, until: datetime | None = None, excuses: Spans = (), **more: Any) -> Verdict:
    return occurrences(task(runs, **more), runs, until or at(7), CLOCK, Excuses(excuses))


@pytest.mark.parametrize(
    ("runs", "says"),
    [
        (due(2, 4, 6), None),
        (due(2, 6), "was due, and there is no trace of it"),
        (due(2, 4, 4, 6), "is there 2 times"),
        (due(2, 3, 4, 6), "was not due, and is there"),
        (due(2), "06:00:04.500000+00:00 was due, and there is no trace of it"),
    ],
)
def test_every_due_time_is_there_once(runs: Runs, says: str | None) -> None:
    found = judged(runs).found
    assert found == [] if says is None else says in " ".join(found)


def test_what_was_passed_over_is_counted() -> None:
    assert "0 missed by its count, 1 in history" in judged([*due(2, 4), run(6, "missed")], missed=0).found[0]


def test_the_last_ones_are_not_missed_where_nobody_could_deal_with_them() -> None:
    assert judged(due(2), excuses=[(BEGIN_S + 3, BEGIN_S + 7)]).found == []
    assert len(judged(due(2), until=at(9), excuses=[(BEGIN_S + 3, BEGIN_S + 5)]).found) == 2


@pytest.mark.parametrize(
    ("excuses", "says"),
    [
        ([], "was missed, and for 2.0 s its owner could have dealt with it"),
        ([(BEGIN_S + 10, BEGIN_S + 30)], "was missed"),  # something was wrong, and long over or not yet
        ([(BEGIN_S + 2, BEGIN_S + 2.2)], "for 1.8 s its owner could have dealt with it"),
        ([(BEGIN_S + 2, BEGIN_S + 3)], None),
    ],
)
def test_what_could_be_dealt_with_before_the_next_was_due_is_not_missed(excuses: Spans, says: str | None) -> None:
    verdict = judged([run(2, "missed"), *due(4, 6)], excuses=excuses)
    assert verdict.found == [] if says is None else says in verdict.found[0]


SKIP = run(4, "skipped")


@pytest.mark.parametrize(
    ("overlap", "runs", "says"),
    [
        ("skip", [run(2, finished_s=5.0), SKIP], None),
        ("skip", [run(2, finished_s=2.5), SKIP], "no other run was active: the last had ended 1.5 s before"),
        ("skip", [run(2, "missed"), SKIP], "no other run was active"),
        ("skip", [run(2, "missed"), SKIP, run(6, finished_s=9.0)], "no other run was active"),
        ("skip", [run(2, "missed"), SKIP, run(3, finished_s=9.0, trigger="manual")], None),
        ("allow", [run(2, finished_s=5.0), SKIP], "was skipped, and overlap is allow"),
        ("queue", [run(2, finished_s=5.0), SKIP], "was skipped, and overlap is queue"),
        ("replace", [run(2, finished_s=5.0), SKIP], "was the latest: it was to replace the one before"),
        ("replace", [run(2, finished_s=7.0), run(4, "skipped", 6.5)], None),
    ],
)
@pytest.mark.parametrize("excuses", [[], [(BEGIN_S + 3.5, BEGIN_S + 20)]])
def test_what_is_skipped_is_so_beside_another_whatever_was_wrong(
    overlap: str, runs: Runs, says: str | None, excuses: Spans
) -> None:
    found = [line for line in judged(runs, at(4), excuses, overlap=overlap).found if "skipped" in line]
    assert found == [] if says is None else says in " ".join(found)


def test_a_run_that_nobody_could_finish_is_active_until_somebody_can() -> None:
    runs = [run(2, finished_s=3.0), SKIP]
    verdict = judged(runs, at(4), [(BEGIN_S + 2.9, BEGIN_S + 4.5)])
    assert (verdict.found, verdict.excused[SKIPPED, "a"]) == ([], 1)


def test_a_run_may_have_ended_unknown_to_its_owner_while_packets_are_held() -> None:
    runs = [run(2, finished_s=3.0), SKIP]
    for kind, well in (("packets delayed", True), ("cut off one", False)):
        spans = slow([Struck(1, kind, kind, ("node-1",), BEGIN_S + 1, BEGIN_S + 2)])
        verdict = occurrences(task(runs), runs, at(4), CLOCK, Excuses(slow=spans))
        assert (verdict.found == []) == well
        assert verdict.excused[SKIPPED, "a"] == well
    longest = Excuses(slow=[(BEGIN_S, BEGIN_S + 20)])
    runs = [run(2, finished_s=10 - SLOW_S - 1), *(run(each, "missed") for each in (4, 6, 8)), run(10, "skipped")]
    found = occurrences(task(runs), runs, at(10), CLOCK, longest).found
    assert [line for line in found if "skipped, and no other run was active" in line]


def test_a_run_may_have_ended_unknown_to_its_owner_just_after_its_leader_was_struck() -> None:
    runs = [run(2, finished_s=3.4), SKIP]
    for said, struck_s, well in (
        ("cut node-1 (leader)", 3.0, True),
        ("cut node-1", 3.0, False),
        ("(leader)", 1.0, False),
    ):
        spans = slow([Struck(1, "cut", said, ("node-1",), BEGIN_S + struck_s, BEGIN_S + 9)])
        assert (occurrences(task(runs), runs, at(4), CLOCK, Excuses(slow=spans)).found == []) == well


def test_who_has_no_place_is_waited_for() -> None:
    runs = [run(2, finished_s=20)]
    attempts = worked(("a~2", 19.0, 20.0), ("b~1", 1.5, 18.0), ("b~2", 1.5, 18.0))
    others = [one for each in attempts.values() for one in each if one.run != "a~2"]
    for places, well in ((2, True), (3, False)):
        excuses = Excuses(full=full(others, places))
        assert (in_time(task(), runs, attempts, CLOCK, excuses).found == []) == well
    elsewhere = Excuses(full={"node-2": full(others, 2)["node-1"]})
    assert in_time(task(), runs, attempts, CLOCK, elsewhere).found


@pytest.mark.parametrize(
    ("runs", "attempts", "excuses", "says"),
    [
        (due(2, 4), [("a~2", 2.1, 3.0), ("a~4", 4.2, 5.0)], [], None),
        (due(2), [("a~2", 20.0, 21.0)], [], "was not begun when due until 18.0 s"),
        ([run(2, finished_s=21.0)], [("a~2", 20.0, 21.0)], [(BEGIN_S + 2, BEGIN_S + 18)], None),
        ([run(2, finished_s=30), run(4, finished_s=33)], [("a~2", 2.1, 30.0), ("a~4", 32.0, 33.0)], [], None),
        ([run(2, finished_s=30)], [("a~2", 2.1, 3.0)], [], "was not finished once its work was over until 27.0 s"),
        (due(3600), [("a~3600", 2.0, 3.0)], [], "was begun 3598.0 s before it was due"),
        (
            [run(2, finished_s=30)],
            [("a~2", 2.1, 3.0), ("a~2", 29.0, 30.0)],
            [],
            "was not tried again after an attempt until 26.0 s",
        ),
        (
            [run(2, finished_s=30)],
            [("a~2", 2.1, 3.0), ("a~2", 29.0, 30.0)],
            [(BEGIN_S + 3, BEGIN_S + 26)],
            None,
        ),
    ],
)
def test_what_is_due_is_begun_in_time_goes_on_and_is_finished(
    runs: Runs, attempts: list[tuple[str, float, float]], excuses: Spans, says: str | None
) -> None:
    found = in_time(task(), runs, worked(*attempts), CLOCK, Excuses(excuses)).found
    assert found == [] if says is None else says in " ".join(found)


def test_a_retry_comes_when_its_task_asks_for_it() -> None:
    tries = failed("node-1", 2.2, NO_SPACE)
    for begun_s, well in ((12.3, True), (12.3 + LATE_S, False)):
        attempts = worked(("a~2", begun_s, begun_s + 1))
        runs = [run(2, finished_s=begun_s + 1, attempts=tries)]
        assert (in_time(task(), runs, attempts, CLOCK, Excuses()).found == []) == well


def test_work_that_stands_still_is_found() -> None:
    attempts = worked(("a~2", 2.1, 12.1))
    [attempt] = attempts["a~2"]
    attempt.works = [(1002.1, 1004.0), (1004.0 + LATE_S + 1, 1012.1)]
    assert (
        "was not at work without a hole until 6.0 s"
        in in_time(task(), [run(2, finished_s=12)], attempts, CLOCK, Excuses()).found[0]
    )


def always(*spans: tuple[float, float]) -> list[Attempt]:
    return [
        one for each in worked(*((f"a~{from_s:g}", from_s, to_s) for from_s, to_s in spans)).values() for one in each
    ]


@pytest.mark.parametrize(
    ("attempts", "excuses", "says"),
    [
        (always((1, 20), (20.5, 40), (41, 62)), [], None),
        ([], [], "nobody was ever at work"),
        (always((1, 20)), [], "nobody was at work for 40.0 s of time without excuse, from a~1 to the pause"),
        (always((1, 20), (30, 62)), [], "for 10.0 s of time without excuse, from a~1 to a~30"),
        (always((30, 62)), [], "from its registration to a~30"),
        (always((1, 20), (30, 62)), [(BEGIN_S + 20, BEGIN_S + 27)], None),
    ],
)
def test_continuous_work_goes_on_all_the_while(attempts: list[Attempt], excuses: Spans, says: str | None) -> None:
    found = continuous("a", attempts, BEGIN_S, BEGIN_S + 60, Excuses(excuses)).found
    assert found == [] if says is None else says in found[0]


LOST = [{"state": "orphaned"}]
FULL_DISK = Excuses(disk=full_disks([Struck(1, "full disk", "", ("node-5",), BEGIN_S + 2, BEGIN_S + 12)]))


def failed(node: str, at_s: float, error: str) -> list[dict[str, Any]]:
    return [{"attempt": 1, "node": node, "state": "failed", "finished_at": at(at_s).isoformat(), "error": error}]


NO_SPACE = "cannot record the attempt: [Errno 28] No space left on device"


@pytest.mark.parametrize(
    ("one", "says"),
    [
        (run(2, task="skip"), None),
        (run(2, "failed", task="skip", error="the attempt vanished"), "has failed: the attempt vanished"),
        (run(2, "timed_out", task="skip"), "has timed_out"),
        (run(2, "skipped", task="skip"), None),
        (run(2, "skipped", task="by-hand", trigger="manual"), "has skipped"),
        (run(2, "succeeded", task="slow"), "has succeeded"),
        (run(2, "cancelled", task="replace", cancelling="replaced"), None),
        (run(2, "cancelled", task="replace", cancelling="asked"), "was cancelled, because: asked"),
        (run(2, "cancelled", task="long-1", cancelling="asked"), None),
        (run(2, "cancelled", task="cron", cancelling="replaced"), "has cancelled"),
        (run(2, "abandoned", task="abandon", attempts=LOST), None),
        (run(2, task="skip", attempts=failed("node-5", 3, NO_SPACE)), None),
        (run(2, "failed", task="slow", attempts=failed("node-5", 3, NO_SPACE)), None),
        (run(2, task="skip", attempts=failed("node-5", 30, NO_SPACE)), "failed on node-5: cannot record the attempt"),
        (run(2, task="skip", attempts=failed("node-4", 3, NO_SPACE)), "failed on node-4: cannot record the attempt"),
        (run(2, task="skip", attempts=failed("node-5", 3, "it vanished")), "failed on node-5: it vanished"),
        (run(2, task="failing", attempts=failed("node-1", 3, "RuntimeError: attempt 1 was told to fail")), None),
        (run(2, task="failing", attempts=failed("node-1", 3, "RuntimeError: attempt 2 was told to fail")), "failed on"),
        (run(2, task="skip", attempts=failed("node-1", 3, "RuntimeError: attempt 1 was told to fail")), "failed on"),
        (run(2, "abandoned", task="abandon", attempts=[{"state": "timed_out"}]), "no attempt of it was lost"),
        (run(2, "abandoned", task="always", attempts=LOST), "has abandoned"),
        (run(2, task="note-1"), "has succeeded"),
    ],
)
def test_every_run_ends_as_its_tasks_do(one: dict[str, Any], says: str | None) -> None:
    found = endings([one], ENDS, ["long-1"], CLOCK, FULL_DISK).found
    assert found == [] if says is None else says in found[0]


def test_how_a_task_ends_in_every_trial_of_some_length_is_missed() -> None:
    runs = [run(2, state, task=name) for name, states in NEEDED.items() for state in states]
    assert never(runs, NEEDED, LENGTH_S) == []
    runs = [one for one in runs if one["task"] != "slow"]
    assert never(runs, NEEDED, LENGTH_S) == ["nothing was judged: no run of slow has timed_out"]
    assert never([], NEEDED, LENGTH_S - 1) == []


def test_a_trial_of_some_length_that_judged_nothing_of_a_task_says_so() -> None:
    verdict = Verdict()
    for kind in MUST:
        verdict.judge(kind, "a")
        verdict.judge(kind, "b", excuse=True)
    assert nothing_judged(verdict, ["a"], [], LENGTH_S) == []
    assert len(nothing_judged(verdict, ["b"], [], LENGTH_S)) == len(MUST)
    assert nothing_judged(verdict, ["b"], [], LENGTH_S - 1) == []
    assert len(nothing_judged(verdict, [], ["c"], LENGTH_S)) == 2


def passed_over(first_s: float, last_s: float, count: int, state: str, finished_s: float) -> dict[str, Any]:
    return run(first_s, state, finished_s, count=count, last_fire_at=at(last_s).isoformat())


def test_a_record_of_several_counts_for_each_of_them() -> None:
    blocking = run(2, finished_s=9.5)
    whole = [blocking, passed_over(4, 8, 3, "skipped", 8.1), run(10)]
    assert judged(whole, at(10)).found == []
    [lost] = judged([blocking, passed_over(4, 6, 2, "skipped", 6.1), run(10)], at(10)).found
    assert "was due, and there is no trace of it" in lost
    short = judged([blocking, passed_over(4, 8, 2, "skipped", 8.1), run(10)], at(10), skipped=2).found
    assert any("stands for 2, and 3 were due" in line for line in short)
    twice = judged([*whole, run(6)], at(10)).found
    assert any("is there 2 times" in line for line in twice)
    ended = judged([run(2, finished_s=5.0), passed_over(4, 8, 3, "skipped", 8.1), run(10)], at(10)).found
    assert any("no other run was active" in line for line in ended)
    off = judged([blocking, passed_over(4, 7, 2, "skipped", 8.1), run(8), run(10)], at(10)).found
    assert any("stands for 2" in line for line in off)
    wrong = judged([passed_over(2, 4, 2, "succeeded", 5.0), *due(6, 8, 10)], at(10)).found
    assert any("stands for 2, and is succeeded" in line for line in wrong)
