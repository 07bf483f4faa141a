"""The tasks before and after a task, and how each of them is for one occurrence."""

from dataclasses import replace
from typing import Any

from immutables import Map

from node.duty.task_graph import (
    TaskChoice,
    TaskPassage,
    families,
    neighbours,
    occurrences_of,
    passages_now,
    passages_of,
    under_way,
)
from node.duty.upstream import upstream_of, waiting_chain
from node.state.attempts import Began
from node.state.awaiting import AwaitParents
from node.state.occurrences import Start
from node.state.registry import Pause
from node.state.value import EndedRun, OccurrenceId, State
from tasks.definition.spec import after_of
from tests.unit.node.duty.given import task, world
from tests.unit.node.state.given import NOW_US, History
from tests.unit.node.state.test_joins import MINUTE, after, do, finish, pass_all

FIRST = OccurrenceId(NOW_US + MINUTE)


def states(history: History, task: str = "d", occurrence: OccurrenceId = FIRST) -> dict[str, str]:
    return {name: one.state for name, one in passages(history, task, occurrence).items()}


def passages(history: History, task: str = "d", occurrence: OccurrenceId = FIRST) -> dict[str, TaskPassage]:
    graph = neighbours(history.state, task, 100)
    occurrences = occurrences_of(history.state, graph, task, occurrence)
    ended: dict[str, EndedRun] = {
        one.run.task: one for one in history.ended if one.run.occurrence == occurrences.get(one.run.task)
    }
    return passages_of(history.state, graph, occurrences, ended, NOW_US + 2 * MINUTE)


def open_ones(history: History, task: str = "d") -> list[OccurrenceId]:
    return under_way(history.state, neighbours(history.state, task, 100), task)


def diamond() -> History:
    """A diamond from a to d, a task e after it, and one beside it."""
    return after(a=[], b=["a"], c=["a"], d=["b", {"task": "c", "on": "ended"}], e=["d"], x=["a"])


def run_next(history: History, task: str, end: str = "succeeded") -> None:
    (run_id,) = history.state.runs_of[task]
    finish(history, history.claim(task, history.state.runs[run_id].fire_at_us, run_id=run_id), end)


def test_a_task_s_neighbours_are_all_before_and_after_it_and_no_others() -> None:
    history = diamond()
    found = neighbours(history.state, "b", 100)
    assert dict(found.layers) == {"a": 0, "b": 1, "d": 2, "e": 3}
    assert {(one.parent, one.child) for one in found.edges} == {("a", "b"), ("b", "d"), ("d", "e")}
    whole = neighbours(history.state, "d", 100)
    assert dict(whole.layers) == {"a": 0, "b": 1, "c": 1, "d": 2, "e": 3}
    assert {one.on for one in whole.edges if one.parent == "c"} == {"ended"}
    assert dict(neighbours(history.state, "d", 100, after=False).layers) == {"a": 0, "b": 1, "c": 1, "d": 2}


def test_the_nearest_are_kept_where_there_are_too_many() -> None:
    history = diamond()
    found = neighbours(history.state, "d", 4)
    assert (set(found.tasks), found.left_out) == ({"d", "b", "c", "e"}, 1)


def test_all_tasks_that_come_after_others_or_before_of_one_set_or_of_all() -> None:
    history = after(a=[], b={"after": ["a"], "set": "site"}, c={"after": ["b"], "set": "site"}, alone=[])
    assert families(history.state, TaskChoice(), 10).graph.tasks == ("a", "b", "c")
    assert families(history.state, TaskChoice("site"), 10).graph.tasks == ("b", "c")
    cut = families(history.state, TaskChoice(), 2).graph
    assert (cut.tasks, cut.left_out) == (("a", "b"), 1)


def test_an_occurrence_on_its_way_through_a_diamond() -> None:
    history = diamond()
    assert open_ones(history) == []
    run = history.claim("a", NOW_US + MINUTE)
    history.must(Began(NOW_US + MINUTE, run.run_id, run.token))
    assert open_ones(history) == [FIRST]
    assert states(history) == {"a": "running", "b": "pending", "c": "pending", "d": "pending", "e": "pending"}
    told = passages(history)
    assert (told["a"].node, told["a"].attempt, told["a"].since_us) == ("a", 1, NOW_US + MINUTE)
    assert (told["d"].waits_for, told["d"].since_us) == (("b", "c"), NOW_US + MINUTE)
    finish(history, history.state.runs[run.run_id])
    assert states(history) == {"a": "succeeded", "b": "waiting", "c": "waiting", "d": "pending", "e": "pending"}
    run_next(history, "c", "failed")
    assert passages(history)["d"] == TaskPassage("pending", since_us=NOW_US + MINUTE, waits_for=("b",))
    run_next(history, "b", "failed")
    pass_all(history)
    assert states(history) == {
        "a": "succeeded",
        "b": "failed",
        "c": "failed",
        "d": "upstream_failed",
        "e": "upstream_failed",
    }
    assert passages(history)["d"].detail == "b failed"
    assert open_ones(history) == []


def test_an_occurrence_that_is_not_a_task_s_own_or_of_which_no_record_is_kept() -> None:
    history = diamond()
    do(history, "a", 1)
    history.put("late", after=["a"], at_us=NOW_US + 2 * MINUTE)
    found = states(history, "late")
    assert found == {"a": "succeeded", "late": "none"}
    history.ended.clear()
    assert states(history, "a")["a"] == "none"


def test_a_rerun_goes_through_its_own_tasks() -> None:
    history = diamond()
    at_us = NOW_US + MINUTE
    run_id = history.must(Start(at_us, "b", downstream=True))["run_id"]
    (occurrence,) = open_ones(history)
    assert occurrence.generation
    told = passages(history, "b", occurrence)
    assert "a" in told
    told |= {"c": passages(history, "d", occurrence)["c"]}
    found = {name: one.state for name, one in told.items()}
    assert found == {"a": "none", "b": "waiting", "c": "none", "d": "pending", "e": "pending"}
    assert (told["b"].run_id, told["d"].waits_for) == (run_id, ("b",))


def test_how_tasks_are_now() -> None:
    history = diamond()
    history.must(Pause(NOW_US, "c", on=True))
    do(history, "a", 1)
    pass_all(history)
    now = passages_now(history.state, "abcde", NOW_US + MINUTE)
    found = {name: one.state for name, one in now.items()}
    assert found == {"a": "succeeded", "b": "waiting", "c": "paused", "d": "pending", "e": "new"}


def test_what_a_task_waits_for_through_its_parents() -> None:
    history = diamond()
    chain = waiting_chain(history.state, "e", NOW_US)
    assert [task for task, _ in chain] == ["e", "d", "b", "a"]
    assert upstream_of(chain, "not due until noon").words == "a does not run: not due until noon"
    run = history.claim("a", NOW_US + MINUTE)
    history.must(Began(NOW_US + MINUTE, run.run_id, run.token))
    told = upstream_of(waiting_chain(history.state, "e", NOW_US + MINUTE), "")
    begun = "2024-10-04T00:01:00Z"
    assert told.words == f"e waits for d, d waits for b and c, b waits for a, a has run on a since {begun}"
    assert (told.task, told.member, told.runs) == ("a", "a", (run.run_id,))
    finish(history, history.state.runs[run.run_id])
    run_next(history, "b")
    assert [task for task, _ in waiting_chain(history.state, "e", NOW_US)] == ["e", "d", "c"]


def test_a_paused_task_among_those_before_it_is_named() -> None:
    history = after(a=[], b=["a"], c=[], d=["b", "c"])
    history.must(Pause(NOW_US, "c", on=True))
    assert [task for task, _ in waiting_chain(history.state, "d", NOW_US)] == ["d", "c"]


def test_a_task_with_a_schedule_waits_for_occurrences_of_other_times() -> None:
    hourly, later = {"cron": "0 * * * *"}, {"cron": "30 1 * * *"}
    history = after(a={"schedule": hourly}, b=["a"], c={"after": ["b"], "schedule": later}, d=["c"])
    hour, due = OccurrenceId(NOW_US + 60 * MINUTE), OccurrenceId(NOW_US + 90 * MINUTE)
    run = history.claim("a", hour.nominal_us)
    history.must(AwaitParents(due.nominal_us, "c", due.nominal_us, (("b", hour.nominal_us),)))
    assert open_ones(history) == [due], "it does not share the occurrences of those before it"
    assert open_ones(history, "b") == [hour]
    assert states(history, "d", due) == {"a": "claimed", "b": "pending", "c": "pending", "d": "pending"}
    assert passages(history, "d", due)["c"].waits_for == ("b",)
    assert states(history, "b", hour)["c"] == "pending", "downwards, too"
    assert [task for task, _ in waiting_chain(history.state, "d", due.nominal_us)] == ["d", "c", "b", "a"]
    finish(history, run)
    run_next(history, "b")
    assert states(history, "d", due) == {"a": "succeeded", "b": "succeeded", "c": "waiting", "d": "pending"}
    run_next(history, "c")
    run_next(history, "d")
    assert [task for task, _ in waiting_chain(history.state, "d", NOW_US)] == ["d", "c"], "c has times of its own"


def chains(number: int, length: int, **spec: Any) -> State:
    rows = [
        task(f"c{one:04}-{place}", after=[f"c{one:04}-{place - 1}"] if place else [], **spec)
        for one in range(number)
        for place in range(length)
    ]
    state = world(*rows, task("zz", labels={"team": "bi"}), task("alone", set="site"))
    children: dict[str, tuple[str, ...]] = {}
    for row in rows:
        for parent in after_of(row.spec_packed):
            children[parent.task] = (*children.get(parent.task, ()), row.spec.name)
    return replace(state, children=Map(children))


def test_families_are_whole_as_long_as_there_is_room_and_the_others_are_counted() -> None:
    state = chains(5, 3)
    found = families(state, TaskChoice(), 8)
    assert found.graph.tasks == ("c0000-0", "c0001-0", "c0002-0", "c0000-1", "c0001-1", "c0002-1", "c0000-2", "c0001-2")
    assert (found.graph.left_out, found.alone, found.alone_left_out) == (7, ("alone", "zz"), 0)
    assert families(state, TaskChoice(), 1).alone_left_out == 1
    every = families(state, TaskChoice(), 1000)
    assert (len(every.graph.tasks), len(every.graph.edges), every.graph.left_out) == (15, 10, 0)


def test_families_of_a_set_or_a_label() -> None:
    state = chains(2, 2, set="site", labels={"team": "bi"})
    of_set = families(state, TaskChoice("site"), 100)
    assert (len(of_set.graph.tasks), of_set.alone) == (4, ("alone",))
    of_label = families(state, TaskChoice(label="team=bi"), 100)
    assert (len(of_label.graph.tasks), of_label.alone) == (4, ("zz",))
    both = families(state, TaskChoice("site", "team=bi"), 100)
    assert (len(both.graph.tasks), both.alone) == (4, ())
    for nothing in (TaskChoice("other"), TaskChoice(label="team"), TaskChoice(label="team=b"), TaskChoice(label="")):
        empty = families(state, nothing, 100)
        assert (empty.graph.tasks, empty.alone, empty.graph.left_out) == ((), (), 0)


def test_a_task_whose_parent_is_of_another_set_is_in_the_graph_of_its_set() -> None:
    state = chains(1, 2)
    inside = task("inside", after=["c0000-1"], set="site")
    state = replace(
        state,
        tasks=state.tasks.set("inside", inside),
        children=state.children.set("c0000-1", ("inside",)),
    )
    found = families(state, TaskChoice("site"), 100)
    assert (found.graph.tasks, found.graph.edges, found.alone) == (("inside",), (), ("alone",))
