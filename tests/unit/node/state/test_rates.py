"""A rate: between two starts in a pool lies what the task of the first one says, whoever claims, by whatever clock."""

from typing import Any

import pytest

from node.state.attempts import Finish
from node.state.claims import Claim
from node.state.members import MarkDown, TakeLead
from node.state.occurrences import Start
from node.state.pool import PacedStart, Pool
from node.state.registry import DeleteTask, Put, PutTasks
from node.state.settings import ChangeSettings
from node.state.snapshot import records
from node.state.value import RULES, Result, Run
from tasks.definition.spec import Spec
from tests.unit.node.state.given import NOW_US, History, cluster, packed
from tests.unit.node.state.test_pools import S, add, due, held, pool, pooled

AT_US = NOW_US + 60 * S


def paced(*names: str, per_min: int = 30, **fields: Any) -> History:
    """A cluster with the pool `api`, and tasks that start in it."""
    history = pooled(api=1, dumps=1)
    for name in names:
        add(history, name, **({"uses": {}, "rate": {"pool": "api", "per_min": per_min}} | fields))
    return history


def claim(history: History, run: Run, at_us: int, member: str = "a") -> Result:
    """Try to claim a run, by an entry of this time."""
    incarnation = history.state.members[member].incarnation
    return history.do(Claim(at_us, run.task, run.fire_at_us, member, incarnation, run.run_id))


def api(history: History) -> Pool:
    """The pool, which a snapshot restores as it is."""
    return pool(history, "api")


def test_the_next_start_is_refused_until_its_time_has_come() -> None:
    history = paced("x", "y", "z")
    x, y, z = (due(history, name) for name in "xyz")
    assert claim(history, x, AT_US).ok
    assert history.last.touched == {"x", "y"}, "the next one learns when it may start"
    refused = claim(history, y, AT_US + 2 * S - 1)
    assert refused == Result("rate", detail="the rate of the pool api allows the next start at 2024-10-04T00:01:02Z")
    assert claim(history, y, AT_US + 2 * S).ok
    assert claim(history, z, AT_US + 3 * S).code == "rate"
    assert (api(history).used, [one.task for one in api(history).queue]) == (0, ["z"]), "it uses nothing of the pool"
    assert claim(history, z, AT_US + 3600 * S).ok


def test_each_start_moves_the_next_one_on_by_what_its_own_task_says() -> None:
    history = paced("x")
    add(history, "fast", uses={}, rate={"pool": "api", "per_min": 6000})
    add(history, "free")
    x, fast, free = (due(history, name) for name in ("x", "fast", "free"))
    assert claim(history, fast, AT_US).ok
    assert claim(history, x, AT_US + 10_000).ok
    assert claim(history, free, AT_US + 10_001).ok, "what has no rate neither waits nor counts"
    assert api(history).starts == (PacedStart(AT_US + 10_000, AT_US + 10_000 + 2 * S),)


def test_a_scheduled_occurrence_that_is_no_run_yet_counts_and_is_refused_too() -> None:
    history = paced("x", "y")
    assert history.do(Claim(AT_US, "x", AT_US, "a", 1)).ok
    assert history.do(Claim(AT_US, "y", AT_US, "a", 1)).code == "rate"
    assert history.do(Claim(AT_US + 2 * S, "y", AT_US, "a", 1)).ok


def test_a_retry_and_a_failover_are_starts_and_an_action_is_none() -> None:
    history = paced("x", "y", "z", retry={"attempts": 2, "backoff_s": 0})
    x, y, z = (due(history, name) for name in "xyz")
    claim(history, x, AT_US, "b")
    history.must(Finish(AT_US + 1, x.run_id, held(history, x).token, "failed", retry=True))
    assert claim(history, x, AT_US + S).code == "rate"
    assert claim(history, x, AT_US + 2 * S, "b").ok
    history.must(MarkDown(AT_US + 3 * S, "b", history.state.members["b"].incarnation, "silent", 1))
    assert api(history).queue[0].task == "x", "what was lost goes first"
    assert claim(history, x, AT_US + 3 * S).code == "rate"
    assert claim(history, x, AT_US + 4 * S).ok
    value = history.must(Start(AT_US + 4 * S, "y", action="verify"))
    assert claim(history, history.state.runs[value["run_id"]], AT_US + 4 * S).ok
    assert claim(history, y, AT_US + 6 * S).ok, "the action has moved nothing on"
    assert claim(history, z, AT_US + 7 * S).code == "rate"


def test_a_task_may_have_a_rate_in_a_pool_that_it_uses_and_needs_both() -> None:
    history = paced("x", "y", uses={"api": 1})
    x, y = due(history, "x"), due(history, "y")
    assert claim(history, x, AT_US).ok
    assert claim(history, y, AT_US + 60 * S).code == "pool"
    history.must(Finish(AT_US + S, x.run_id, held(history, x).token, "succeeded"))
    assert claim(history, y, AT_US + S).code == "rate"
    assert claim(history, y, AT_US + 2 * S).ok


def started(history: History, task: str) -> Run:
    """A run by hand."""
    run_id = history.must(Start(AT_US, task))["run_id"]
    return history.state.runs[run_id]


def test_a_start_by_a_clock_that_is_ahead_holds_up_the_others_for_its_pace_and_five_seconds_at_most() -> None:
    history = paced("x", overlap="allow")
    hour_us = AT_US + 3600 * S
    steps = [
        (AT_US, "ok"),
        (hour_us, "ok"),  # of a member whose clock is an hour ahead
        (AT_US + 1, "rate"),  # the start before that one still counts
        (AT_US + 2 * S, "ok"),
        (AT_US + 3 * S, "rate"),  # the starts by the right clocks keep their distance
        (hour_us + S, "rate"),  # and so do those by the wrong one
        (hour_us + 2 * S, "ok"),
        (AT_US + 3 * S, "rate"),
        (AT_US + 4 * S, "ok"),
        (hour_us + 2 * S - 5 * S - 1, "ok"),
        (hour_us + 2 * S - 5 * S, "rate"),
        (hour_us + 4 * S - 1, "rate"),
        (hour_us + 4 * S, "ok"),
    ]
    for at_us, code in steps:
        assert claim(history, started(history, "x"), at_us).code == code, (at_us - AT_US) / S
    assert len(api(history).starts) == 2


def test_a_slower_clock_waits_until_it_has_come_there() -> None:
    history = paced("x", "y")
    x, y = due(history, "x"), due(history, "y")
    assert claim(history, x, AT_US + S).ok
    assert claim(history, y, AT_US, "b").code == "rate"
    assert claim(history, y, AT_US + 3 * S, "b").ok


def test_a_pool_in_which_tasks_start_is_there_and_stays() -> None:
    history = pooled(dumps=1)
    rate = {"pool": "api", "per_min": 30}
    result = history.do(PutTasks(NOW_US, (Put(packed("x", rate=rate)),)))
    assert result.detail == "x has a rate in the pool api, which is not there: make it first (rota pools set api=1)"
    history.must(ChangeSettings(NOW_US, {"pools": {"api": 0}}))
    add(history, "x", uses={}, rate=rate)
    assert "1 task uses the pool api" in history.do(ChangeSettings(NOW_US, {"pools": {"api": None}})).detail
    run = due(history, "x")
    assert claim(history, run, AT_US).ok, "of a pool of none, too: a rate takes nothing of it"
    history.must(DeleteTask(AT_US, "x"))
    history.must(ChangeSettings(AT_US, {"pools": {"api": None}}))
    assert "api" not in history.state.pools


def test_a_run_that_is_retried_after_its_pool_was_removed_starts() -> None:
    history = paced("x", retry={"attempts": 2, "backoff_s": 0})
    run = due(history, "x")
    assert claim(history, run, AT_US).ok
    add(history, "x", uses={})
    history.must(ChangeSettings(AT_US, {"pools": {"api": None}}))
    history.must(Finish(AT_US + 1, run.run_id, held(history, run).token, "failed", retry=True))
    assert claim(history, run, AT_US + 2).ok


def test_rates_need_a_leader_that_knows_them() -> None:
    history = cluster("a")
    history.must(TakeLead(NOW_US, "a", 1, RULES - 1))
    history.must(ChangeSettings(NOW_US, {"pools": {"api": 1}}))
    result = history.do(PutTasks(NOW_US, (Put(packed("x", rate={"pool": "api", "per_min": 30})),)))
    assert (result.code, result.detail) == ("invalid", "x: `rate` needs a leader of this version")


@pytest.mark.parametrize(
    ("rate", "fault"),
    [
        ({"pool": "api"}, "rate.per_min"),
        ({"per_min": 30}, "rate.pool"),
        ({"pool": "api", "per_min": 0}, "rate.per_min"),
        ({"pool": "api", "per_min": 6001}, "rate.per_min"),
        ({"pool": "api", "per_min": 1.5}, "rate.per_min"),
        ({"pool": "api", "per_min": True}, "rate.per_min"),
        ({"pool": "a b", "per_min": 1}, "rate.pool"),
        ({"pool": "api", "per_min": 1, "burst": 2}, "rate.burst"),
        ("30/min", "rate"),
    ],
)
def test_a_rate_that_cannot_be_is_refused(rate: Any, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        Spec.model_validate({"name": "x", "kind": "command", "rate": rate})


def test_a_continuous_task_has_no_rate() -> None:
    with pytest.raises(ValueError, match=r"pauses for `retry.backoff_s` after a failure: remove `rate`"):
        Spec.model_validate(
            {"name": "x", "kind": "wal", "schedule": {"continuous": True}, "rate": {"pool": "api", "per_min": 1}}
        )


def test_without_a_start_at_a_rate_the_packed_pool_is_as_before() -> None:
    history = pooled(dumps=1)
    add(history, "x")
    assert [len(one) for one in records(history.state) if one[1:2] == ["dumps"]] == [3]
    history = paced("x")
    claim(history, due(history, "x"), AT_US)
    assert [one[3:] for one in records(history.state) if one[1:2] == ["api"]] == [[[[AT_US, AT_US + 2 * S]]]]
