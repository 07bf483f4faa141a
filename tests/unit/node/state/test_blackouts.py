"""Blackouts: which claims they refuse, what an owner proposes meanwhile, and what waits says why."""

from typing import Any

import pytest

from node.duty.decide import needs
from node.duty.standing import standing
from node.duty.turns import turn_of
from node.state.attempts import Finish
from node.state.blackout import blackout_of
from node.state.blackouts import BLACKOUTS_MAX, KEPT_US, EndBlackout, SetBlackout
from node.state.claims import Claim
from node.state.codec import from_pieces, snapshot_pieces
from node.state.members import MarkDown
from node.state.occurrences import Enqueue, SkipOccurrences, Start
from node.state.settings import ChangeSettings
from node.state.value import Run
from tests.unit.node.state.given import NOW_US, History
from tests.unit.node.state.test_calendars import leading

S = 1_000_000
MINUTE_US = 60 * S
EVERY = {"every_s": 60}
FROM_US, UNTIL_US = NOW_US + 30 * S, NOW_US + 150 * S


def dark(**labels: str) -> History:
    """A history with a blackout from 30 to 150 s, for tasks with these labels."""
    history = leading()
    history.must(SetBlackout(NOW_US, "move", FROM_US, UNTIL_US, tuple(labels.items())))
    return history


def wants(history: History, task: str, now_us: int) -> tuple[list[Any], list[Any], int | None]:
    """The entries and the claims that the owner wants to propose for a task, and when it looks again."""
    found = needs(history.state, task, history.state.members["a"], now_us)
    return list(found.entries), [wish.claim for wish in found.wishes], found.look_us


def by_hand(history: History, task: str, at_us: int) -> Run:
    run_id = history.must(Start(at_us, task))["run_id"]
    return history.state.runs[run_id]


def claim(history: History, run: Run, at_us: int, member: str = "a") -> str:
    return history.do(Claim(at_us, run.task, run.fire_at_us, member, 1, run.run_id)).code


def test_what_is_due_meanwhile_is_held_and_judged_by_catch_up_at_the_end() -> None:
    history = dark()
    history.put("t", schedule=EVERY)
    due_us = NOW_US + MINUTE_US
    assert wants(history, "t", due_us) == ([], [], UNTIL_US)
    assert history.do(Claim(due_us, "t", due_us, "a", 1)).code == "blackout"
    [told] = standing(history.state, "t", "a", (), due_us)
    assert (told.code, told.until_us) == ("blackout", UNTIL_US)
    assert "it is held by the blackout move until" in told.detail
    # Two occurrences were held: the latest of them runs.
    entries, claims, _ = wants(history, "t", UNTIL_US)
    assert (entries, claims) == ([SkipOccurrences(UNTIL_US, "t", "missed", (due_us, due_us), 1)], [])
    history.must(entries[0])
    assert wants(history, "t", UNTIL_US)[1] == [Claim(UNTIL_US, "t", due_us + MINUTE_US, "a", 1)]
    history.must(Claim(UNTIL_US, "t", due_us + MINUTE_US, "a", 1))


def test_before_and_after_it_nothing_is_held() -> None:
    history = dark()
    history.put("t", schedule={"every_s": 10})
    assert wants(history, "t", NOW_US + 10 * S)[1] != []
    history.must(Claim(NOW_US + 10 * S, "t", NOW_US + 10 * S, "a", 1))
    history.must(EndBlackout(FROM_US, "move"))
    assert history.do(EndBlackout(FROM_US, "move")).code == "invalid"
    assert blackout_of(history.state.blackouts, history.state.tasks["t"].spec_packed, FROM_US) is None


def test_runs_by_hand_and_retries_wait_and_failovers_and_actions_do_not() -> None:
    history = dark()
    history.put("t", retry={"backoff_s": 0})
    run = by_hand(history, "t", NOW_US)
    history.must(Claim(NOW_US, "t", run.fire_at_us, "b", 1, run.run_id))
    token = history.state.runs[run.run_id].token
    history.must(Finish(FROM_US, run.run_id, token, "failed", error="broke", retry=True))
    assert claim(history, run, FROM_US) == "blackout"
    assert wants(history, "t", FROM_US) == ([], [], UNTIL_US)
    [told] = standing(history.state, "t", "a", (), FROM_US)
    assert (told.code, told.run_id, told.until_us) == ("blackout", run.run_id, UNTIL_US)
    assert claim(history, run, UNTIL_US, "b") == "ok"
    history.must(SetBlackout(UNTIL_US, "again", UNTIL_US, UNTIL_US + MINUTE_US))
    history.must(MarkDown(UNTIL_US, "b", 1, "silent", 1))
    assert history.state.runs[run.run_id].state == "orphaned"
    assert wants(history, "t", UNTIL_US)[1] == [Claim(UNTIL_US, "t", run.fire_at_us, "a", 1, run.run_id)]
    assert claim(history, run, UNTIL_US) == "ok"
    run_id = history.must(Start(UNTIL_US, "t", action="restart"))["run_id"]
    assert claim(history, history.state.runs[run_id], UNTIL_US) == "ok"


def test_continuous_work_goes_on() -> None:
    history = dark()
    history.put("t", schedule={"continuous": True})
    assert len(wants(history, "t", FROM_US)[1]) == 1
    history.claim("t", history.state.tasks["t"].since_us)


def test_only_tasks_with_its_labels_are_held() -> None:
    history = dark(team="bi", zone="a")
    history.put("t", labels={"team": "bi", "zone": "a", "more": "x"})
    history.put("u", labels={"team": "bi"})
    runs = [by_hand(history, name, FROM_US) for name in "tu"]
    assert [claim(history, run, FROM_US) for run in runs] == ["blackout", "ok"]


def test_the_one_that_lasts_longest_is_named() -> None:
    history = dark()
    history.must(SetBlackout(NOW_US, "longer", FROM_US, UNTIL_US + S))
    history.put("t", schedule=EVERY)
    found = blackout_of(history.state.blackouts, history.state.tasks["t"].spec_packed, FROM_US)
    assert found is not None
    assert found.name == "longer"


def test_who_is_held_by_a_blackout_holds_up_nobody_in_a_pool() -> None:
    history = dark(team="bi")
    history.must(ChangeSettings(NOW_US, {"pools": {"dumps": 1}}))
    history.put("t", schedule=EVERY, uses={"dumps": 1}, labels={"team": "bi"}, priority=100)
    history.put("u", schedule=EVERY, uses={"dumps": 1})
    at_us = NOW_US + MINUTE_US
    for name in "tu":
        history.must(Enqueue(at_us, name, (at_us,)))
    [first, second] = [one.task for one in history.state.pools["dumps"].queue]
    assert (first, second) == ("t", "u")
    run = history.state.runs[history.state.runs_of["u"][0]]
    assert turn_of(history.state, "u", run.spec_packed, at_us, run.run_id).mine
    history.must(EndBlackout(at_us, "move"))
    assert not turn_of(history.state, "u", run.spec_packed, at_us, run.run_id).mine


def test_a_snapshot_restores_them_and_old_ones_are_forgotten() -> None:
    history = dark(team="bi")
    assert from_pieces(list(snapshot_pieces(history.state))) == history.state
    later_us = UNTIL_US + KEPT_US + 1
    history.must(SetBlackout(later_us, "next", later_us, later_us + S))
    assert list(history.state.blackouts) == ["next"]


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        (SetBlackout(NOW_US, "a b", 1, 2), "invalid"),
        (SetBlackout(NOW_US, "x", 2, 2), "invalid"),
        (SetBlackout(NOW_US, "x", 2, 2**60), "invalid"),
        (SetBlackout(NOW_US, "x", 1, 2, (("a", "b"), ("a", "c"))), "invalid"),
        (SetBlackout(NOW_US, "x", 1, 2, (("a", "b" * 300),)), "invalid"),
        (SetBlackout(NOW_US, "x", 1, 2, tuple((str(number), "") for number in range(17))), "invalid"),
    ],
)
def test_what_is_no_blackout(entry: SetBlackout, code: str) -> None:
    assert leading().do(entry).code == code


def test_there_are_not_too_many_and_none_before_all_members_know_them() -> None:
    history = leading(rules=9)
    assert history.do(SetBlackout(NOW_US, "x", 1, 2)).code == "invalid"
    history = leading()
    for number in range(BLACKOUTS_MAX):
        history.must(SetBlackout(NOW_US, f"b{number}", NOW_US, NOW_US + S))
    assert history.do(SetBlackout(NOW_US, "x", NOW_US, NOW_US + S)).code == "full"
    history.must(SetBlackout(NOW_US, "b0", NOW_US, NOW_US + 2 * S))
