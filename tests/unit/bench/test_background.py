"""Nobody who watches, asks or takes care falls silent unnoticed."""

import random
from pathlib import Path
from typing import Any, cast

from bench.chaos.background import Background
from bench.chaos.clients import Clients
from bench.chaos.observer import Observer
from node.cli.local import LocalCluster, wait_for
from node.client import Client


def test_a_thread_that_an_error_ends_is_found() -> None:
    def work(_: Any) -> None:
        raise KeyError("owner")

    thread = Background("caretaker", work)
    thread.start()
    thread.stop()
    assert "the thread caretaker has ended" in thread.found[0]
    assert "KeyError: 'owner'" in thread.found[0]


class Broken(Client):
    """Answers with what is none of the two errors that a client is ready for."""

    def call(self, *_: Any, **__: Any) -> Any:
        raise KeyError("owner")


def test_clients_that_an_error_ends_are_found(tmp_path: Path) -> None:
    clients = Clients([Broken(["http://127.0.0.1:1"])], tmp_path, random.Random(1))
    clients.start()
    wait_for("it has ended", lambda: clients.found, 10)
    clients.stop()
    assert "the thread clients has ended" in clients.found[0]


class Watched:
    """As much of a cluster as its observer needs."""

    names = ("node-1", "node-2")

    def client_of(self, *_: Any) -> Client:
        return Broken(["http://127.0.0.1:1"])


def test_an_observer_that_an_error_ends_is_found() -> None:
    observer = Observer(cast(LocalCluster, Watched()))
    observer.start()
    wait_for("both have ended", lambda: len(observer.found) == 2, 10)
    observer.stop()
    assert "the thread observer of node-1 has ended" in observer.found[0]
