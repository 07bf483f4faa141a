"""Host names must never hold up the heartbeat thread (DESIGN.md, section 7: "never wait for work, disk or DNS")."""

import socket
import threading

import pytest

from node.liveness import names
from node.liveness.names import Names

DEADLINE_S = 10.0


def test_an_address_is_its_own() -> None:
    assert Names(lambda: None).address("127.0.0.1") == "127.0.0.1"
    assert Names(lambda: None).address("::1") == "::1"


def test_a_name_is_found_in_another_thread_and_kept_when_the_resolver_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, go_on, ended = threading.Event(), threading.Event(), threading.Semaphore(0)
    answers: list[list[object]] = [[(0, 0, 0, "", ("10.0.0.7", 0))]]

    def slow(host: str, port: None, **_: object) -> list[object]:
        asked.set()
        assert go_on.wait(DEADLINE_S)
        if not answers:
            raise socket.gaierror("no answer")
        return answers.pop()

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    monkeypatch.setattr(names, "KEEP_S", 0.0)
    resolver = Names(lambda: ended.release())
    assert resolver.address("node-1") is None
    assert asked.wait(DEADLINE_S)
    assert resolver.address("node-1") is None  # still being looked up, and nobody waits
    go_on.set()
    assert ended.acquire(timeout=DEADLINE_S)
    assert resolver.address("node-1") == "10.0.0.7"  # and asks again, which fails
    assert ended.acquire(timeout=DEADLINE_S)
    assert resolver.address("node-1") == "10.0.0.7"
    assert ended.acquire(timeout=DEADLINE_S)
