"""An error in anything that runs on the loop ends the node, wherever it was started."""

import asyncio
from collections.abc import Callable
from threading import Thread

from node.runtime.services import Services


class Wrong(Exception):
    pass


def wrong() -> None:
    raise Wrong


async def runs_for_ever() -> None:
    await asyncio.get_running_loop().create_future()


async def ends_in_an_error() -> None:
    wrong()


def test_a_call_from_another_thread_is_made_on_the_loop() -> None:
    async def called() -> int:
        services, came = Services(), asyncio.get_running_loop().create_future()
        Thread(target=services.call, args=(came.set_result, 7)).start()
        got: int = await came
        assert not services.failed.done()
        return got

    assert asyncio.run(called()) == 7


def test_what_is_raised_by_a_call_ends_the_node() -> None:
    async def failed() -> list[Exception]:
        found = []
        ways: list[Callable[[Services], None]] = [
            lambda services: services.call(wrong),
            lambda services: services.later(0.0, wrong),
            lambda services: services.guard(wrong),
            lambda services: services.serve("one", ends_in_an_error()),
        ]
        for begin in ways:
            services = Services()
            begin(services)
            found.append(await services.failed)
        return found

    assert [type(error) for error in asyncio.run(failed())] == [Wrong] * 4


def test_cancelled_services_are_no_failure() -> None:
    async def ended() -> bool:
        services = Services()
        for name in ("one", "two"):
            services.serve(name, runs_for_ever())
        services.cancel_services("one")
        await services.end()
        return services.failed.done()

    assert not asyncio.run(ended())


def test_a_call_after_the_loop_has_closed_is_dropped() -> None:
    """Raft's thread ends after the loop, and reports its role once more."""

    async def made() -> Services:
        return Services()

    asyncio.run(made()).call(wrong)
