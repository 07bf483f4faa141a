"""A DNS look-up never blocks a thread that others wait for."""

import socket
import threading
from typing import Any

from node.runtime.dns import Resolver, look_up

DEADLINE_S = 10.0


def looked_up() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("resolve "):
            thread.join()


def test_a_name_is_looked_up_elsewhere_and_never_waited_for() -> None:
    asked: list[str] = []
    found = {"slow": "10.0.0.1"}

    def resolve(host: str) -> str | None:
        asked.append(host)
        return found.get(host)

    resolver = Resolver(fresh_s=0.0, resolve=resolve)
    assert resolver.address("192.168.0.7") == "192.168.0.7"
    assert asked == []
    assert resolver.address("slow") in (None, "10.0.0.1")
    looked_up()
    found["slow"] = "10.0.0.2"
    assert resolver.address("slow") == "10.0.0.1", "what was known last, while it is looked up anew"
    looked_up()
    del found["slow"]
    for _ in range(3):
        assert resolver.address("slow") == "10.0.0.2", "what was known last, where the name resolves no more"
        looked_up()


def test_an_address_is_its_own() -> None:
    assert Resolver().address("::1") == "::1"


def test_on_found_is_called_when_a_name_was_found() -> None:
    go_on, told = threading.Event(), threading.Event()

    def slow(_: str) -> str:
        assert go_on.wait(DEADLINE_S)
        return "10.0.0.7"

    resolver = Resolver(told.set, resolve=slow)
    assert resolver.address("node-1") is None
    assert resolver.address("node-1") is None, "still being looked up, without blocking"
    go_on.set()
    assert told.wait(DEADLINE_S)
    assert resolver.address("node-1") == "10.0.0.7"


def test_a_question_that_hangs_does_not_keep_a_name_from_being_found() -> None:
    hangs, go_on, told = threading.Event(), threading.Event(), threading.Event()

    def hangs_once(_: str) -> str:
        if not hangs.is_set():
            hangs.set()
            assert go_on.wait(DEADLINE_S)
            return "10.0.0.1"
        return "10.0.0.2"

    resolver = Resolver(told.set, resolve=hangs_once, unanswered_s=0.0)
    assert resolver.address("node-1") is None
    assert hangs.wait(DEADLINE_S)
    resolver.address("node-1")
    assert told.wait(DEADLINE_S)
    assert resolver.address("node-1") == "10.0.0.2"
    go_on.set()
    looked_up()


def test_a_name_that_cannot_be_one_has_no_address() -> None:
    """The codec of host names refuses an empty label with an error of its own."""
    assert look_up("a..b") is None


def test_of_two_addresses_the_older_kind_is_taken() -> None:
    """The same for listening and dialling."""
    both: list[Any] = [(socket.AF_INET6, 1, 6, "", ("::1", 0, 0, 0)), (socket.AF_INET, 1, 6, "", ("127.0.0.1", 0))]
    assert look_up("localhost", lambda *_, **__: list(both)) == "127.0.0.1"
