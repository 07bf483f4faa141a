"""How long the cluster took to come back from each fault. Pure: what was done and what was seen in, seconds out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

from bench.chaos.records import Attempt


@dataclass
class Struck:
    """A fault as it happened; times are CLOCK_BOOTTIME. `round`: those of one round struck together."""

    round: int
    kind: str
    said: str
    victims: tuple[str, ...]
    struck_s: float
    mended_s: float = 0.0
    whole_s: float | None = None
    """When all members were up and ready again, after all faults of the round were mended; None: they were not."""

    def packed(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


@dataclass
class Recovery:
    """Of one kind: how often, and the times of those that came alone, in seconds."""

    alone: int = 0
    in_company: int = 0
    mended_to_whole_s: list[float] = field(default_factory=list)
    struck_to_whole_s: list[float] = field(default_factory=list)
    struck_to_work_s: list[float] = field(default_factory=list)
    """Until the first attempt that began anywhere but on those struck."""
    struck_to_taken_over_s: list[float] = field(default_factory=list)
    """For each run that was at work on those struck and went on elsewhere: until it did."""


def recoveries(faults: Iterable[Struck], attempts: Sequence[Attempt], nodes: int) -> dict[str, Recovery]:
    """By kind of fault, in the order of their names. A fault that strikes all `nodes` has no others to go on."""
    rounds: dict[int, list[Struck]] = {}
    for fault in faults:
        rounds.setdefault(fault.round, []).append(fault)
    runs: dict[str, list[Attempt]] = {}
    for attempt in sorted(attempts, key=lambda attempt: attempt.begun_s):
        runs.setdefault(attempt.run, []).append(attempt)
    by_kind: dict[str, Recovery] = {}
    for together in rounds.values():
        for fault in together:
            recovery = by_kind.setdefault(fault.kind, Recovery())
            if len(together) > 1:
                recovery.in_company += 1
                continue
            recovery.alone += 1
            away = fault.victims if len(fault.victims) < nodes else ()
            _time(recovery, fault, away, attempts, runs)
    return dict(sorted(by_kind.items()))


def _time(
    recovery: Recovery,
    fault: Struck,
    away: Sequence[str],
    attempts: Sequence[Attempt],
    runs: Mapping[str, Sequence[Attempt]],
) -> None:
    if fault.whole_s is not None:
        recovery.mended_to_whole_s.append(fault.whole_s - fault.mended_s)
        recovery.struck_to_whole_s.append(fault.whole_s - fault.struck_s)
    elsewhere = [
        attempt.begun_s - fault.struck_s
        for attempt in attempts
        if attempt.begun_s > fault.struck_s and attempt.node not in away
    ]
    if elsewhere:
        recovery.struck_to_work_s.append(min(elsewhere))
    for tries in runs.values():
        for before, after in pairwise(tries):
            at_work = before.node in fault.victims and before.begun_s <= fault.struck_s and not before.ended
            # Nobody takes over before the fault, nor because of it long after all is whole.
            during = fault.struck_s < after.begun_s <= (fault.whole_s or after.begun_s)
            if at_work and during and after.node not in away:
                recovery.struck_to_taken_over_s.append(after.begun_s - fault.struck_s)


def middle_and_worst(times_s: Sequence[float]) -> str:
    """As the table has it.

    >>> middle_and_worst([1.0, 2.0, 9.0])
    '2.0 / 9.0'
    >>> middle_and_worst([])
    '-'
    """
    return f"{median(times_s):.1f} / {max(times_s):.1f}" if times_s else "-"
