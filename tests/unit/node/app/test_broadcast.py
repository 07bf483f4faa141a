"""Values reach all listeners in order and without loss, and nothing is kept for listeners that have left."""

import gc

from node.app.updates import Broadcast
from tests.unit.node.loop import serving


def test_all_listeners_get_every_value_in_order_from_their_call_on() -> None:
    async def scenario() -> None:
        broadcast: Broadcast[int] = Broadcast()
        early = broadcast.listen()
        broadcast.send(1)
        late = broadcast.listen()
        broadcast.send(2)
        broadcast.close()
        assert [value async for value in early] == [1, 2]
        assert [value async for value in late] == [2]

    serving(scenario())


def test_a_listener_after_the_end_gets_the_end() -> None:
    async def scenario() -> None:
        broadcast: Broadcast[int] = Broadcast()
        broadcast.close()
        assert [value async for value in broadcast.listen()] == []

    serving(scenario())


def test_nothing_is_kept_for_a_listener_that_has_left_or_never_read() -> None:
    async def scenario() -> None:
        broadcast: Broadcast[int] = Broadcast()
        never = broadcast.listen()
        begun = broadcast.listen()
        broadcast.send(1)
        assert await anext(begun) == 1
        await begun.aclose()  # type: ignore[attr-defined]
        del never, begun
        gc.collect()
        assert len(broadcast._queues) == 0

    serving(scenario())
