"""What runs on the loop and goes wrong ends the node, wherever it came from."""

import asyncio
from collections.abc import Callable
from threading import Thread

from node.runtime.services import OnLoop


class Wrong(Exception):
    pass


def wrong() -> None:
    raise Wrong


async def lives_for_ever() -> None:
    await asyncio.get_running_loop().create_future()


async def ends_in_an_error() -> None:
    wrong()


def test_a_call_from_another_thread_is_made_on_the_loop() -> None:
    async def called() -> int:
        on_loop, came = OnLoop(), asyncio.get_running_loop().create_future()
        Thread(target=on_loop.call, args=(came.set_result, 7)).start()
        got: int = await came
        assert not on_loop.failed.done()
        return got

    assert asyncio.run(called()) == 7


def test_what_is_raised_by_a_call_ends_the_node() -> None:
    async def failed() -> list[Exception]:
        found = []
        ways: list[Callable[[OnLoop], None]] = [
            lambda on_loop: on_loop.call(wrong),
            lambda on_loop: on_loop.later(0.0, wrong),
            lambda on_loop: on_loop.guard(wrong),
            lambda on_loop: on_loop.serve("one", ends_in_an_error()),
        ]
        for begin in ways:
            on_loop = OnLoop()
            begin(on_loop)
            found.append(await on_loop.failed)
        return found

    assert [type(error) for error in asyncio.run(failed())] == [Wrong] * 4


def test_services_that_are_called_off_or_ended_are_no_failure() -> None:
    async def ended() -> bool:
        on_loop = OnLoop()
        for name in ("one", "two"):
            on_loop.serve(name, lives_for_ever())
        on_loop.call_off("one")
        await on_loop.end()
        return on_loop.failed.done()

    assert not asyncio.run(ended())


def test_a_call_after_the_loop_has_closed_disturbs_nobody() -> None:
    """Raft's thread ends after it, and says once more how things are."""

    async def made() -> OnLoop:
        return OnLoop()

    asyncio.run(made()).call(wrong)
