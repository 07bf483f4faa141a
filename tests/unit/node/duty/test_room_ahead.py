"""Places and pools of the next hour: what has room at once, and what the others wait for."""

from dataclasses import replace
from typing import Any

import pytest
from immutables import Map

from node.duty.ownership import Ownership
from node.duty.room_ahead import HOUR_US, LOOKED_MAX, RoomAhead
from node.duty.timetable import TimeSpan, timetable
from node.duty.what_if import Supposition, suppose
from node.state.blackout import Blackout
from node.state.places import Places
from node.state.pool import Pool
from node.state.value import Attempt, Outcome, Run, State, TaskRow
from tests.unit.node.duty.test_what_if import NOW, S, cluster, row

AT = NOW + 600 * S


def due(name: str, took_s: float = 60, at_us: int = AT, **spec: Any) -> TaskRow:
    """A task that is due once within the hour, whose last run took so long."""
    since_us = at_us - HOUR_US
    made = row(name, 1, schedule={"every_s": 3600}, **spec)
    last = Outcome("r", "succeeded", NOW - HOUR_US, NOW - HOUR_US, took_us=round(took_s * S))
    return replace(made, since_us=since_us, through_us=since_us, last=last)


def world(*rows: TaskRow, places: int = 2, members: int = 1, pools: dict[str, int] | None = None) -> State:
    """Members with so many places each, these tasks, and pools."""
    numbered = [replace(one, order=number) for number, one in enumerate(rows, 1)]
    state = cluster(*numbered, members=members)
    seats = {name: replace(one, places=Places(places)) for name, one in state.members.items()}
    free = {name: Pool(capacity) for name, capacity in (pools or {}).items()}
    return replace(state, members=Map(seats), pools=Map(free))


def room(state: State, *without: str) -> RoomAhead:
    span = TimeSpan(NOW, NOW + 24 * HOUR_US)
    found = suppose(state, Ownership.of(state), Supposition(frozenset(without)), timetable(state, span), span).room
    counted = (found.at_once, found.no_place, sum(found.no_pool.values()), found.behind, found.held, found.unowned)
    assert sum(counted) + found.uncounted == found.due, "each is counted once"
    return found


def running(task: TaskRow, node: str, began_us: int) -> Run:
    name = task.spec.name
    attempt = Attempt(1, node, 1, 1, "running", claimed_at_us=began_us)
    made = Run(f"{name}~1", name, "manual", began_us, task.spec_packed, "running", began_us)
    return replace(made, node=node, incarnation=1, token=1, attempts=(attempt,))


def with_run(state: State, run: Run) -> State:
    return replace(state, runs=Map({run.run_id: run}), runs_of=Map({run.task: (run.run_id,)}))


def test_what_is_due_together_waits_for_a_place_once_all_are_taken() -> None:
    tasks = [due(f"t{number}", took_s=60 + number) for number in range(5)]
    found = room(world(*tasks, places=2))
    assert (found.due, found.at_once, found.no_place) == (5, 2, 3)
    assert found.longest_us == 122 * S, "t4 begins after t2, which takes 62 s, and begins after t0, which takes 60"
    assert room(world(*tasks, places=2, members=3)).no_place == 0, "the others have places"
    assert room(world(*tasks, places=2, members=3), "node-1", "node-2").no_place == 3
    assert room(world(*tasks, places=0)).at_once == 5, "it has not told how many places it has"
    for sticky, waiting in ((False, 0), (True, 4)):  # three on each, of which node-1 alone has the places
        state = world(*(due(f"t{number}", sticky=sticky) for number in range(9)), places=1, members=3)
        roomy = replace(state.members["node-1"], places=Places(20))
        assert room(replace(state, members=state.members.set("node-1", roomy))).no_place == waiting


def test_what_runs_now_holds_its_place_and_its_pool_as_long_as_it_took_before() -> None:
    long = due("long", took_s=900, at_us=AT + 2 * HOUR_US, uses={"dumps": 1})
    tasks = [due("a"), due("b", uses={"dumps": 1})]
    state = with_run(world(long, *tasks, places=2, pools={"dumps": 1}), running(long, "node-1", NOW - 100 * S))
    found = room(state)
    assert (found.due, found.at_once, dict(found.no_pool), found.longest_us) == (2, 1, {"dumps": 1}, 200 * S)
    # A run that has worked for longer than the last one goes on for as long again.
    late = with_run(state, running(long, "node-1", NOW - 1000 * S))
    assert room(late).longest_us == (1000 - 600) * S
    # It goes on elsewhere if its member is lost.
    two = with_run(world(long, *tasks, places=1, members=2, pools={"dumps": 1}), running(long, "node-1", NOW - 100 * S))
    assert room(two, "node-1").at_once == 0


def test_pools_are_had_all_at_once_and_nobody_overtakes() -> None:
    tasks = [
        due("a", uses={"dumps": 1}),
        due("b", at_us=AT + 1 * S, uses={"dumps": 2}),
        due("c", at_us=AT + 2 * S, uses={"dumps": 1}),
        due("d", at_us=AT + 2 * S, uses={"other": 1}),
        due("e", at_us=AT + 3 * S, uses={"none": 1}),
    ]
    found = room(world(*tasks, places=9, pools={"dumps": 2, "other": 1, "none": 0}))
    assert (found.at_once, dict(found.no_pool)) == (2, {"dumps": 2, "none": 1})
    assert found.longest_us == 118 * S, "c begins after b, which begins after a"


@pytest.mark.parametrize(("overlap", "behind"), [("skip", 30), ("queue", 30), ("allow", 0)])
def test_an_occurrence_whose_run_before_it_works_is_left_to_overlap(overlap: str, behind: int) -> None:
    often = replace(row("t", 1, schedule={"every_s": 60}, overlap=overlap), since_us=NOW, through_us=NOW)
    assert often.last is not None
    often = replace(often, last=replace(often.last, took_us=90 * S))
    found = room(world(often, places=9))
    assert (found.due, found.behind, found.at_once) == (60, behind, 60 - behind)


def test_blackouts_and_tasks_of_nobody_are_said_by_themselves() -> None:
    state = world(due("a"), due("b"), due("c", group=(("zone", "nowhere"),)), due("d", at_us=AT + 300 * S), places=2)
    dark = Blackout("move", AT - S, AT + 300 * S)
    found = room(replace(state, blackouts=Map({"move": dark})))
    # a and b begin at its end, beside d, which is due then, and take both places.
    assert (found.held, found.unowned, found.at_once, found.no_place) == (2, 1, 0, 1)


def test_continuous_tasks_have_places_of_their_own() -> None:
    stream = row("stream", 9, schedule={"continuous": True})
    found = room(world(stream, due("a"), due("b"), places=2))
    assert (found.due, found.at_once, found.no_place) == (2, 1, 1)


def test_more_than_is_looked_at_is_said() -> None:
    often = replace(row("t", 1, schedule={"every_s": 0.1}, overlap="allow"), since_us=NOW, through_us=NOW)
    found = room(world(replace(often, last=None), places=4))
    assert (found.due, found.uncounted, found.at_once) == (36_000, 36_000 - LOOKED_MAX, LOOKED_MAX)
