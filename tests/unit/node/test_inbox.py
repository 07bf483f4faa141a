"""What other threads have to say wakes the loop once, however much it is."""

from collections.abc import Callable

from node.inbox import Inbox


def test_what_comes_before_the_loop_gets_to_it_comes_together_and_in_order() -> None:
    calls: list[Callable[[], None]] = []
    taken: list[list[int]] = []
    inbox = Inbox[int](calls.append, taken.append)
    for number in range(1000):
        inbox.put(number)
    [deliver] = calls
    deliver()
    assert taken == [list(range(1000))]


def test_what_comes_while_it_is_taken_wakes_it_anew() -> None:
    calls: list[Callable[[], None]] = []
    taken: list[list[str]] = []

    def take(values: list[str]) -> None:
        taken.append(values)
        if values == ["first"]:
            inbox.put("second")

    inbox = Inbox[str](calls.append, take)
    inbox.put("first")
    for deliver in calls:
        deliver()
    assert taken == [["first"], ["second"]]
