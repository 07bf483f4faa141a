"""Pools: what runs use is counted in the entry that changes it, and never exceeds what there is."""

from typing import Any

import pytest

from node.state.attempts import Cancel, Finish
from node.state.claims import Claim
from node.state.codec import from_pieces, snapshot_pieces
from node.state.members import MarkDown, TakeLead
from node.state.occurrences import Enqueue, Start
from node.state.pool import Pool
from node.state.pools import WOKEN_MAX
from node.state.registry import DeleteTask, Put, PutTasks
from node.state.settings import ChangeSettings
from node.state.value import RULES, Run
from tasks.definition.spec import Spec
from tests.unit.node.state.given import NOW_US, History, cluster, packed

S = 1_000_000
EVERY = {"every_s": 60}


def pooled(**capacities: int) -> History:
    history = cluster("a", "b")
    history.must(TakeLead(NOW_US, "a", 1, RULES))
    history.must(ChangeSettings(NOW_US, {"pools": capacities}))
    return history


def add(history: History, name: str, **fields: Any) -> None:
    history.put(name, **({"schedule": EVERY, "uses": {"dumps": 1}} | fields))


def due(history: History, task: str, after_s: int = 60) -> Run:
    """Queue an occurrence of a task."""
    history.must(Enqueue(NOW_US + after_s * S, task, (NOW_US + after_s * S,)))
    return history.state.runs[history.state.runs_of[task][-1]]


def take(history: History, run: Run, member: str = "a") -> str:
    """Try to claim a run. Returns the code of the result."""
    at_us = max(run.created_at_us, run.due_us)
    incarnation = history.state.members[member].incarnation
    return history.do(Claim(at_us, run.task, run.fire_at_us, member, incarnation, run.run_id)).code


def held(history: History, run: Run) -> Run:
    return history.state.runs[run.run_id]


def pool(history: History, name: str = "dumps") -> Pool:
    """The pool, which a snapshot restores as it is."""
    assert from_pieces(list(snapshot_pieces(history.state))) == history.state
    return history.state.pools[name]


def waiting(history: History, name: str = "dumps") -> list[str]:
    return [one.task for one in pool(history, name).queue]


def test_no_more_is_claimed_than_there_is_and_each_end_frees_it() -> None:
    history = pooled(dumps=2)
    for name in "xyz":
        add(history, name)
    x, y, z = (due(history, name) for name in "xyz")
    assert waiting(history) == ["x", "y", "z"]
    assert [take(history, run) for run in (x, y, z)] == ["ok", "ok", "pool"]
    assert "the pool dumps has 0 of 2 left" in history.last.result.detail
    assert (pool(history).used, set(pool(history).holders), waiting(history)) == (2, {x.run_id, y.run_id}, ["z"])
    history.must(Finish(NOW_US, x.run_id, held(history, x).token, "succeeded"))
    assert "z" in history.last.touched, "the next one decides at once"
    assert (pool(history).used, take(history, z), pool(history).used, waiting(history)) == (1, "ok", 2, [])


def test_all_of_several_pools_or_none() -> None:
    history = pooled(dumps=1, net=3)
    add(history, "x", uses={"net": 2})
    add(history, "y", uses={"dumps": 1, "net": 2})
    x, y = due(history, "x"), due(history, "y")
    assert (take(history, x), take(history, y)) == ("ok", "pool")
    assert (pool(history).used, pool(history, "net").used, waiting(history, "net")) == (0, 2, ["y"])
    history.must(Cancel(NOW_US, y.run_id))
    assert waiting(history) == waiting(history, "net") == []


def test_a_lost_member_frees_what_its_runs_used_and_they_go_first() -> None:
    history = pooled(dumps=1)
    add(history, "x")
    add(history, "y", priority=100)
    x, y = due(history, "x"), due(history, "y", 120)
    assert take(history, x, "b") == "ok"
    incarnation = history.state.members["b"].incarnation
    history.must(MarkDown(NOW_US + 200 * S, "b", incarnation, "silent", 1))
    assert (held(history, x).state, pool(history).used) == ("orphaned", 0)
    assert waiting(history) == ["x", "y"] and history.last.touched == {"x"}
    assert (take(history, y), take(history, held(history, x))) == ("ok", "pool")


def test_the_order_is_priority_and_a_minute_waited_is_worth_one() -> None:
    history = pooled(dumps=1)
    for name, priority, after_s in (("old", 50, 60), ("middle", 50, 120), ("high", 52, 180), ("low", 0, 240)):
        add(history, name, priority=priority)
        due(history, name, after_s)
    # "high" has waited two minutes less than "old", and has two more: then the name decides.
    assert waiting(history) == ["high", "old", "middle", "low"]


def test_a_retry_waits_without_what_it_used_and_begins_again_in_its_turn() -> None:
    history = pooled(dumps=1)
    add(history, "x", retry={"attempts": 2, "backoff_s": 600})
    add(history, "y")
    x, y = due(history, "x"), due(history, "y", 120)
    take(history, x)
    history.must(Finish(NOW_US + 130 * S, x.run_id, held(history, x).token, "failed", retry=True))
    assert (pool(history).used, waiting(history), take(history, y)) == (0, ["y", "x"], "ok")


def test_a_task_waits_with_its_first_run_only() -> None:
    history = pooled(dumps=2)
    add(history, "q", overlap="queue")
    add(history, "w", overlap="allow")
    one, two = due(history, "q"), due(history, "q", 120)
    three, four = due(history, "w", 180), due(history, "w", 240)
    assert [queued.run_id for queued in pool(history).queue] == [one.run_id, three.run_id]
    assert take(history, one) == "ok"
    assert [queued.run_id for queued in pool(history).queue] == [three.run_id], "q's second run waits for its first"
    assert take(history, three) == "ok"
    assert [queued.run_id for queued in pool(history).queue] == [four.run_id]
    history.must(Finish(NOW_US, one.run_id, held(history, one).token, "succeeded"))
    assert [queued.run_id for queued in pool(history).queue] == [two.run_id, four.run_id]


def test_a_smaller_pool_evicts_nobody_and_an_empty_one_holds_all() -> None:
    history = pooled(dumps=2)
    for name in "xyz":
        add(history, name)
    x, y, z = (due(history, name) for name in "xyz")
    take(history, x), take(history, y)
    history.must(ChangeSettings(NOW_US, {"pools": {"dumps": 1}}))
    assert (pool(history).used, pool(history).capacity, pool(history).free) == (2, 1, 0)
    history.must(Finish(NOW_US, x.run_id, held(history, x).token, "succeeded"))
    assert (pool(history).used, take(history, z)) == (1, "pool")
    history.must(ChangeSettings(NOW_US, {"pools": {"dumps": 0}}))
    history.put("z", schedule=EVERY, uses={"dumps": 1}, weight=2)
    history.must(ChangeSettings(NOW_US, {"pools": {"dumps": 3}}))
    assert "z" in history.last.touched and take(history, z) == "ok"


def test_only_the_first_ones_are_woken() -> None:
    history = pooled(dumps=0)
    history.must(ChangeSettings(NOW_US, {"pools": {"dumps": 1}}))
    names = [f"t{number:03}" for number in range(40)]
    for name in names:
        add(history, name)
    history.must(ChangeSettings(NOW_US, {"pools": {"dumps": 0}}))
    for name in names:
        due(history, name)
    history.must(ChangeSettings(NOW_US, {"pools": {"dumps": 1}}))
    assert history.last.touched == {"t000"}
    history.must(ChangeSettings(NOW_US, {"pools": {"dumps": 100}}))
    assert history.last.touched == set(names[:WOKEN_MAX])


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"no": None}, "there is no pool no"),
        ({"dumps": None}, "1 task uses the pool dumps"),
        ({"a b": 1}, "no name of a pool"),
        ({"x\n": 1}, "no name of a pool"),
        ({"x": -1}, "whole number from 0"),
        ({"x": True}, "whole number from 0"),
        ({"x": 1.0}, "whole number from 0"),
        ([], "a table"),
    ],
)
def test_a_change_of_pools_that_cannot_be_is_refused(changes: Any, fault: str) -> None:
    history = pooled(dumps=1)
    add(history, "x")
    result = history.do(ChangeSettings(NOW_US, {"pools": changes}))
    assert (result.code, fault in result.detail) == ("invalid", True), result


def test_a_pool_goes_once_nothing_uses_it() -> None:
    history = pooled(dumps=1)
    add(history, "x")
    run = due(history, "x")
    take(history, run)
    history.must(DeleteTask(NOW_US, "x"))
    assert pool(history).tasks == 0
    assert "runs use the pool" in history.do(ChangeSettings(NOW_US, {"pools": {"dumps": None}})).detail
    history.must(Finish(NOW_US, run.run_id, held(history, run).token, "cancelled"))
    history.must(ChangeSettings(NOW_US, {"pools": {"dumps": None}}))
    assert (len(history.state.pools), history.state.settings.pools) == (0, ())


def test_a_task_names_pools_that_are_there_and_large_enough() -> None:
    history = pooled(dumps=1)
    for uses, fault in (({"no": 1}, "make it first (rota pools set no=1)"), ({"dumps": 2}, "could never run")):
        result = history.do(PutTasks(NOW_US, (Put(packed("x", uses=uses)),)))
        assert (result.code, fault in result.detail) == ("invalid", True), result
    add(history, "x")
    add(history, "x", uses={})
    assert pool(history).tasks == 0
    for units in (True, "1", 1.0, 0):
        with pytest.raises(ValueError, match=r"uses\.dumps"):
            Spec.model_validate({"name": "x", "kind": "command", "uses": {"dumps": units}})
    with pytest.raises(ValueError, match="never give back"):
        Spec.model_validate({"name": "x", "kind": "wal", "schedule": {"continuous": True}, "uses": {"dumps": 1}})


def test_what_needs_no_pool_is_not_held_up_and_actions_use_none() -> None:
    history = pooled(dumps=1)
    add(history, "x")
    history.put("free", schedule=EVERY)
    take(history, due(history, "x"))
    assert take(history, due(history, "free")) == "ok"
    value = history.must(Start(NOW_US, "x", action="verify"))
    assert take(history, history.state.runs[value["run_id"]]) == "ok"
    assert pool(history).used == 1
