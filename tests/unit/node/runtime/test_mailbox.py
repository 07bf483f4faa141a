"""What other threads have to say wakes the loop once, however much it is, and later if it may rest."""

from collections.abc import Callable

from node.runtime.mailbox import REST_S, Inbox


class Loop:
    """Calls what it was asked to when `turn` says so. `timers` are those that have not gone off."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []
        self.timers: list[Callable[[], None]] = []
        self.taken: list[list[int]] = []
        self.inbox = Inbox[int](self.calls.append, self._later, self.taken.append)

    def _later(self, wait_s: float, call: Callable[[], None]) -> None:
        assert wait_s == REST_S
        self.timers.append(call)

    def turn(self) -> int:
        """How many times it was woken."""
        calls, self.calls[:] = list(self.calls), []
        for call in calls:
            call()
        return len(calls)

    def ring(self) -> None:
        timers, self.timers = self.timers, []
        for call in timers:
            call()


def test_what_comes_before_the_loop_gets_to_it_comes_together_and_in_order() -> None:
    loop = Loop()
    for number in range(1000):
        loop.inbox.put(number)
    assert loop.turn() == 1
    assert loop.taken == [list(range(1000))]


def test_what_comes_while_it_is_taken_wakes_it_anew() -> None:
    calls: list[Callable[[], None]] = []
    taken: list[list[str]] = []

    def take(values: list[str]) -> None:
        taken.append(values)
        if values == ["first"]:
            inbox.put("second")

    inbox = Inbox[str](calls.append, lambda _wait_s, _call: None, take)
    inbox.put("first")
    for deliver in calls:
        deliver()
    assert taken == [["first"], ["second"]]


def test_what_may_rest_waits_for_more_and_wakes_the_loop_once() -> None:
    loop = Loop()
    loop.inbox.put(1, rests=True)
    assert loop.turn() == 1
    loop.inbox.put(2, rests=True)
    assert loop.turn() == 0
    assert not loop.taken
    loop.ring()
    assert loop.taken == [[1, 2]]
    loop.inbox.put(3, rests=True)
    assert loop.turn() == 1
    loop.ring()
    assert loop.taken == [[1, 2], [3]]


def test_what_may_not_rest_brings_what_rests_along() -> None:
    loop = Loop()
    loop.inbox.put(1, rests=True)
    loop.inbox.put(2)
    loop.turn()
    assert loop.taken == [[1, 2]]
    loop.inbox.put(3, rests=True)
    loop.inbox.deliver()
    assert loop.taken == [[1, 2], [3]]
    loop.turn()
    loop.ring()
    assert loop.taken == [[1, 2], [3]]
