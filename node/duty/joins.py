"""What the leader proposes for tasks that are due after others. Pure: state and time in, entries out.

The entry that ends a task's last parent decides on it. The leader only passes on the ends that an entry has left over,
and finds what waits for a parent that cannot end any more, or has waited for as long as it may.
"""

from itertools import islice
from typing import Final

from node.state.awaiting import SettleLate
from node.state.entries import Entry
from node.state.joins import PassOn, SettleJoin, open_parents
from node.state.value import PendingJoin, State

AGAIN_US: Final = 1_000_000
"""The pause before an entry is proposed again if its effect has not been observed, and between two looks at a join."""

LOOKED_AT_A_STEP: Final = 64
"""How many pending joins are looked at in one step, so that a step takes milliseconds."""


class JoinKeeper:
    """Keeps joins going for the leader, from `state` on.

    The caller must call `observe` with every new state, and then `step`. For each leadership a new keeper is made.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._passing: tuple[int, int] = (-1, 0)
        """The first end of the latest portion that was proposed, and until when it is not proposed again."""
        self._round: list[PendingJoin] = []
        """The pending joins that are still to be looked at in this round."""
        self._round_us = 0
        """When the next round begins."""

    def observe(self, state: State) -> bool:
        """Use a new state from now on. Returns whether `step` is to be called at once: ends or joins differ."""
        before, self._state = self._state, state
        return bool(state.ends) or state.joins is not before.joins

    def step(self, now_us: int) -> tuple[list[Entry], int | None]:
        """Return the entries to propose at `now_us`, and when to step again; None: only when the state has changed."""
        state = self._state
        if state.ends:
            return self._pass_on(now_us)
        if not state.joins and not self._round:
            return [], None
        self._round_us = min(self._round_us, now_us + AGAIN_US)  # the clock may have been set back
        if not self._round:
            if now_us < self._round_us:
                return [], self._round_us
            self._round = [join for task in sorted(state.joins) for join in state.joins[task]]
            self._round_us = now_us + AGAIN_US
        some, self._round = list(islice(self._round, LOOKED_AT_A_STEP)), self._round[LOOKED_AT_A_STEP:]
        entries: list[Entry] = []
        for one in some:
            if can_settle(state, one):
                entries.append(SettleJoin(now_us, one.task, one.nominal_us, one.generation))
            elif is_late(state, one, now_us):
                entries.append(SettleLate(now_us, one.task, one.nominal_us))
        return entries, now_us if self._round else self._round_us

    def _pass_on(self, now_us: int) -> tuple[list[Entry], int]:
        first = self._state.next_end - len(self._state.ends)
        number, until_us = self._passing
        if number == first and until_us - AGAIN_US <= now_us < until_us:  # the clock may have been set back
            return [], until_us
        self._passing = first, now_us + AGAIN_US
        return [PassOn(now_us, first)], self._passing[1]


def can_settle(state: State, join: PendingJoin) -> bool:
    """Whether a pending join waits only for parents that cannot end its occurrence any more, or for none at all."""
    row = state.tasks.get(join.task)
    if row is None or join not in state.joins.get(join.task, ()):
        return False
    if join.decided:
        return join.generation != 0 and join.generation not in state.reruns
    return open_parents(state, state.past_ends, row, join) is None


def is_late(state: State, join: PendingJoin, now_us: int) -> bool:
    """Whether a pending join of a task with a schedule has waited for as long as it may."""
    return bool(join.times) and join.until_us <= now_us and join in state.joins.get(join.task, ())
