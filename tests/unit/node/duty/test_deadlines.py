"""What the leader proposes of deadlines that pass, and when it looks again."""

from dataclasses import replace
from typing import Any

import pytest

from node.duty import deadlines
from node.duty.deadlines import AGAIN_US, SETTLED_US, DeadlineJudge
from node.state.deadlines import Breached
from node.state.value import Breach, State, TaskRow
from tests.unit.node.duty.given import NOW, S, run, task, world

EVERY = {"every_s": 60}
MIN = 60 * S


def judged(name: str = "t", **spec: Any) -> TaskRow:
    return replace(task(name, **({"schedule": EVERY} | spec)), judged_us=NOW)


def test_the_first_occurrence_that_is_undecided_is_judged_when_it_is_late_and_has_settled() -> None:
    one = DeadlineJudge(world(judged(deadlines={"start_within_s": 10}), task("u", schedule=EVERY)))
    at_us = NOW + MIN + 10 * S + SETTLED_US
    assert one.step(NOW) == ([], at_us)
    assert one.step(at_us - 1) == ([], at_us)
    entries, again_us = one.step(at_us)
    assert entries == [Breached(at_us, "t", "start_within", NOW + MIN, undecided=True)]
    assert again_us == at_us + AGAIN_US
    assert one.step(at_us + S)[0] == [], "it is under way"
    assert [entry.at_us for entry in one.step(at_us + AGAIN_US)[0]] == [at_us + AGAIN_US], "it was lost"


def test_what_is_breached_is_judged_again_when_it_has_been_met() -> None:
    row = judged(deadlines={"start_within_s": 10})
    one = DeadlineJudge(world(row))
    late_us = NOW + MIN + 10 * S + SETTLED_US
    one.step(late_us)
    one.observe(world(replace(row, breaches=(Breach("start_within", NOW + MIN, late_us),))), {"t"})
    assert one.step(late_us + S) == ([], None)
    one.observe(world(replace(row, through_us=NOW + MIN)), {"t"})
    assert one.step(late_us + S) == ([], late_us + MIN)
    assert len(one.step(late_us + MIN)[0]) == 1, "what was proposed before says nothing about this one"


def test_what_is_due_after_an_occurrence_that_was_passed_over_has_a_moment_to_begin() -> None:
    """After an outage the owner passes over all that was due but the latest, and begins that."""
    row = judged(deadlines={"start_within_s": 10, "finish_within_s": 20})
    one = DeadlineJudge(world(row))
    now_us = NOW + 10 * MIN + 30 * S
    assert len(one.step(now_us)[0]) == 2
    breaches = tuple(Breach(name, NOW + MIN, now_us, undecided=True) for name in ("start_within", "finish_within"))
    one.observe(world(replace(row, breaches=breaches)), {"t"})
    assert one.step(now_us) == ([], None)
    passed = replace(row, through_us=NOW + 9 * MIN)
    one.observe(world(passed), {"t"})
    assert one.step(now_us) == ([], now_us + SETTLED_US)
    one.observe(world(passed, run(row, "claimed", fire_at_us=NOW + 10 * MIN)), {"t"})
    assert one.step(now_us) == ([], now_us + SETTLED_US), "it is about to begin"
    one.observe(world(passed), {"t"})
    assert [entry.undecided for entry in one.step(now_us + SETTLED_US)[0]] == [True, True], "nobody began it"


def test_the_leader_steps_at_once_if_a_task_with_deadlines_may_differ() -> None:
    without, limited = task("t", schedule=EVERY), judged(deadlines={"start_within_s": 10})
    one = DeadlineJudge(world(without))
    assert one.step(NOW) == ([], None)
    assert not one.observe(world(without, run(without, "waiting")), {"t", "deleted"})
    assert one.observe(world(limited), {"t"})
    assert one.step(NOW) == ([], NOW + MIN + 10 * S + SETTLED_US)
    assert one.observe(world(without), {"t"}), "it is judged no longer"
    assert one.step(NOW) == ([], None)
    assert one.observe(world(limited), None), "all tasks may differ"


@pytest.mark.parametrize(
    ("deadline", "state", "due_us"),
    [
        ("start_within", world(judged(schedule=None), run(task("t"), "waiting", created_at_us=NOW)), NOW + 1),
        ("start_within", world(judged(schedule=None), run(task("t"), "running")), NOW + 1),
        ("finish_within", world(judged(schedule=None), run(task("t"), "running")), NOW + 1),
        ("finish_within", world(replace(judged(schedule=None), unmet_us=NOW + 5)), NOW + 5),
        ("success_every", world(judged(schedule=None)), NOW),
        ("success_every", world(replace(judged(schedule=None), succeeded_at_us=NOW + 7)), NOW + 7),
        ("start_within", world(judged(schedule={"continuous": True}, retry={"backoff_s": 9})), None),
        ("start_within", world(replace(judged(), judged_us=0)), None),
        ("start_within", world(judged(schedule=None), run(task("t"), "waiting", action="preview")), None),
        ("start_within", world(judged(schedule={"at": "1970-01-02T00:00:00Z"})), None),
    ],
)
def test_what_has_not_met_a_deadline(deadline: str, state: State, due_us: int | None) -> None:
    row = state.tasks["t"]
    limits = {f"{deadline}_s": 10}
    row = replace(row, spec_packed=task("t", schedule=row.spec.schedule, deadlines=limits).spec_packed)
    found = deadlines.next_passing(replace(state, tasks=state.tasks.set("t", row)), "t")
    assert found == ([] if due_us is None else [(due_us + 10 * S, deadline, due_us, False)])


def test_a_run_of_a_deleted_task_says_nothing_about_the_one_that_has_its_name_now() -> None:
    row = judged(schedule=None, deadlines={"start_within_s": 1, "finish_within_s": 10})
    former = run(task("t"), "running", cancelling="deleted")
    assert deadlines.next_passing(world(row, former), "t") == []
    assert deadlines.next_passing(world(row, replace(former, cancelling="by hand")), "t") != []


def test_a_schedule_that_cannot_be_read_here_does_not_hinder_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"start_within_s": 10, "success_every_s": 600}
    state = world(judged(deadlines=limits), run(task("t"), "waiting"))
    monkeypatch.setattr(deadlines, "unreadable", lambda _schedule: "no such time zone")
    assert [one.deadline for one in deadlines.next_passing(state, "t")] == ["start_within", "success_every"]


def test_a_bug_in_one_judgement_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    one = DeadlineJudge(
        world(judged(deadlines={"success_every_s": 90}), judged("u", deadlines={"success_every_s": 90}))
    )
    real = deadlines.next_passing

    def failing(state: State, name: str) -> Any:
        if name == "t":
            raise RuntimeError("a bug")
        return real(state, name)

    monkeypatch.setattr(deadlines, "next_passing", failing)
    late_us = NOW + 90 * S + SETTLED_US
    assert [entry.task for entry in one.step(late_us)[0]] == ["u"]
    assert list(one.undecided) == ["t"]
    monkeypatch.setattr(deadlines, "next_passing", real)
    assert [entry.task for entry in one.step(late_us + AGAIN_US)[0]] == ["t", "u"] and not one.undecided


def test_a_clock_that_is_put_back_is_gone_by() -> None:
    one = DeadlineJudge(world(judged(deadlines={"success_every_s": 90})))
    assert one.step(NOW + 3600 * S)[0]
    late_us = NOW + 90 * S + SETTLED_US
    assert one.step(NOW) == ([], late_us)
    assert one.step(late_us)[0]


def test_many_tasks_are_judged_in_portions() -> None:
    many = [judged(f"t{number}", deadlines={"success_every_s": 90}) for number in range(100)]
    one = DeadlineJudge(world(*many))
    late_us, found, steps = NOW + 90 * S + SETTLED_US, 0, 0
    while found < 100:
        entries, again_us = one.step(late_us)
        assert again_us is not None
        found, steps = found + len(entries), steps + 1
        assert len(entries) <= deadlines.JUDGED_A_STEP and (again_us <= late_us or found == 100)
    assert steps == 4
