"""What changes, as events, and their replay."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from node.duty.ownership import Ownership
from node.http.events import COMES_BACK_S, Hub, events_of
from node.http.node_port import Placed, Update
from node.replication.state_machine import StateChange
from node.runtime.broadcast import Broadcast
from node.state.entries import DeleteTask, Finish, MarkDown, RemoveMember
from node.state.value import State
from tests.unit.node.http.given import NOW_US, World
from tests.unit.node.loop import turns


def _told(before: State, world: World) -> list[tuple[str, dict[str, Any]]]:
    ended = tuple((world.state.index, each) for each in world.ended)
    change = StateChange(before, world.state, world.touched, ended)
    return [(event.name, event.data) for event in events_of(change)]


def test_a_member_that_goes_down_or_away_is_told() -> None:
    world = World()
    before = world.state
    world.do(MarkDown(NOW_US, "node-2", 1, "stopped", 0))
    [(name, data)] = _told(before, world)
    assert (name, data["id"], data["status"], data["reason"]) == ("member", "node-2", "down", "stopped")
    before = world.state
    world.do(RemoveMember(NOW_US, "node-2"))
    assert _told(before, world) == [("member", {"id": "node-2", "slot": 1, "status": "left"})]


def test_a_run_is_told_at_each_step_and_without_what_is_long() -> None:
    world = World()
    world.task("a")
    before = world.state
    run_id, token = world.running("a")
    [(name, data)] = _told(before, world)
    assert (name, data["run_id"], data["state"], data["node"]) == ("run", run_id, "running", "node-1")
    assert not {"attempts", "checkpoint", "progress", "frozen_since"} & data.keys()
    before = world.state
    world.do(Finish(NOW_US, run_id, token, "succeeded"))
    assert [(name, data["state"]) for name, data in _told(before, world)] == [("run", "succeeded")]


def test_owners_are_told_where_they_differ() -> None:
    world = World()
    first = Ownership.of(world.state)
    world.task("a", pin="node-1")
    world.task("b", group={"disk": "none"})
    second = first.follow(world.state)
    assert [event.data for event in events_of(Placed(first, second))] == [
        {"task": "a", "from": None, "to": "node-1", "epoch": world.state.epoch}
    ]
    world.do(DeleteTask(NOW_US, "a"))
    assert [
        (event.data["from"], event.data["to"]) for event in events_of(Placed(second, second.follow(world.state)))
    ] == [("node-1", None)]
    assert list(events_of(Placed(None, second))) == []


def _run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 5))


async def _events(hub: Hub, last_id: str | None, count: int) -> list[tuple[str, str]]:
    """The ids and names of the next events, to one who saw `last_id`."""
    found: list[tuple[str, str]] = []
    with hub.listener(last_id, 5) as stream:
        async for piece in stream:
            lines = dict(
                line.split(": ", 1) for line in piece.decode().splitlines() if not line.startswith(":") and line
            )
            if "event" in lines:
                found.append((lines["id"], lines["event"]))
            if len(found) == count:
                break
        await stream.aclose()
    return found


class _Telling:
    """A hub, and a world whose changes it is told."""

    def __init__(self, boot: str = "b00t", kept: int = 100) -> None:
        self.now_s = 0.0
        self.hub = Hub(boot, kept, lambda: self.now_s)
        self.world = World()
        self.world.task("a")

    def change(self) -> None:
        """One more run begins and ends."""
        self.change_by(self.hub.tell)

    def change_by(self, tell: Callable[[Update], None]) -> None:
        """The same, told in another way."""
        before = self.world.state
        run_id, token = self.world.running("a")
        self.world.do(Finish(NOW_US, run_id, token, "succeeded"))
        ended = tuple((self.world.state.index, each) for each in self.world.ended)
        tell(StateChange(before, self.world.state, self.world.touched, ended))


def test_who_comes_back_is_sent_what_came_since() -> None:
    async def test() -> None:
        telling = _Telling()
        with telling.hub.listener(None, 5):
            telling.change()
        [first] = await _events(telling.hub, "0-b00t-0", 1)
        telling.change()
        telling.change()
        [second, third] = await _events(telling.hub, first[0], 2)
        assert [await _events(telling.hub, second[0], 1)] == [[third]]
        assert {name for _, name in (first, second, third)} == {"run"}

    _run(test())


def test_who_comes_back_too_late_or_with_a_strange_id_is_told_so() -> None:
    async def test() -> None:
        telling = _Telling(kept=3)
        with telling.hub.listener(None, 5):
            for _ in range(10):
                telling.change()
        for last_id in ("1-b00t-2", "0-other-1", "nonsense", "x-b00t-99"):
            [(_, name)] = await _events(telling.hub, last_id, 1)
            assert name == "reset", last_id

    _run(test())


def test_an_id_that_holds_no_number_is_a_strange_one() -> None:
    async def test() -> None:
        telling = _Telling()
        with telling.hub.listener(None, 5):
            telling.change()
        for last_id in ("1-b00t-²", "²-other-1", "1-b00t-" + "9" * 5000, "9" * 5000 + "-other-1"):
            [(_, name)] = await _events(telling.hub, last_id, 1)
            assert name == "reset", last_id

    _run(test())


def test_another_member_goes_on_from_the_index() -> None:
    async def test() -> None:
        here, there = _Telling("here"), _Telling("there")
        with here.hub.listener(None, 5), there.hub.listener(None, 5):
            for _ in range(3):
                here.change()
                there.change()
        [_, (second, _)] = await _events(here.hub, "0-here-0", 2)
        # The one that was seen comes again (at least once), so that none is left out.
        [(again, _), _] = await _events(there.hub, second, 2)
        assert again.partition("-")[0] == second.partition("-")[0]

    _run(test())


def test_a_slow_listener_is_told_what_it_lost_and_goes_on() -> None:
    async def test() -> None:
        telling = _Telling(kept=3)
        with telling.hub.listener(None, 5) as stream:
            assert (await anext(stream)).startswith(b"retry")
            for _ in range(10):
                telling.change()
            assert b"event: reset" in await anext(stream)
            telling.change()
            assert b"event: run" in await anext(stream)
            await stream.aclose()

    _run(test())


def test_nothing_is_worked_out_while_nobody_listens() -> None:
    async def test() -> None:
        telling = _Telling()
        with telling.hub.listener(None, 5):
            telling.change()
        telling.change()
        telling.now_s = COMES_BACK_S + 1
        telling.change()
        [(_, name)] = await _events(telling.hub, "0-b00t-1", 1)
        assert name == "reset"

    _run(test())


def test_a_hub_follows_only_while_somebody_listens_or_may_come_back() -> None:
    async def test() -> None:
        telling, broadcast = _Telling(), Broadcast[Update]()
        calls: list[int] = []

        def updates() -> AsyncIterator[Update]:
            calls.append(len(calls))
            return broadcast.listen()

        following = asyncio.create_task(telling.hub.follow(updates))
        await turns()
        telling.change_by(broadcast.send)
        assert not calls
        for round_ in (1, 2):
            with telling.hub.listener(None, 5) as stream:
                telling.change_by(broadcast.send)  # already before the stream is first read
                assert (await anext(stream)).startswith(b"retry")
                assert b"event: run" in await anext(stream)
                await stream.aclose()
            assert len(calls) == round_
            telling.now_s += COMES_BACK_S + 1
            telling.change_by(broadcast.send)  # nobody has come back: that is noticed, and it is not followed
            await turns()
        broadcast.close()
        with telling.hub.listener(None, 5):
            await following

    _run(test())


def test_a_stream_says_that_it_is_there_and_ends_with_the_process() -> None:
    async def test() -> None:
        hub = Hub("b")
        with hub.listener(None, 0.001) as stream:
            assert (await anext(stream)).startswith(b"retry")
            assert (await anext(stream)).startswith(b":")
            hub.close()
            assert [piece async for piece in stream if not piece.startswith(b":")] == []

    _run(test())
