"""Events of changes, and their replay."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from node.app.updates import Broadcast
from node.duty.ownership import Ownership
from node.http.api.event_hub import RECONNECT_S, EventHub, events_of
from node.http.node_port import ClusterUpdate, PlacementComputed
from node.replication.state_machine import StateChange
from node.state.attempts import Finish
from node.state.members import MarkDown, RemoveMember
from node.state.registry import DeleteTask
from node.state.times import rfc3339
from node.state.value import State
from tests.unit.node.http.given import HOUR_US, NOW_US, World
from tests.unit.node.loop import turns


def _event_data(before: State, world: World) -> list[tuple[str, dict[str, Any]]]:
    ended = tuple((world.state.index, each) for each in world.ended)
    deadlines = tuple((world.state.index, each) for each in world.deadlines)
    change = StateChange(before, world.state, world.touched, ended, deadlines)
    return [(event.name, event.data) for event in events_of(change)]


def test_a_member_that_goes_down_or_is_removed_is_an_event() -> None:
    world = World()
    before = world.state
    world.do(MarkDown(NOW_US, "node-2", 1, "stopped", 0))
    [(name, data)] = _event_data(before, world)
    assert (name, data["id"], data["status"], data["reason"]) == ("member", "node-2", "down", "stopped")
    before = world.state
    world.do(RemoveMember(NOW_US, "node-2"))
    assert _event_data(before, world) == [("member", {"id": "node-2", "slot": 1, "status": "left"})]


def test_each_step_of_a_run_is_an_event_without_the_long_fields() -> None:
    world = World()
    world.task("a")
    before = world.state
    run_id, token = world.running("a")
    [(name, data)] = _event_data(before, world)
    assert (name, data["run_id"], data["state"], data["node"]) == ("run", run_id, "running", "node-1")
    assert not {"attempts", "checkpoint", "progress", "frozen_since"} & data.keys()
    before = world.state
    world.do(Finish(NOW_US, run_id, token, "succeeded"))
    assert [(name, data["state"]) for name, data in _event_data(before, world)] == [("run", "succeeded")]


def test_a_deadline_that_is_breached_and_then_not_judged_any_more_is_two_events() -> None:
    world = World()
    world.late("a")
    assert _event_data(world.state, world) == [
        (
            "deadline",
            {
                "task": "a",
                "change": "breached",
                "at": rfc3339(NOW_US + HOUR_US),
                "deadline": "success_every",
                "due_at": None,
                "since": rfc3339(NOW_US + HOUR_US),
            },
        )
    ]
    world.do(DeleteTask(NOW_US, "a"))
    assert [(name, data["change"]) for name, data in _event_data(world.state, world)] == [("deadline", "dropped")]


def test_changed_owners_are_events() -> None:
    world = World()
    first = Ownership.of(world.state)
    world.task("a", pin="node-1")
    world.task("b", group={"disk": "none"})
    second = first.follow(world.state)
    assert [event.data for event in events_of(PlacementComputed(first, second))] == [
        {"task": "a", "from": None, "to": "node-1", "epoch": world.state.epoch}
    ]
    world.do(DeleteTask(NOW_US, "a"))
    assert [
        (event.data["from"], event.data["to"])
        for event in events_of(PlacementComputed(second, second.follow(world.state)))
    ] == [("node-1", None)]
    assert list(events_of(PlacementComputed(None, second))) == []


def _run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 5))


async def _events(hub: EventHub, last_id: str | None, count: int) -> list[tuple[str, str]]:
    """The ids and names of the next events for a client that saw `last_id`."""
    found: list[tuple[str, str]] = []
    with hub.listener(last_id, 7, 5) as stream:
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


class _Publishing:
    """A hub, and a world whose changes are published to it."""

    def __init__(self, boot: str = "b00t", kept: int = 100) -> None:
        self.now_s = 0.0
        self.hub = EventHub(boot, "node-1", kept, lambda: self.now_s)
        self.world = World()
        self.world.task("a")

    def change(self) -> None:
        """Publish one more run, which begins and ends."""
        self.change_by(self.hub.publish)

    def change_by(self, tell: Callable[[ClusterUpdate], None]) -> None:
        """The same, published by `tell`."""
        before = self.world.state
        run_id, token = self.world.running("a")
        self.world.do(Finish(NOW_US, run_id, token, "succeeded"))
        ended = tuple((self.world.state.index, each) for each in self.world.ended)
        tell(StateChange(before, self.world.state, self.world.touched, ended))


def test_a_client_that_reconnects_is_sent_the_events_since() -> None:
    async def test() -> None:
        publishing = _Publishing()
        with publishing.hub.listener(None, 7, 5):
            publishing.change()
        [first] = await _events(publishing.hub, "0-b00t-0", 1)
        publishing.change()
        publishing.change()
        [second, third] = await _events(publishing.hub, first[0], 2)
        assert [await _events(publishing.hub, second[0], 1)] == [[third]]
        assert {name for _, name in (first, second, third)} == {"run"}

    _run(test())


def test_a_client_that_reconnects_too_late_or_with_an_unknown_id_gets_a_reset() -> None:
    async def test() -> None:
        publishing = _Publishing(kept=3)
        with publishing.hub.listener(None, 7, 5):
            for _ in range(10):
                publishing.change()
        for last_id in ("1-b00t-2", "0-other-1", "nonsense", "x-b00t-99"):
            [(_, name)] = await _events(publishing.hub, last_id, 1)
            assert name == "reset", last_id

    _run(test())


def test_an_id_without_a_number_gets_a_reset() -> None:
    async def test() -> None:
        publishing = _Publishing()
        with publishing.hub.listener(None, 7, 5):
            publishing.change()
        for last_id in ("1-b00t-²", "²-other-1", "1-b00t-" + "9" * 5000, "9" * 5000 + "-other-1"):
            [(_, name)] = await _events(publishing.hub, last_id, 1)
            assert name == "reset", last_id

    _run(test())


def test_another_member_continues_from_the_index() -> None:
    async def test() -> None:
        here, there = _Publishing("here"), _Publishing("there")
        with here.hub.listener(None, 7, 5), there.hub.listener(None, 7, 5):
            for _ in range(3):
                here.change()
                there.change()
        [_, (second, _)] = await _events(here.hub, "0-here-0", 2)
        # The one that was seen comes again (at least once), so that none is left out.
        [(again, _), _] = await _events(there.hub, second, 2)
        assert again.partition("-")[0] == second.partition("-")[0]

    _run(test())


def test_a_slow_client_gets_a_reset_and_continues() -> None:
    async def test() -> None:
        publishing = _Publishing(kept=3)
        with publishing.hub.listener(None, 7, 5) as stream:
            assert (await anext(stream)).startswith(b"retry: 1000\n: connected to node-1 at index 7;")
            for _ in range(10):
                publishing.change()
            assert b"event: reset" in await anext(stream)
            publishing.change()
            assert b"event: run" in await anext(stream)
            await stream.aclose()

    _run(test())


def test_nothing_is_computed_without_a_client() -> None:
    async def test() -> None:
        publishing = _Publishing()
        with publishing.hub.listener(None, 7, 5):
            publishing.change()
        publishing.change()
        publishing.now_s = RECONNECT_S + 1
        publishing.change()
        [(_, name)] = await _events(publishing.hub, "0-b00t-1", 1)
        assert name == "reset"

    _run(test())


def test_the_hub_subscribes_only_while_a_client_is_connected_or_may_reconnect() -> None:
    async def test() -> None:
        publishing, broadcast = _Publishing(), Broadcast[ClusterUpdate]()
        calls: list[int] = []

        def updates() -> AsyncIterator[ClusterUpdate]:
            calls.append(len(calls))
            return broadcast.listen()

        following = asyncio.create_task(publishing.hub.follow(updates))
        await turns()
        publishing.change_by(broadcast.send)
        assert not calls
        for round_ in (1, 2):
            with publishing.hub.listener(None, 7, 5) as stream:
                publishing.change_by(broadcast.send)  # already before the stream is first read
                assert (await anext(stream)).startswith(b"retry: 1000\n: connected to node-1 at index 7;")
                assert b"event: run" in await anext(stream)
                await stream.aclose()
            assert len(calls) == round_
            publishing.now_s += RECONNECT_S + 1
            publishing.change_by(broadcast.send)  # no client has reconnected: the hub unsubscribes
            await turns()
        broadcast.close()
        with publishing.hub.listener(None, 7, 5):
            await following

    _run(test())


def test_a_stream_sends_comments_and_ends_with_the_process() -> None:
    async def test() -> None:
        hub = EventHub("b", "node-1")
        with hub.listener(None, 7, 0.001) as stream:
            assert (await anext(stream)).startswith(b"retry: 1000\n: connected to node-1 at index 7;")
            assert (await anext(stream)).startswith(b":")
            hub.close()
            assert [piece async for piece in stream if not piece.startswith(b":")] == []

    _run(test())
