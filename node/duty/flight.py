"""What has been proposed and not yet answered, and in which lease period each claim was made."""

from typing import Final

from node.state.entries import Claim, Entry
from node.state.value import Result, Run

PAUSE_US: Final = 250_000
"""So long nothing is proposed again for a task or a run after a refusal or an unknown outcome."""

_CLAIMS_REMEMBERED: Final = 10_000

Key = tuple[str, str]


def key_of(entry: Entry) -> Key:
    """What an entry is about: a run, or the schedule of a task. One entry is in flight for each at a time.

    Entries about a schedule move `through_us`: of two in flight the second, applied first, would undo the first.
    """
    run_id = getattr(entry, "run_id", None)
    if run_id is not None:
        return ("run", run_id)
    return ("task", getattr(entry, "task", ""))


class Flight:
    """Proposals under way."""

    def __init__(self) -> None:
        self._under_way: dict[Key, Entry] = {}
        self._resting: dict[Key, int] = {}
        self._periods: dict[tuple[str, str | None, int], int] = {}
        self._claims = 0

    @property
    def claims(self) -> int:
        """How many claims are under way: each may need a place."""
        return self._claims

    def free(self, key: Key, now_us: int) -> bool:
        """Whether something may be proposed about it now."""
        if (until_us := self._resting.get(key)) is not None:
            if now_us < until_us:
                return False
            del self._resting[key]
        return key not in self._under_way

    def proposed(self, entry: Entry, period: int) -> None:
        """An entry sets out, in this lease period."""
        self._under_way[key_of(entry)] = entry
        if isinstance(entry, Claim):
            self._claims += 1
            self._periods[entry.task, entry.run_id, entry.at_us] = period
            if len(self._periods) > _CLAIMS_REMEMBERED:
                # A claim that is forgotten is given back unstarted.
                del self._periods[next(iter(self._periods))]

    def answered(self, entry: Entry, result: Result | None, now_us: int) -> None:
        """Its outcome: a result, or None where it is unknown (it may yet be applied)."""
        key = key_of(entry)
        if self._under_way.get(key) is not entry:
            return
        del self._under_way[key]
        if isinstance(entry, Claim):
            self._claims -= 1
            if result is not None and not result.ok:
                self._periods.pop((entry.task, entry.run_id, entry.at_us), None)
        if result is None or not result.ok:
            self._resting[key] = now_us + PAUSE_US

    def period_of(self, run: Run) -> int | None:
        """The lease period in which the claim was proposed that holds `run`; None if that was not here.

        The claim is known by its time, which the attempt bears: of a claim whose outcome stayed unknown and
        one proposed again after a lapse, it tells which was accepted.
        """
        if not run.attempts:
            return None
        at_us = run.attempts[-1].claimed_at_us
        known = self._periods.get((run.task, run.run_id, at_us))
        return self._periods.get((run.task, None, at_us)) if known is None else known

    def rests_until_us(self, key: Key) -> int | None:
        """When something may be proposed about it again after a refusal; None if it does not rest."""
        return self._resting.get(key)

    def wake_us(self, now_us: int) -> int | None:
        """When the next rest is over."""
        if self._resting:
            self._resting = {key: until_us for key, until_us in self._resting.items() if until_us > now_us}
        return min(self._resting.values(), default=None)
