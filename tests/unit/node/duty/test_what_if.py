"""What would be without members: placed by the same function as what is, and counted as a naive walk counts it."""

import random
from collections import Counter
from dataclasses import replace
from typing import Any

from immutables import Map

from hashing.key import key64
from hashing.view import Task
from node.duty.forecast import NAMED_MAX, STEPS, Forecast, forecast
from node.duty.ownership import Ownership
from node.duty.timetable import LINE_TIMES_MAX, TimeSpan, timetable
from node.duty.what_if import Supposition, WhatIf, suppose, supposed
from node.state.value import Attempt, Member, MemberStatus, Outcome, Run, State, TaskRow
from tasks.definition.spec import Spec

S = 1_000_000
HOUR = 3600 * S
NOW = 1_795_000_000 * S
DAY = TimeSpan(NOW, NOW + 24 * HOUR)


def row(name: str, order: int, group: tuple[tuple[str, str], ...] = (), paused: bool = False, **spec: Any) -> TaskRow:
    packed = Spec(name=name, kind="command", group=dict(group), **spec).pack()
    last = Outcome("r", "succeeded", NOW - HOUR, NOW - HOUR + 90 * S, took_us=90 * S)
    return TaskRow(
        packed, Task(name, key64(name), "command", group), order, 1, 0, NOW - 7 * S, NOW - 7 * S, paused, last=last
    )


def cluster(*rows: TaskRow, members: int = 3, **status: MemberStatus) -> State:
    ids = tuple(f"node-{number}" for number in range(1, members + 1))
    kinds = frozenset({"command"})
    made = {
        name: Member(
            name,
            slot,
            "h",
            1,
            2,
            status.get(name.replace("-", ""), "up"),
            None,
            1,
            kinds=kinds,
            labels=(("zone", name),),
        )
        for slot, name in enumerate(ids)
    }
    return State(
        epoch=1, orders=len(rows), slots=ids, members=Map(made), tasks=Map({one.placing.name: one for one in rows})
    )


def asked(state: State, *without: str, back: tuple[str, ...] = (), span: TimeSpan = DAY) -> WhatIf:
    supposition = Supposition(frozenset(without), frozenset(back))
    return suppose(state, Ownership.of(state), supposition, timetable(state, span), span)


def some_rows(count: int) -> list[TaskRow]:
    draw = random.Random(count)
    schedules: list[dict[str, Any]] = [
        {"cron": "0 3 * * *"},
        {"cron": "*/5 * * * *"},
        {"cron": "30 1 * * *", "timezone": "Europe/Paris"},
        {"every_s": 3600},
        {"every_s": 0.5},
        {"every_s": 61.7},
        {"at": "2026-11-30T00:00:00Z"},
        {"continuous": True},
    ]
    return [row(f"task-{n}", n, schedule=draw.choice(schedules)) for n in range(1, count + 1)]


def test_without_a_member_all_is_as_it_is_when_that_member_is_down() -> None:
    state = cluster(*some_rows(200))
    found = asked(state, "node-2")
    member = state.members["node-2"]
    really = Ownership.of(replace(state, members=state.members.set("node-2", replace(member, status="down"))))
    now = Ownership.of(state)
    assert {move.task: move.target for move in found.moves} == {
        task: really.owner(task) for task in state.tasks if really.owner(task) != now.owner(task)
    }
    assert found.load_then == really.load()
    assert found.ahead.members["node-2"].count == 0
    assert found.ahead.count == asked(state).ahead.count, "everything is still due"
    assert (found.majority.needed, found.majority.then, found.majority.left) == (2, 2, True)
    assert asked(state, "node-2", "node-3").majority.left is False


def test_with_a_drained_member_back_it_takes_its_share() -> None:
    state = cluster(*some_rows(90), node3="draining")
    found = asked(state, back=("node-3",))
    assert found.load_now["node-3"] == 0
    assert found.load_then["node-3"] == 30
    assert sum(move.target == "node-3" for move in found.moves) == 30
    assert not asked(state).moves
    assert supposed(state, Supposition(back=frozenset({"node-9"}))) == state


def test_what_nobody_could_run_is_said_with_the_reason() -> None:
    bound = row("bound", 1, group=(("zone", "node-2"),), schedule={"every_s": 3600})
    lost = row("lost", 2, group=(("zone", "moon"),))
    found = asked(cluster(bound, lost, row("free", 3)), "node-2")
    assert found.unowned_count == 2
    first, second = found.unowned
    assert (first.task, first.code, first.now) == ("bound", "members_down", False)
    assert first.detail == "no member that may run it is up: node-2 is down"
    assert (second.task, second.code, second.now) == ("lost", "no_label", True)
    assert found.ahead.members[None].count == 24
    assert [one.source for one in found.ahead.members[None].runs][:2] == ["node-2", "node-2"]


def test_runs_that_a_member_would_lose_go_on_with_the_next_owner() -> None:
    state = cluster(*some_rows(30))
    task = next(task for task in state.tasks if Ownership.of(state).owner(task) == "node-2")
    attempt = Attempt(1, "node-2", 1, 7, "running", NOW - 60 * S, NOW - 59 * S)
    run = Run("r-1", task, "schedule", NOW, b"", "running", NOW, node="node-2", attempts=(attempt,))
    state = replace(state, runs=Map({"r-1": run}), runs_of=Map({task: ("r-1",)}))
    [lost] = asked(state, "node-2").interrupted
    target = next(move.target for move in asked(state, "node-2").moves if move.task == task)
    assert (lost.run_id, lost.source, lost.target) == ("r-1", "node-2", target)
    assert not asked(state, "node-1").interrupted


def naive(state: State, found: Forecast) -> dict[str | None, Counter[int]]:
    """Counts each occurrence by itself, microsecond by microsecond."""
    ownership = Ownership.of(state)
    counts: dict[str | None, Counter[int]] = {}
    length_us = found.span.until_us - found.span.from_us + 1
    for one in timetable(state, found.span):
        lane = counts.setdefault(ownership.owner(one.task), Counter())
        for at_us in one.times:
            lane[(at_us - found.span.from_us) * STEPS // length_us] += 1
    return counts


def test_occurrences_are_counted_by_step_as_one_by_one() -> None:
    for span in (TimeSpan(NOW, NOW + HOUR), TimeSpan(NOW + 7, NOW + 6 * HOUR + 1)):
        state = cluster(*some_rows(60))
        found = asked(state, span=span).ahead
        for member, steps in naive(state, found).items():
            lane = found.members[member]
            assert lane.starts == tuple(steps[step] for step in range(STEPS))
            assert lane.count == steps.total()
            assert not lane.named
        assert found.unnamed == found.count


def test_few_occurrences_are_named_with_the_time_that_the_last_run_took() -> None:
    state = cluster(row("nightly", 1, schedule={"cron": "0 3 * * *"}), row("hourly", 2, schedule={"every_s": 3600}))
    found = asked(state).ahead
    runs = sorted(run for lane in found.members.values() for run in lane.runs)
    assert Counter(run.task for run in runs) == {"nightly": 1, "hourly": 24}
    assert {run.took_us for run in runs} == {90 * S}
    assert found.unnamed == 0
    assert not any(run.moved for run in runs)


def test_a_member_has_its_occurrences_named_up_to_a_bound() -> None:
    def of(count: int) -> Forecast:
        upcoming = timetable(cluster(row("a", 1, schedule={"every_s": 24 * 3600 / count})), DAY)
        return forecast(upcoming, DAY, lambda _: "node-1", lambda _: "node-1")

    assert (of(NAMED_MAX).unnamed, of(NAMED_MAX + 1).unnamed) == (0, NAMED_MAX + 1)


def test_what_is_not_due_is_not_ahead_and_what_is_cut_is_said() -> None:
    state = cluster(
        row("paused", 1, paused=True, schedule={"every_s": 60}),
        row("disabled", 2, enabled=False, schedule={"every_s": 60}),
        row("by-hand", 3),
        row("past", 4, schedule={"at": "2020-01-01T00:00:00Z"}),
        row("each-second", 5, schedule={"cron": "* * * * * *"}),
    )
    [only] = timetable(state, DAY)
    assert (only.task, len(only.times), only.cut) == ("each-second", LINE_TIMES_MAX, True)
    assert asked(state).ahead.cut == 1
