"""Records go out from a thread; nobody waits for it, and what is lost is counted and said once."""

import logging
import threading
from collections.abc import Sequence

import pytest

from node.cli.local import wait_for
from node.tracing.export_thread import ExportCount, ExportThread, NotExported


class Receiver:
    """A client of which a test says what becomes of records."""

    def __init__(self) -> None:
        self.took: list[Sequence[int]] = []
        self.refuses: Exception | None = None
        self.entered, self.goes_on = threading.Event(), threading.Event()
        self.goes_on.set()

    def send(self, records: Sequence[int], /) -> None:
        self.entered.set()
        assert self.goes_on.wait(30)
        if self.refuses is not None:
            raise self.refuses
        self.took.append(list(records))


def test_what_has_no_room_is_dropped_while_a_receiver_hangs_and_nobody_waits() -> None:
    receiver = Receiver()
    receiver.goes_on.clear()
    thread = ExportThread[int]("spans", receiver, together=1, room=3)
    thread.start()
    thread.put([0])
    assert receiver.entered.wait(30)
    for number in range(1, 10):
        thread.put([number])
    assert thread.count == ExportCount("spans", 0, 6)
    receiver.goes_on.set()
    wait_for("the others are sent", lambda: thread.count == ExportCount("spans", 4, 6))
    thread.close(30)
    assert receiver.took == [[0], [1], [2], [3]]


def test_a_refusal_is_counted_and_said_once_until_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    receiver = Receiver()
    receiver.refuses = NotExported("401 Unauthorized")
    thread = ExportThread[int]("spans", receiver, together=2, room=100)
    caplog.set_level(logging.INFO, "rota.tracing")
    thread.put(range(6))
    thread.start()
    wait_for("all are dropped", lambda: thread.count == ExportCount("spans", 0, 6))
    receiver.refuses = None
    thread.put([6])
    wait_for("the next is sent", lambda: thread.count == ExportCount("spans", 1, 6))
    thread.close(30)
    assert [record.getMessage() for record in caplog.records] == [
        "spans are dropped, and counted in /metrics (rota_exports_dropped): 401 Unauthorized",
        "spans are sent again",
    ]


def test_a_bug_in_a_client_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    receiver = Receiver()
    receiver.refuses = ValueError("a bug")
    thread = ExportThread[int]("spans", receiver, together=1, room=100)
    thread.put([1])
    thread.start()
    wait_for("it is dropped", lambda: thread.count.dropped == 1)
    receiver.refuses = None
    thread.put([2])
    wait_for("the next is sent", lambda: thread.count.sent == 1)
    thread.close(30)
    assert "a bug in Rota" in caplog.text


def test_the_end_sends_what_is_queued_and_waits_for_no_receiver_that_hangs() -> None:
    receiver = Receiver()
    thread = ExportThread[int]("spans", receiver, together=2, room=100)
    thread.put(range(5))
    thread.start()
    thread.close(30)
    assert (receiver.took, thread.count) == ([[0, 1], [2, 3], [4]], ExportCount("spans", 5, 0))
    receiver.goes_on.clear()
    receiver.entered.clear()
    hanging = ExportThread[int]("spans", receiver, together=1, room=100)
    hanging.put(range(3))
    hanging.start()
    assert receiver.entered.wait(30)
    hanging.close(0.01)
    assert hanging.count == ExportCount("spans", 0, 2)
    receiver.goes_on.set()
