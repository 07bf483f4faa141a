"""What the leader proposes for backfills, and how owners let their runs wait."""

from dataclasses import replace
from typing import Any

import pytest
from immutables import Map

from node.duty.backfills import AGAIN_US, BackfillKeeper, counted, next_time_us
from node.duty.decide import needs
from node.duty.giving_way import AFTER_US, BEFORE_US, HELD_BACK_US
from node.duty.overdue import unbegun_since_us
from node.duty.turns import MY_TURN, turn_of
from node.state.backfill import BackfillRow
from node.state.backfills import AdvanceBackfill, ChangeBackfill
from node.state.claims import Claim
from node.state.members import MarkDown
from node.state.occurrences import Enqueue, Start
from node.state.settings import ChangeSettings
from node.state.value import Run
from tasks.definition.spec import Cron, Every, Spec, timing
from tests.unit.node.duty.given import LEASE, NOW, Owners, S, duty, run, task, world
from tests.unit.node.state.given import NOW_US, History, packed
from tests.unit.node.state.test_backfills import FROM_US, HOUR, active, advance, begin, claim, do
from tests.unit.node.state.test_joins import MINUTE, after

DAY = 24 * HOUR


def keep(history: History, keeper: BackfillKeeper, now_us: int = NOW_US) -> list[Any]:
    """Let the leader step, and apply what it proposes."""
    keeper.observe(history.state)
    entries, _ = keeper.step(now_us)
    for entry in entries:
        history.must(entry)
    return entries


def test_the_leader_begins_one_occurrence_after_the_other_to_the_end() -> None:
    history = after(a=[], b=["a"])
    number = begin(history, from_us=NOW_US - 3 * MINUTE, total=3, downstream=True)
    keeper = BackfillKeeper("a", history.state)
    for minute in (3, 2, 1):
        [entry] = keep(history, keeper)
        assert (entry.nominal_us, entry.exhausted) == (NOW_US - minute * MINUTE, False)
        assert keep(history, keeper) == [], "one is under way"
        do(history, "a")
        keeper = BackfillKeeper("b", history.state)  # another leader goes on from there
        do(history, "b")
    [entry] = keep(history, keeper)
    assert (entry.exhausted, history.state.backfills[number].status) == (True, "done")
    keeper.observe(history.state)
    assert keeper.step(NOW_US) == ([], None)


def test_an_entry_that_is_lost_is_proposed_again() -> None:
    history = after(a=[])
    keeper = BackfillKeeper("a", history.state)
    begin(history)
    assert keeper.observe(history.state)
    assert not keeper.observe(history.state)
    entries, again_us = keeper.step(NOW_US)
    assert (len(entries), again_us) == (1, NOW_US + AGAIN_US)
    assert keeper.step(NOW_US + 1) == ([], NOW_US + AGAIN_US)
    assert len(keeper.step(NOW_US + AGAIN_US)[0]) == 1
    assert len(keeper.step(NOW_US - 1)[0]) == 1, "the clock was set back"


def test_what_nothing_carries_on_is_ended() -> None:
    history = after(a=[], b=["a"])
    number = begin(history, downstream=True)
    advance(history, number, 0)
    history.put("b", schedule={"cron": "* * * * *"})
    do(history, "a")
    keeper = BackfillKeeper("a", history.state)
    assert keep(history, keeper) == [AdvanceBackfill(NOW_US, number, FROM_US)]
    assert history.state.backfills[number].succeeded == 1


def test_a_schedule_that_cannot_be_read_pauses_it() -> None:
    history = after(a=[])
    number = begin(history)
    row = history.state.backfills[number]
    unknown = Spec.model_construct(
        **{**dict(Spec(name="a", kind="command")), "schedule": Cron.model_construct(cron="0 3 * * *", timezone="Mars")}
    )
    state = replace(history.state, backfills=Map({number: replace(row, spec_packed=unknown.pack())}))
    [entry] = BackfillKeeper("a", state).step(NOW_US)[0]
    assert isinstance(entry, ChangeBackfill)
    assert entry.change == "paused"
    assert "a cannot evaluate its schedule" in entry.why


def made(schedule: dict[str, Any], **fields: Any) -> BackfillRow:
    given: dict[str, Any] = {"number": 1, "task": "a", "from_us": FROM_US, "to_us": NOW_US, "total": 1}
    given |= {"spec_packed": packed("a", schedule=schedule), "phase_us": NOW_US + 7, "asked_us": NOW_US}
    return BackfillRow(**(given | {"position_us": FROM_US - 1} | fields))


@pytest.mark.parametrize("schedule", [{"cron": "*/7 3-4 * * *", "timezone": "Europe/Berlin"}, {"every_s": 1000}])
def test_its_times_are_those_of_the_schedule_forwards_and_backwards(schedule: dict[str, Any]) -> None:
    packed_spec = packed("a", schedule=schedule)
    from_us = NOW_US - 2 * DAY
    times: dict[bool, list[int]] = {False: [], True: []}
    for newest_first, found in times.items():
        position_us = NOW_US if newest_first else from_us - 1
        row = made(schedule, newest_first=newest_first, from_us=from_us, position_us=position_us)
        while (time_us := next_time_us(Map(), row)) is not None:
            assert row.names_next(time_us)
            found.append(time_us)
            row = replace(row, position_us=time_us)
    assert times[False] == times[True][::-1]
    assert counted(timing(packed_spec).schedule, None, NOW_US + 7, from_us, NOW_US, 1000) == (
        len(times[False]),
        times[False][0],
        times[False][-1],
    )


def test_an_interval_keeps_its_phase_before_the_registration() -> None:
    count, first_us, last_us = counted(Every(every_s=60), None, NOW_US + 7, NOW_US - HOUR, NOW_US, 1000)
    assert (count, first_us, last_us) == (60, NOW_US - HOUR + 7, NOW_US - MINUTE + 7)
    assert counted(Every(every_s=60), None, NOW_US, NOW_US - HOUR, NOW_US, 10)[0] == 11, "no more than is asked for"


def backfilled(row: Any, state: str, number: int, **fields: Any) -> Run:
    return run(row, state, number, trigger="manual", generation=number, backfill=5, **fields)  # type: ignore[arg-type]


def test_an_owner_lets_it_wait_for_live_runs() -> None:
    row = task("x", schedule=Every(every_s=60))
    old = backfilled(row, "waiting", 1)
    state = world(row, old, run(row, "running", 2))
    me = state.members["a"]
    assert needs(state, "x", me, NOW).wishes == ()
    assert [wish.claim.run_id for wish in needs(world(row, old), "x", me, NOW).wishes] == [old.run_id]
    due = needs(world(row, old), "x", me, NOW + 60 * S)
    assert [(wish.claim.run_id, wish.backfill) for wish in due.wishes] == [(None, False)], "the live one first"
    assert needs(world(row, backfilled(row, "waiting", 1), backfilled(row, "running", 2)), "x", me, NOW).wishes == ()


def test_what_falls_due_beside_its_run_waits_and_is_not_skipped() -> None:
    row = task("x", schedule=Every(every_s=60))
    state = world(row, backfilled(row, "running", 1))
    found = needs(state, "x", state.members["a"], NOW + 60 * S)
    assert (found.entries, found.wishes) == ((Enqueue(NOW + 60 * S, "x", (NOW + 60 * S,)),), ())
    free = task("x", schedule=Every(every_s=60), overlap="allow")
    [wish] = needs(world(free, backfilled(free, "running", 1)), "x", state.members["a"], NOW + 60 * S).wishes
    assert wish.claim.run_id is None


def test_claims_of_backfills_come_last_and_take_half_of_the_places() -> None:
    rows = [task(name, overlap="allow") for name in "xyz"]
    runs = [backfilled(rows[0], "waiting", number) for number in range(1, 6)]
    live = run(rows[1], "waiting", 9, due_us=NOW - 1)
    state = replace(world(*rows, *runs, live), backfills=Map({5: made({"every_s": 60})}))
    decides = duty(state)
    steps = [decides.step(now_us, LEASE, {}, 3) for now_us in (NOW, NOW + AFTER_US)]
    claims = [[entry.task for entry in step.entries if isinstance(entry, Claim)] for step in steps]
    assert claims == [["y"], ["x", "x"]], "two of three"
    step = steps[1]
    assert len([one for one in step.waiting_for_room if one.backfill]) == 3


def test_a_waiting_run_of_a_backfill_makes_no_task_late() -> None:
    row = task("x")
    assert unbegun_since_us(world(row, backfilled(row, "waiting", 1)), "x") is None


def test_what_is_due_does_not_wait_for_runs_of_backfills_in_a_pool() -> None:
    history = after()
    history.must(ChangeSettings(NOW_US, {"pools": {"dumps": 2}}))
    for name in "ab":
        history.put(name, schedule={"cron": "* * * * *"}, overlap="allow", uses={"dumps": 1})
    number = begin(history, parallel=2)
    for minute in (0, 1):
        advance(history, number, minute)
    first, second = active(history, "a")
    assert turn_of(history.state, "a", first.spec_packed, NOW_US, first.run_id).mine
    assert claim(history, first) == "ok"
    assert not turn_of(history.state, "a", second.spec_packed, NOW_US, second.run_id).mine
    assert turn_of(history.state, "b", history.state.tasks["b"].spec_packed, NOW_US) == MY_TURN
    history.must(MarkDown(NOW_US, "a", 1, "gone", 1))
    assert [one.order for one in history.state.pools["dumps"].queue] == [2], "lost ones, too"


def test_runs_of_backfills_start_at_a_rate_after_all_others() -> None:
    history = after()
    history.must(ChangeSettings(NOW_US, {"pools": {"api": 1}}))
    for name in "ab":
        history.put(name, schedule={"cron": "* * * * *"}, overlap="allow", rate={"pool": "api", "per_min": 60})
    advance(history, begin(history, parallel=2), 0)
    [first] = active(history, "a")
    packed = history.state.tasks["b"].spec_packed
    assert turn_of(history.state, "b", packed, NOW_US) == MY_TURN, "the backfill's run does not go before it"
    live_id = history.must(Start(NOW_US, "b"))["run_id"]
    assert turn_of(history.state, "b", packed, NOW_US, live_id) == MY_TURN
    assert not turn_of(history.state, "a", first.spec_packed, NOW_US, first.run_id).mine


def test_its_runs_do_not_begin_just_before_or_after_other_work_falls_due() -> None:
    copy = task("copy", paused=True)
    live = task("live", since_us=NOW - 10 * S + BEFORE_US // 2, schedule=Every(every_s=10))
    state = world(copy, live, backfilled(copy, "waiting", 1))
    decides = duty(state, Owners({"live": "b"}))
    due_us = NOW + BEFORE_US // 2
    for now_us, woken_us in ((NOW, due_us), (due_us, due_us + AFTER_US), (due_us + 1, due_us + AFTER_US)):
        step = decides.step(now_us, LEASE, {}, 8)
        assert (step.entries, step.wake_us, step.waiting_for_room) == ((), woken_us, ())
    [claim] = decides.step(due_us + AFTER_US, LEASE, {}, 8).entries
    assert isinstance(claim, Claim)
    assert claim.task == "copy"


def test_where_other_work_falls_due_all_the_time_its_runs_begin_a_little_later() -> None:
    copy = task("copy", paused=True)
    rows = [
        task(f"live-{number}", since_us=NOW - 10 * S + number * 50_000, schedule=Every(every_s=10))
        for number in range(200)
    ]
    state = world(copy, *rows, backfilled(copy, "waiting", 1))
    decides = duty(state, Owners({row.spec.name: "b" for row in rows}))
    while decides.step(NOW, None, {}, 8).wake_us == NOW:
        pass  # until it knows when each task is due
    now_us: int | None = NOW
    while now_us is not None and not (step := decides.step(now_us, LEASE, {}, 8)).entries:
        now_us = step.wake_us
    assert now_us == NOW + HELD_BACK_US
