"""The demo waits as long as its run makes progress."""

import pytest

from examples.demo.waiting import wait_while_it_advances
from node.cli.local import NotInTime
from node.client import Unreachable


class Work:
    """A step every `step_s`, on a clock of its own, until it hangs; done after ten steps."""

    def __init__(self, step_s: float, hangs_after: int = 100) -> None:
        self.now_s = 0.0
        self._step_s = step_s
        self._hangs_after = hangs_after

    def steps(self) -> int:
        return min(int(self.now_s / self._step_s), self._hangs_after)

    def done(self) -> bool:
        if self.steps() == 3:
            raise Unreachable("restarting")
        return self.steps() >= 10

    def sleep(self, wait_s: float) -> None:
        self.now_s += wait_s

    def wait(self) -> bool:
        return wait_while_it_advances(
            "ten steps", self.done, self.steps, lambda: "See x.log.", 5.0, lambda: self.now_s, self.sleep
        )


def test_a_slow_machine_is_waited_for() -> None:
    work = Work(step_s=4.5)
    assert work.wait()
    assert work.now_s >= 45


def test_work_that_stands_still_is_given_up_with_what_was_seen_and_where_to_look() -> None:
    work = Work(step_s=1, hangs_after=4)
    with pytest.raises(NotInTime, match=r"ten steps: no progress for 5 s; last seen: 4\. .* busy\. See x\.log\."):
        work.wait()
    assert 9 <= work.now_s < 10
