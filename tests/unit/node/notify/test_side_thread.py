"""Look-ups that hang take nothing from the rest of the node."""

import asyncio
import socket
import threading
from time import monotonic

import pytest

from node.notify import side_thread, webhook
from node.notify.side_thread import in_side_thread
from node.notify.webhook import SideResolver


def test_names_that_are_not_answered_leave_the_loops_threads_free(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()

    def silent(*_: object, **__: object) -> list[object]:
        answer.wait(20)
        raise socket.gaierror(socket.EAI_AGAIN, "late")

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    monkeypatch.setattr(webhook, "LOOK_UP_S", 0.1)

    async def look() -> tuple[int, list[object]]:
        looks = [asyncio.ensure_future(SideResolver().resolve("a.example")) for _ in range(50)]
        await asyncio.sleep(0)
        async with asyncio.timeout(5):
            free = await asyncio.to_thread(lambda: 1)
        return free, await asyncio.gather(*looks, return_exceptions=True)

    begun_s = monotonic()
    free, found = asyncio.run(look())
    assert monotonic() - begun_s < 5, "ending the loop waits for none of them"
    answer.set()
    assert free == 1
    assert {str(one) for one in found} == {"[Errno None] no name server answered within 0.1 s"}


def test_an_address_and_a_failure_come_back() -> None:
    async def look() -> None:
        [found] = await SideResolver().resolve("127.0.0.1", 80)
        assert (found["host"], found["port"], found["family"]) == ("127.0.0.1", 80, socket.AF_INET)
        with pytest.raises(ZeroDivisionError):
            await in_side_thread(lambda: 1 // 0, 5)

    asyncio.run(look())


def test_too_many_calls_that_hang_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_thread, "_free", threading.BoundedSemaphore(1))
    end = threading.Event()

    async def call() -> None:
        with pytest.raises(TimeoutError):
            await in_side_thread(lambda: end.wait(20), 0.01)
        with pytest.raises(TimeoutError):
            await in_side_thread(lambda: True, 20)
        end.set()
        async with asyncio.timeout(5):
            while True:
                try:
                    assert await in_side_thread(lambda: True, 5)
                    return
                except TimeoutError:
                    await asyncio.sleep(0.001)

    asyncio.run(call())
