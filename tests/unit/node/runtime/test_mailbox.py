"""Values from other threads wake the loop once for a batch, and later if they may wait."""

from collections.abc import Callable

from node.runtime.mailbox import GATHER_S, Mailbox


class Loop:
    """A loop that runs its calls in `turn`, and its `timers` in `ring`."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []
        self.timers: list[Callable[[], None]] = []
        self.taken: list[list[int]] = []
        self.mailbox = Mailbox[int](self.calls.append, self._later, self.taken.append)

    def _later(self, wait_s: float, call: Callable[[], None]) -> None:
        assert wait_s == GATHER_S
        self.timers.append(call)

    def turn(self) -> int:
        """Run all calls. Returns how often the loop was woken."""
        calls, self.calls[:] = list(self.calls), []
        for call in calls:
            call()
        return len(calls)

    def ring(self) -> None:
        timers, self.timers = self.timers, []
        for call in timers:
            call()


def test_values_that_come_before_the_loop_turns_are_delivered_together_in_order() -> None:
    loop = Loop()
    for number in range(1000):
        loop.mailbox.put(number)
    assert loop.turn() == 1
    assert loop.taken == [list(range(1000))]


def test_a_value_that_comes_during_delivery_wakes_the_loop_again() -> None:
    calls: list[Callable[[], None]] = []
    taken: list[list[str]] = []

    def take(values: list[str]) -> None:
        taken.append(values)
        if values == ["first"]:
            mailbox.put("second")

    mailbox = Mailbox[str](calls.append, lambda _wait_s, _call: None, take)
    mailbox.put("first")
    for deliver in calls:
        deliver()
    assert taken == [["first"], ["second"]]


def test_values_that_may_wait_are_gathered_and_wake_the_loop_once() -> None:
    loop = Loop()
    loop.mailbox.put(1, waits=True)
    assert loop.turn() == 1
    loop.mailbox.put(2, waits=True)
    assert loop.turn() == 0
    assert not loop.taken
    loop.ring()
    assert loop.taken == [[1, 2]]
    loop.mailbox.put(3, waits=True)
    assert loop.turn() == 1
    loop.ring()
    assert loop.taken == [[1, 2], [3]]


def test_a_value_that_may_not_wait_takes_waiting_ones_along() -> None:
    loop = Loop()
    loop.mailbox.put(1, waits=True)
    loop.mailbox.put(2)
    loop.turn()
    assert loop.taken == [[1, 2]]
    loop.mailbox.put(3, waits=True)
    loop.mailbox.deliver()
    assert loop.taken == [[1, 2], [3]]
    loop.turn()
    loop.ring()
    assert loop.taken == [[1, 2], [3]]
