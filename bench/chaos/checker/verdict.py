"""What a check says: what it found wrong, and how much there was to judge. One that judged nothing says nothing."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

LENGTH_S: Final = 180.0
"""In a trial of this length, each task that has a schedule is judged in each way that it can be."""

BEGUN: Final = "begun when due"
MISSED: Final = "dealt with before the next was due"
SKIPPED: Final = "skipped beside another"
ENDED: Final = "finished once its work was over"
TAKEN_OVER: Final = "tried again after an attempt"
STATES: Final = "ended as its task does"
AT_WORK: Final = "at work without a hole"

MUST: Final = (BEGUN, MISSED, ENDED, STATES)
"""What is judged of each task that falls due again and again."""


@dataclass
class Verdict:
    """`found`: the violations. By kind and task: how often it was `judged`, and how often `excused`: the cluster could
    not have done it then, for some of the time at least.
    """

    found: list[str] = field(default_factory=list)
    judged: Counter[tuple[str, str]] = field(default_factory=Counter)
    excused: Counter[tuple[str, str]] = field(default_factory=Counter)

    def __add__(self, other: "Verdict") -> "Verdict":
        return Verdict(self.found + other.found, self.judged + other.judged, self.excused + other.excused)

    def judge(self, kind: str, task: str, wrong: str | None = None, *, excuse: bool = False) -> None:
        """One more: right, or `wrong` and how. Right with an `excuse`: it was not judged by all of its time."""
        if wrong is not None:
            self.found.append(wrong)
        (self.excused if excuse and wrong is None else self.judged)[kind, task] += 1

    def counts(self) -> list[str]:
        """For people: each kind with its numbers.

        >>> Verdict(judged=Counter({("skipped beside another", "cron"): 2})).counts()
        ['skipped beside another: 2 judged, 0 excused']
        """
        kinds = [BEGUN, MISSED, SKIPPED, TAKEN_OVER, ENDED, AT_WORK, STATES]
        return [
            f"{kind}: {_of(self.judged, kind)} judged, {_of(self.excused, kind)} excused"
            for kind in kinds
            if _of(self.judged, kind) + _of(self.excused, kind)
        ]


def nothing_judged(verdict: Verdict, again: Iterable[str], continuous: Iterable[str], length_s: float) -> Sequence[str]:
    """What a trial of `length_s` cannot but have judged, and has not: tasks due `again` and again, and `continuous`."""
    if length_s < LENGTH_S:
        return []
    wanted = [(kind, task) for task in again for kind in MUST]
    wanted += [(kind, task) for task in continuous for kind in (AT_WORK, STATES)]
    return [
        f"nothing was judged: {task} was never seen to be {kind} at a time without an excuse"
        for kind, task in wanted
        if not verdict.judged[kind, task]
    ]


def _of(counter: Counter[tuple[str, str]], kind: str) -> int:
    return sum(count for (one, _), count in counter.items() if one == kind)
