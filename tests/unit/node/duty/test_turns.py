"""Whose turn it is in a pool, what an owner proposes, and what a run that waits says."""

from typing import Any

from node.duty.decide import needs
from node.duty.standing import standing
from node.duty.turns import LOOK_AGAIN_US, MY_TURN, Turn, turn_of
from node.state.attempts import Finish
from node.state.claims import Claim
from node.state.occurrences import Enqueue
from node.state.settings import ChangeSettings
from node.state.value import Run
from tests.unit.node.state.given import NOW_US, History
from tests.unit.node.state.test_pools import S, add, due, held, pooled, take

AT_US = NOW_US + 60 * S


def turn(history: History, run: Run, now_us: int = AT_US) -> Turn:
    return turn_of(history.state, run.task, run.spec_packed, now_us, run.run_id)


def wants(history: History, task: str, now_us: int = AT_US) -> tuple[list[object], list[object], int | None]:
    """The entries and the claims that the owner wants to propose for a task, and when it looks again."""
    found = needs(history.state, task, history.state.members["a"], now_us)
    return list(found.entries), [wish.claim for wish in found.wishes], found.look_us


def test_as_many_as_there_is_room_for_begin_at_once_and_more_with_each_second() -> None:
    history = pooled(dumps=0)
    history.must(ChangeSettings(NOW_US, {"pools": {"dumps": 1}}))
    for name in "vwxyz":
        add(history, name)
    history.must(ChangeSettings(NOW_US, {"pools": {"dumps": 0}}))
    runs = [due(history, name) for name in "vwxyz"]
    assert turn(history, runs[0]) == Turn(mine=False, look_us=AT_US + LOOK_AGAIN_US), "there is nothing left"
    history.must(ChangeSettings(AT_US, {"pools": {"dumps": 2}}))
    assert [turn(history, run).mine for run in runs] == [True, True, False, False, False]
    assert [turn(history, run).look_us for run in runs[2:]] == [AT_US + S, AT_US + S, AT_US + 2 * S]
    assert [turn(history, run, AT_US + S).mine for run in runs] == [True, True, True, True, False]


def behind_one_that_works() -> tuple[History, Run, Run, Run]:
    """A run that holds one of two, and behind it one that needs both, and one that needs one."""
    history = pooled(dumps=2)
    add(history, "a")
    add(history, "b", uses={"dumps": 2})
    add(history, "c")
    one, two, three = (due(history, name) for name in "abc")
    take(history, one)
    return history, one, two, three


def test_who_needs_much_is_not_overtaken_once_it_has_waited_for_a_minute() -> None:
    history, one, two, three = behind_one_that_works()
    assert not turn(history, two).mine
    assert turn(history, three) == Turn(mine=False, look_us=AT_US + 2 * S), "three are wanted, and one is left"
    assert turn(history, three, AT_US + 2 * S) == MY_TURN
    minute_us = AT_US + 60 * S
    assert turn(history, three, minute_us) == Turn(mine=False, look_us=minute_us + LOOK_AGAIN_US)
    history.must(Finish(minute_us, one.run_id, held(history, one).token, "succeeded"))
    assert turn(history, two, minute_us) == MY_TURN


def test_what_those_before_it_need_is_left_to_them() -> None:
    history, one, two, three = behind_one_that_works()
    history.must(Finish(AT_US, one.run_id, held(history, one).token, "succeeded"))
    assert turn(history, two) == MY_TURN, "it is first, and there is enough"
    assert turn(history, three) == Turn(mine=False, look_us=AT_US + S), "the first needs both"


def test_who_is_not_due_yet_holds_up_nobody() -> None:
    history = pooled(dumps=1)
    add(history, "x", priority=100, retry={"attempts": 2, "backoff_s": 600})
    add(history, "y")
    x, y = due(history, "x"), due(history, "y")
    take(history, x)
    history.must(Finish(AT_US, x.run_id, held(history, x).token, "failed", retry=True))
    assert [one.task for one in history.state.pools["dumps"].queue] == ["x", "y"]
    assert turn(history, y) == MY_TURN


def test_an_occurrence_begins_where_nobody_waits_and_is_queued_where_something_lacks() -> None:
    history = pooled(dumps=1)
    add(history, "x", catch_up="skip")
    add(history, "y")
    entries, claims, _ = wants(history, "x")
    assert (entries, claims) == ([], [Claim(AT_US, "x", AT_US, "a", 1)])
    run = history.claim("x", AT_US)
    assert wants(history, "y") == ([Enqueue(AT_US, "y", (AT_US,))], [], AT_US + 60 * S)
    waits = due(history, "y")
    assert wants(history, "y") == ([], [], AT_US + LOOK_AGAIN_US)
    history.must(Finish(AT_US, run.run_id, run.token, "succeeded"))
    _, claims, _ = wants(history, "y")
    assert [claim.run_id for claim in claims] == [waits.run_id]  # type: ignore[attr-defined]
    late_us = AT_US + 3600 * S
    entries, claims, _ = wants(history, "x", late_us)
    assert [type(entry) for entry in entries] != [Claim] and not claims, "y waits, so x has to wait behind it"


def test_what_waits_says_for_which_pool_and_who_holds_it() -> None:
    history = pooled(dumps=1)
    for name in "xyz":
        add(history, name)
    x, y, z = (due(history, name) for name in "xyz")
    take(history, x)
    [told] = [one for one in standing(history.state, "y", "a", (), AT_US) if one.code == "pool"]
    assert told.detail == (
        f"{y.run_id} waits for 1 of the pool dumps: 1 of 1 are used, held by {x.run_id} since 2024-10-04T00:01:00Z"
    )
    history.must(Finish(AT_US, x.run_id, held(history, x).token, "succeeded"))
    [told] = [one for one in standing(history.state, "z", "a", (), AT_US) if one.code == "pool"]
    assert told.detail == f"{z.run_id} waits for its turn in the pool dumps: y goes first"


def at_a_rate(*names: str, **fields: Any) -> History:
    history = pooled(dumps=1, api=1)
    for name in names:
        add(history, name, **({"uses": {}, "rate": {"pool": "api", "per_min": 30}} | fields))
    return history


def test_the_first_looks_again_exactly_when_it_may_start_and_the_next_ones_a_second_later() -> None:
    history = at_a_rate(*"vwxyz")
    runs = [due(history, name) for name in "vwxyz"]
    assert [turn(history, run).look_us for run in runs] == [None, *(AT_US + one * S for one in (1, 2, 2, 3))]
    take(history, runs[0])
    may_us = AT_US + 2 * S
    assert [turn(history, run).look_us for run in runs[1:]] == [may_us + one * S for one in (0, 1, 2, 2)]
    assert [turn(history, run, may_us).mine for run in runs[1:]] == [True, False, False, False]
    assert turn(history, runs[2], may_us + S).mine, "the first cannot begin, for want of a place"
    assert wants(history, "w", may_us - 1) == ([], [], may_us)


def test_an_occurrence_waits_for_its_rate_as_a_run() -> None:
    history = at_a_rate("x", "y")
    history.claim("x", AT_US)
    assert wants(history, "y", AT_US + S)[0] == [Enqueue(AT_US + S, "y", (AT_US,))]
    assert wants(history, "y", AT_US + 2 * S)[1], "nobody waits, and its time has come"


def test_who_waits_for_a_rate_holds_up_nobody_without_one_and_who_lacks_something_holds_up_no_start() -> None:
    history = at_a_rate("x", "y", uses={"dumps": 1})
    add(history, "z")
    add(history, "zfree", uses={}, rate={"pool": "api", "per_min": 30})
    x, y, z, free = (due(history, name) for name in ("x", "y", "z", "zfree"))
    take(history, x)
    may_us = AT_US + 2 * S
    assert turn(history, free, may_us).mine, "y goes before it, and lacks a place"
    ended_us = AT_US + 3 * S // 2
    history.must(Finish(ended_us, x.run_id, held(history, x).token, "succeeded"))
    assert turn(history, z, ended_us).mine, "y may not start yet"
    assert not turn(history, z, may_us).mine and turn(history, y, may_us).mine
    assert not turn(history, free, may_us).mine


def test_what_waits_for_a_rate_says_when_the_next_may_start() -> None:
    history = at_a_rate("x", "y", "z")
    x, y, z = (due(history, name) for name in "xyz")
    take(history, x)
    now_us = AT_US + 600_000
    for run, more in ((y, ""), (z, ", and y goes first")):
        [told] = [one for one in standing(history.state, run.task, "a", (), now_us) if one.code == "rate"]
        detail = f"{run.run_id} waits for the rate of the pool api: the next start in 1.4 s{more}"
        assert (told.detail, told.until_us) == (detail, AT_US + 2 * S)
    [told] = [one for one in standing(history.state, "z", "a", (), AT_US + 2 * S) if one.run_id == z.run_id]
    assert (told.code, told.detail) == ("pool", f"{z.run_id} waits for its turn in the pool api: y goes first")


def test_who_needs_more_of_a_pool_than_there_is_in_all_holds_up_nobody_and_says_so() -> None:
    history = pooled(dumps=2, lock=1)
    add(history, "a", uses={"dumps": 2})
    add(history, "b", uses={"dumps": 1, "lock": 1})
    add(history, "c")
    large, locked, small = (due(history, name) for name in "abc")
    history.must(ChangeSettings(AT_US, {"pools": {"dumps": 1, "lock": 0}}))
    assert [one.task for one in history.state.pools["dumps"].queue] == ["a", "b", "c"]
    for now_us in (AT_US, AT_US + 3600 * S):
        assert [turn(history, run, now_us).mine for run in (large, locked, small)] == [False, False, True]
    [told] = [one for one in standing(history.state, "a", "a", (), AT_US) if one.code == "pool"]
    assert told.detail == (
        f"{large.run_id} needs 2 of the pool dumps, which has 1 in all: it begins once that is raised "
        "(rota pools set dumps=2)"
    )
    take(history, small)
    history.must(Finish(AT_US, small.run_id, held(history, small).token, "succeeded"))
    add(history, "d")
    assert turn(history, due(history, "d")).mine
    history.must(ChangeSettings(AT_US, {"pools": {"lock": 1}}))
    assert "b" in history.last.touched, "it may begin again"


def test_what_is_freed_wakes_the_first_who_may_begin() -> None:
    history = pooled(dumps=2)
    add(history, "a", uses={"dumps": 2})
    for name in "bc":
        add(history, name)
    _, one, _ = (due(history, name) for name in "abc")
    history.must(ChangeSettings(AT_US, {"pools": {"dumps": 1}}))
    take(history, one)
    history.must(Finish(AT_US, one.run_id, held(history, one).token, "succeeded"))
    assert history.last.touched == {"b", "c"}, "a needs more than there is"
