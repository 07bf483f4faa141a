"""The proposals in flight, and the lease period in which each claim was made."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from node.state.claims import Claim
from node.state.entries import Entry
from node.state.value import Result, Run

PAUSE_US: Final = 250_000
"""The pause between two proposals for a task or a run, if the first one was refused, its outcome is unknown, or it was
accepted and its effect has not been observed."""

_CLAIMS_REMEMBERED: Final = 10_000

Key = tuple[str, str]


def subject_of(entry: Entry) -> Key:
    """Return the subject of an entry: a run, or the schedule of a task. Only one entry is in flight for a subject.

    The reason: entries about a schedule advance `through_us`. If two were in flight, the later one could be applied
    first, and then the earlier one would be refused.
    """
    run_id = getattr(entry, "run_id", None)
    if run_id is not None:
        return ("run", run_id)
    return ("task", getattr(entry, "task", ""))


@dataclass(slots=True)
class _UnderWay:
    entry: Entry
    task: str
    seen: bool = False


@dataclass(frozen=True, slots=True)
class _Rest:
    task: str
    until_us: int
    settled: bool


class Flight:
    """Tracks the proposals in flight, and the pauses after them."""

    def __init__(self) -> None:
        self._under_way: dict[Key, _UnderWay] = {}
        self._resting: dict[Key, _Rest] = {}
        self._periods: dict[tuple[str, str | None, int], int] = {}
        self._claims = 0

    @property
    def claims(self) -> int:
        """The number of claims in flight, each of which may need room."""
        return self._claims

    def claimed(self) -> list[Claim]:
        """Return the claims in flight."""
        return [each.entry for each in self._under_way.values() if isinstance(each.entry, Claim)]

    def free(self, key: Key, now_us: int) -> bool:
        """Whether an entry may be proposed about `key` now."""
        if (rest := self._resting.get(key)) is not None:
            if now_us < rest.until_us:
                return False
            del self._resting[key]
        return key not in self._under_way

    def proposed(self, entry: Entry, task: str, period: int) -> None:
        """Note that an entry about `task` was proposed, in the lease period `period`."""
        self._under_way[subject_of(entry)] = _UnderWay(entry, task)
        if isinstance(entry, Claim):
            self._claims += 1
            self._periods[entry.task, entry.run_id, entry.at_us] = period
            if len(self._periods) > _CLAIMS_REMEMBERED:
                # If a claim's period is forgotten here, its run is given back unstarted.
                del self._periods[next(iter(self._periods))]

    def saw(self, tasks: Collection[str] | None) -> None:
        """Note that a state was observed in which these tasks (None: all) changed, perhaps by this member's entries."""
        for under_way in self._under_way.values():
            under_way.seen = under_way.seen or tasks is None or under_way.task in tasks
        if any(rest.settled for rest in self._resting.values()):
            self._resting = {
                key: rest
                for key, rest in self._resting.items()
                if not (rest.settled and (tasks is None or rest.task in tasks))
            }

    def answered(self, entry: Entry, result: Result | None, now_us: int) -> tuple[str, int] | None:
        """Note the outcome of an entry: its result, or None if it is unknown (the entry may still be applied).

        Returns the task, and when to decide on it again: now if its change has been observed; otherwise after a pause,
        or when the change is observed. Returns None if the entry was not in flight.
        """
        key = subject_of(entry)
        under_way = self._under_way.get(key)
        if under_way is None or under_way.entry is not entry:
            return None
        del self._under_way[key]
        accepted = result is not None and result.ok
        if isinstance(entry, Claim):
            self._claims -= 1
            if result is not None and not accepted:
                self._periods.pop((entry.task, entry.run_id, entry.at_us), None)
        if accepted and under_way.seen:
            return under_way.task, now_us
        self._resting[key] = _Rest(under_way.task, now_us + PAUSE_US, settled=accepted)
        return under_way.task, now_us + PAUSE_US

    def period_of(self, run: Run) -> int | None:
        """Return the lease period in which this member proposed the claim that holds `run`; None if it did not.

        The attempt's claim time identifies the claim. So a claim whose outcome stayed unknown differs from a claim that
        was proposed again after the lease had lapsed.
        """
        if not run.attempts:
            return None
        at_us = run.attempts[-1].claimed_at_us
        known = self._periods.get((run.task, run.run_id, at_us))
        return self._periods.get((run.task, None, at_us)) if known is None else known

    def rested(self) -> None:
        """End all pauses, because the clock by which they were set has been put back."""
        self._resting.clear()

    def rests_until_us(self, key: Key) -> int | None:
        """Return when the pause of `key` ends; None if it has no pause."""
        rest = self._resting.get(key)
        return None if rest is None else rest.until_us

    def wake_us(self, now_us: int) -> int | None:
        """Return when the next pause ends; None if there is no pause."""
        if self._resting:
            self._resting = {key: rest for key, rest in self._resting.items() if rest.until_us > now_us}
        return min((rest.until_us for rest in self._resting.values()), default=None)
