"""The rules about deadlines, switched off (`tests.simulation.mutants`)."""

import sys
from unittest import mock

from node.duty.deadlines import DeadlineJudge
from node.state import deadlines
from node.state.draft import Draft
from node.state.value import Breach, State, TaskRow

REAL_FOLLOW = deadlines.follow


def only_judged(draft: Draft, before: State, at_us: int) -> None:
    """A deadline that is breached stays so."""
    with mock.patch.object(Draft, "recover", lambda *_: None):
        REAL_FOLLOW(draft, before, at_us)


def always_undecided(_draft: Draft, _row: TaskRow, _breach: Breach) -> bool:
    """The leader's word is taken for what is late, whatever has become of it."""
    return True


class KnowsOnlyChanges(DeadlineJudge):
    """A new leader judges the tasks that change while it leads."""

    def _start_over(self) -> None:
        super()._start_over()
        self._unseen.clear()


class JudgesOnce(DeadlineJudge):
    """A deadline that is not met is proposed once, and looked at no more."""

    def _look(self) -> None:
        super()._look()
        for key in self._proposed:
            self._proposed[key] = sys.maxsize
