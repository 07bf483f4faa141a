"""When a placement is computed: at once where members change, seldom while tasks are registered one by one."""

import asyncio
import threading
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from node.control.placement_service import REST_S, PlacementService, PlacementThread, only_tasks, rest_after
from node.duty.ownership import Ownership
from node.replication.state_machine import StateChange
from node.state.entries import Entry
from node.state.members import Drain
from node.state.occurrences import Start
from node.state.registry import Put, PutTasks
from node.state.value import State
from tests.unit.node.loop import turns, until
from tests.unit.node.state.given import NOW_US, History, cluster, packed

Call = tuple[State, Ownership, frozenset[str] | None]
LONG_S = 3600.0


class Watched:
    """A placement that rests for so long after each placement, and what it tells."""

    def __init__(self, rest_s: float) -> None:
        self.told: asyncio.Queue[Call] = asyncio.Queue()
        self.placement = PlacementService(lambda *call: self.told.put_nowait(call), PlacementThread(), lambda _: rest_s)
        self.placement.caught_up()
        self.history: History = cluster("a", "b")
        self.placement.observe(StateChange(State(), self.history.state, None))

    def enter(self, entry: Entry, touched: str) -> None:
        before = self.history.state
        self.history.must(entry)
        self.placement.observe(StateChange(before, self.history.state, frozenset({touched} if touched else ())))

    def put(self, name: str) -> None:
        self.enter(PutTasks(NOW_US, (Put(packed(name)),)), name)


def serving(scenario: Callable[[Watched], Coroutine[Any, Any, None]], rest_s: float = LONG_S) -> None:
    async def run() -> None:
        watched = Watched(rest_s)
        service = asyncio.create_task(watched.placement.run())
        try:
            state, ownership, touched = await watched.told.get()
            assert touched is None
            assert ownership.state is state
            await scenario(watched)
        finally:
            service.cancel()
            await asyncio.gather(service, return_exceptions=True)

    asyncio.run(asyncio.wait_for(run(), 5))


def test_a_registration_is_told_soon_and_placed_after_the_rest() -> None:
    async def scenario(watched: Watched) -> None:
        watched.put("one")
        state, ownership, touched = await watched.told.get()
        assert touched == frozenset({"one"})
        assert "one" in state.tasks
        assert ownership.owner("one") is None  # of the placement before

    serving(scenario)


def test_before_a_member_has_caught_up_it_places_for_those_who_ask_alone() -> None:
    async def scenario() -> None:
        told: list[Call] = []
        placement = PlacementService(lambda *call: told.append(call), PlacementThread())
        service = asyncio.create_task(placement.run())
        history = cluster("a", "b")
        placement.observe(StateChange(State(), history.state, None))
        for number in range(3):
            before = history.state
            history.put(f"t-{number}")
            placement.observe(StateChange(before, history.state, frozenset({f"t-{number}"})))
            await turns()
            assert told == []
        assert (await placement.placed(history.state.epoch, 5)).owner("t-2") is not None
        assert len(told) == 1
        before = history.state
        history.put("later")
        placement.observe(StateChange(before, history.state, frozenset({"later"})))
        await turns()
        assert len(told) == 1
        placement.caught_up()
        await until(lambda: len(told) == 2)
        assert told[1][2] == frozenset({"later"}), "what was not told is told then"
        service.cancel()
        await asyncio.gather(service, return_exceptions=True)

    asyncio.run(asyncio.wait_for(scenario(), 5))


def test_what_was_registered_meanwhile_is_placed_as_soon_as_somebody_asks() -> None:
    async def scenario(watched: Watched) -> None:
        for name in ("one", "two"):
            watched.put(name)
            await watched.told.get()
        ownership = await watched.placement.placed(watched.history.state.epoch, 2)
        assert {ownership.owner("one"), ownership.owner("two")} <= {"a", "b"}

    serving(scenario)


def test_registrations_that_come_together_are_told_together() -> None:
    async def scenario(watched: Watched) -> None:
        watched.put("one")
        watched.put("two")
        _, _, touched = await watched.told.get()
        assert touched == frozenset({"one", "two"})

    serving(scenario)


def test_only_definitions_of_tasks_may_be_told_later() -> None:
    def change(entry: Entry, touched: Collection[str] | None = ()) -> StateChange:
        before = history.state
        history.must(entry)
        return StateChange(before, history.state, None if touched is None else frozenset(touched))

    history = cluster("a", "b")
    assert only_tasks(change(PutTasks(NOW_US, (Put(packed("one")),))))
    assert not only_tasks(change(PutTasks(NOW_US, (Put(packed("two")),)), None))  # by a snapshot
    assert not only_tasks(change(Start(NOW_US, "one")))
    assert not only_tasks(change(Drain(NOW_US, "a", on=True)))
    before = history.state
    for entry in (PutTasks(NOW_US, (Put(packed("three")),)), Start(NOW_US, "two")):
        history.must(entry)
    assert not only_tasks(StateChange(before, history.state, frozenset({"two", "three"})))


def test_a_change_of_members_waits_for_nothing() -> None:
    async def scenario(watched: Watched) -> None:
        watched.put("one")
        await watched.told.get()
        watched.enter(Drain(NOW_US, "a", on=True), "")
        _, ownership, _ = await watched.told.get()
        assert ownership.owner("one") == "b"

    serving(scenario)


class Slow(Ownership):
    """An ownership whose successor takes until `go_on` is set."""

    def __init__(self, like: Ownership) -> None:
        self.__dict__.update(like.__dict__)
        self.begun, self.go_on = threading.Event(), threading.Event()

    def follow(self, state: State, touched: Collection[str] | None = None) -> Ownership:
        self.begun.set()
        self.go_on.wait(5)
        return super().follow(state, touched)


def test_what_becomes_of_runs_is_told_while_tasks_are_placed() -> None:
    """A claim that is committed does not wait until all tasks have been placed anew over somebody's registration."""

    async def scenario(watched: Watched) -> None:
        slow = watched.placement.ownership = Slow(watched.placement.ownership)
        watched.put("one")
        await watched.told.get()
        assert await asyncio.to_thread(slow.begun.wait, 5)
        watched.enter(Start(NOW_US, "one"), "one")
        state, ownership, touched = await watched.told.get()
        assert (ownership, touched) == (slow, frozenset({"one"}))
        assert state.runs_of["one"]
        slow.go_on.set()
        state, ownership, _ = await watched.told.get()
        assert ownership.owner("one") in ("a", "b")
        assert ownership.state.epoch == state.epoch

    serving(scenario, rest_s=0.0)


def test_a_change_of_members_waits_for_its_placement_also_while_tasks_are_placed() -> None:
    async def scenario(watched: Watched) -> None:
        slow = watched.placement.ownership = Slow(watched.placement.ownership)
        watched.put("one")
        await watched.told.get()
        watched.enter(Drain(NOW_US, "a", on=True), "")
        slow.go_on.set()
        while True:
            state, ownership, _ = await watched.told.get()
            if state.members["a"].status == "draining":
                break
        assert ownership.owner("one") == "b"

    serving(scenario, rest_s=0.0)


def test_the_rest_is_bounded() -> None:
    assert rest_after(0.001) < 0.01
    assert rest_after(10) == REST_S
