"""Parts of open pages: made once for all, sent where they differ."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import ExitStack
from typing import Any

import pytest

from node.http.api.event_hub import EventHub
from node.web.live_parts import LiveParts, PartKey, Unmade, beat, part_bytes

KEY = PartKey("operator", "/?part=a")


class World:
    """A hub, the parts of one server, and what is shown."""

    def __init__(self, make_s: float = 0.05) -> None:
        self.hub = EventHub("boot", "n1")
        self.live = LiveParts(lambda: 0.0, make_s=make_s)
        self.shown = "<p>1</p>"
        self.made = 0
        self._again = asyncio.Event()

    async def make(self) -> str | Unmade:
        self.made += 1
        self._again.set()
        if self.shown == "broken":
            raise RuntimeError("a bug")
        return self.shown or Unmade("it was deleted")

    async def was_made(self) -> None:
        """It is made once more."""
        self._again.clear()
        await self._again.wait()

    def changes(self, to: str) -> None:
        """Something happens."""
        self.shown = to
        self.hub._updated()

    def follow(self, opened: ExitStack, key: PartKey = KEY) -> AsyncGenerator[bytes, None]:
        return opened.enter_context(self.live.follow({key: self.make}, self.hub, 30.0))


async def part(events: AsyncGenerator[bytes, None]) -> bytes:
    """The next part that is sent."""
    async with asyncio.timeout(10):
        while (event := await anext(events)).startswith((b"retry", b"event: beat")):
            pass
    return event


def on_a_loop(test: Callable[[World, ExitStack], Coroutine[Any, Any, None]], make_s: float = 0.05) -> None:
    async def run() -> None:
        with ExitStack() as opened:
            await test(World(make_s), opened)

    asyncio.run(run())


def test_each_page_is_sent_what_is_made_once() -> None:
    async def test(world: World, opened: ExitStack) -> None:
        pages = [world.follow(opened) for _ in range(50)]
        assert {await part(page) for page in pages} == {part_bytes("/?part=a", "<p>1</p>")}
        assert world.made == 1
        world.changes("<p>2</p>")
        assert {await part(page) for page in pages} == {part_bytes("/?part=a", "<p>2</p>")}
        assert world.made == 2

    on_a_loop(test)


def test_what_does_not_differ_is_not_sent() -> None:
    async def test(world: World, opened: ExitStack) -> None:
        world.shown = '<p data-now="1">'
        page = world.follow(opened)
        await part(page)
        for number in range(3):
            world.changes(f'<p data-now="{number}">')
            await world.was_made()
        world.changes('<p data-now="9">other')
        assert await part(page) == part_bytes("/?part=a", '<p data-now="9">other')

    on_a_loop(test)


@pytest.mark.parametrize(
    ("broken", "why"), [("broken", "its log says why"), ("", "it was deleted")], ids=["a bug", "gone"]
)
def test_it_is_said_of_a_part_that_cannot_be_made_any_more(broken: str, why: str) -> None:
    async def test(world: World, opened: ExitStack) -> None:
        page = world.follow(opened)
        await part(page)
        world.changes(broken)
        said = await part(page)
        assert b'"why":"' in said
        assert why.encode() in said
        assert b"html" not in said, "the page keeps what it shows"
        world.changes("<p>again</p>")
        assert await part(page) == part_bytes("/?part=a", "<p>again</p>")

    on_a_loop(test)


def test_a_part_that_is_not_made_in_time_holds_no_other_up() -> None:
    async def test(world: World, opened: ExitStack) -> None:
        async def for_ever() -> str:
            await asyncio.Event().wait()
            return ""

        makers = {PartKey("operator", "/?part=hangs"): for_ever, KEY: world.make}
        page = opened.enter_context(world.live.follow(makers, world.hub, 30.0))
        assert b'"/?part=hangs","why":' in await part(page)
        assert await part(page) == part_bytes("/?part=a", "<p>1</p>")

    on_a_loop(test)


def test_a_page_hears_something_though_nothing_happens_and_while_a_part_is_being_made() -> None:
    async def test(world: World, opened: ExitStack) -> None:
        async def for_ever() -> str:
            await asyncio.Event().wait()
            return ""

        page = opened.enter_context(world.live.follow({PartKey("operator", "/?part=hangs"): for_ever}, world.hub, 0.01))
        assert (await anext(page)).startswith(b"retry")
        assert [await anext(page) for _ in range(3)] == [beat()] * 3

    # On a busy machine the three beats may take longer than any short limit. Then the part is given up, and the page
    # is told so between two of them, as it should be.
    on_a_loop(test, make_s=60)


def test_a_page_hears_something_though_its_parts_are_made_again_and_again_and_do_not_differ() -> None:
    async def test(world: World, opened: ExitStack) -> None:
        page = opened.enter_context(world.live.follow({KEY: world.make}, world.hub, 0.02))
        assert [await anext(page), await anext(page)] == [b"retry: 1000\n" + beat(), part_bytes("/?part=a", "<p>1</p>")]

        async def anew() -> None:
            while True:
                world.live._made()
                await asyncio.sleep(0.001)

        making = asyncio.ensure_future(anew())
        async with asyncio.timeout(10):
            assert await anext(page) == beat()
        making.cancel()

    on_a_loop(test)


def test_roles_are_sent_what_they_may_see() -> None:
    async def test(world: World, opened: ExitStack) -> None:
        operator, reader = world.follow(opened), world.follow(opened, PartKey("reader", KEY.url))
        await part(operator)
        await part(reader)
        assert world.made == 2

    on_a_loop(test)


def test_nothing_is_made_once_no_page_is_open_and_a_new_one_begins_anew() -> None:
    async def test(world: World, opened: ExitStack) -> None:
        with ExitStack() as once:
            await part(world.follow(once))
        world.changes("<p>unseen</p>")
        assert world.live._task is not None
        await world.live._task
        made = world.made
        world.changes("<p>3</p>")
        await asyncio.sleep(0)
        assert world.made == made
        assert await part(world.follow(opened)) == part_bytes("/?part=a", "<p>3</p>")

    on_a_loop(test)


def test_the_stream_ends_when_the_server_stops() -> None:
    async def test(world: World, opened: ExitStack) -> None:
        page = world.follow(opened)
        await part(page)
        world.hub.close()
        async with asyncio.timeout(10):
            assert [event async for event in page] == []

    on_a_loop(test)
