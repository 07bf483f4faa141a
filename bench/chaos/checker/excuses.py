"""When the cluster could not have done what was due, as was seen from outside. Pure: sights in, spans of time out.

What excuses is not that a fault was held, but what it did: nobody led a ready majority, or a member that owned work
could not do it and the others had not yet found that out. Both end by themselves, long before a fault is mended, and
where no fault was they excuse nothing. A member that has no place for another run excuses what waits for it. Times are
CLOCK_BOOTTIME.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from bench.chaos.faults.fault import LEADER
from bench.chaos.faults.machines import HUNG
from bench.chaos.observer import Sight
from bench.chaos.records import Attempt
from bench.chaos.recovery import Struck
from node.liveness.pulse import STILL_S

GAP_S: Final = 1.2
"""A member is asked twice a second. Where two answers are further apart, it did not answer in between."""

RECOVERY_S: Final = 7.0
"""A member that can do nothing is marked down, under a leader with a majority, within so much.

A new leader waits longest: window_s (1) + lease_s (3 at the most, with the faults that change it) + margin_s (0.5)
from its election on (docs/explanation/leases-and-claims.md); two seconds and a half are for the entry, and for two busy
cores.
"""

TAKEOVER_S: Final = 1.5
"""And its work is claimed by others so soon after: half a second until the observer looks again, and one to claim."""

TURN_S: Final = 1.5
"""A place that was taken until so long ago is taken again: the end of the one is committed, the next one started."""

SLOW_S: Final = 3.5
"""What is proposed while packets are held or lost is committed after so much: four ways of 0.8 s (`faults.network`)."""

ELECTED_S: Final = 2.0
"""What a leader is told while it is struck is committed by the next one after so much. For the first 0.8 s the old one
says that it leads (`quorum_s`), so that the observer sees no time without a leader; the next is elected meanwhile."""

Spans = Sequence[tuple[float, float]]
"""Stretches of time, in order and apart from one another."""


@dataclass(frozen=True)
class Excuses:
    """When something could not be done."""

    cluster: Spans = ()
    """Nobody could, or it was not known yet who had to."""
    full: Mapping[str, Spans] = field(default_factory=dict)
    """By member: all its places were taken."""
    slow: Spans = ()
    """What was done was known to the others only after a while."""
    disk: Mapping[str, Spans] = field(default_factory=dict)
    """By member: its disk was full."""

    def on(self, node: str) -> Spans:
        """When a member could not begin another run."""
        return joined([*self.cluster, *self.full.get(node, ())])

    @property
    def anywhere(self) -> Spans:
        """When some member, whichever owned what was due, could not."""
        return joined([*self.cluster, *(span for spans in self.full.values() for span in spans)])

    def committed_s(self, at_s: float) -> float:
        """How long it may have taken then to commit something, beyond what is usual."""
        return max((min(SLOW_S, to_s - from_s) for from_s, to_s in self.slow if from_s <= at_s <= to_s), default=0.0)


def troubles(struck: Iterable[Struck], end_s: float) -> Spans:
    """When there was a fault to excuse anything, or it was not long over: all whole for `RECOVERY_S`."""
    return joined((one.struck_s, (one.whole_s or end_s) + RECOVERY_S) for one in struck)


def excused(sights: Mapping[str, Sequence[Sight]], troubled: Spans, begin_s: float, end_s: float) -> Spans:
    """When what was due may have waited. `sights`: by member, each one's in order.

    That is, where it was `troubled`, and each with `TAKEOVER_S` after it: while nobody led a ready majority; and while
    a member could do nothing and was not marked down yet, up to `RECOVERY_S` of time with a leader to do so.
    """
    able = {node: _lasting(own, lambda sight: sight.answered and sight.ready) for node, own in sights.items()}
    headless = _headless(sights, able, begin_s, end_s)
    spans = list(headless)
    for node in sights:
        counted = _intersection(_without(able[node], begin_s, end_s), _counted_on(node, sights, begin_s, end_s))
        spans += [(from_s, _capped(from_s, to_s, headless)) for from_s, to_s in counted]
    seen = joined((from_s, to_s + TAKEOVER_S) for from_s, to_s in spans if from_s < to_s)
    return _intersection(seen, troubled)


def full(attempts: Iterable[Attempt], places: int) -> dict[str, Spans]:
    """By member: while `places` attempts were at work there, and until the next one was."""
    turns: dict[str, list[tuple[float, int]]] = {}
    for attempt in attempts:
        own = turns.setdefault(attempt.node, [])
        own += [(attempt.begun_s, 1), (attempt.last_s, -1)]
    spans: dict[str, Spans] = {}
    for node, own in turns.items():
        taken, since_s, found = 0, 0.0, []
        for at_s, change in sorted(own):
            before, taken = taken, taken + change
            if before < places <= taken:
                since_s = at_s
            elif taken < places <= before:
                found.append((since_s, at_s))
        spans[node] = joined((from_s, to_s + TURN_S) for from_s, to_s in found)
    return spans


def slow(struck: Iterable[Struck]) -> Spans:
    """While packets were held or lost, and until those that were have come; and after a leader was struck."""
    held = [(one.struck_s, one.mended_s + SLOW_S) for one in struck if one.kind.startswith("packets ")]
    return joined(held + [(one.struck_s, one.struck_s + ELECTED_S) for one in struck if LEADER in one.said])


def hung_disks(struck: Iterable[Struck]) -> Spans:
    """While a node whose disk hung was up to the others: until it falls silent, is marked down and succeeded."""
    return joined(
        (one.struck_s, min(one.struck_s + STILL_S, one.mended_s) + RECOVERY_S + TAKEOVER_S)
        for one in struck
        if one.kind == HUNG
    )


def stalled(stalls: Iterable[tuple[float, float]]) -> Spans:
    """While the disk that all nodes share stood still, and until what waited for it is made up for."""
    return joined((from_s, to_s + TAKEOVER_S) for from_s, to_s in stalls)


def unexcused_s(begin_s: float, end_s: float, excuses: Spans) -> float:
    """How much of that time is not excused.

    >>> unexcused_s(0, 10, [(2, 5), (9, 20)])
    6.0
    """
    return max(0.0, end_s - begin_s) - sum(
        max(0.0, min(to_s, end_s) - max(from_s, begin_s)) for from_s, to_s in excuses
    )


def full_disks(struck: Iterable[Struck]) -> dict[str, Spans]:
    """By member: while its disk was full, and as long after as an attempt may take to say so."""
    spans: dict[str, list[tuple[float, float]]] = {}
    for one in struck:
        for victim in one.victims if one.kind == "full disk" else ():
            spans.setdefault(victim, []).append((one.struck_s, one.mended_s + TURN_S))
    return {victim: joined(own) for victim, own in spans.items()}


def _headless(sights: Mapping[str, Sequence[Sight]], able: Mapping[str, Spans], begin_s: float, end_s: float) -> Spans:
    """When nobody led with a majority, or no majority was ready."""
    led = joined(span for own in sights.values() for span in _lasting(own, _leads))
    turns = sorted(turn for spans in able.values() for from_s, to_s in spans for turn in ((from_s, 1), (to_s, -1)))
    ready, few, since_s = 0, [], begin_s
    for at_s, change in turns:
        before, ready = ready, ready + change
        if 2 * before <= len(able) < 2 * ready:
            few.append((since_s, at_s))
        elif 2 * ready <= len(able) < 2 * before:
            since_s = at_s
    if 2 * ready <= len(able):
        few.append((since_s, end_s))
    return joined([*_without(led, begin_s, end_s), *few])


def _counted_on(node: str, sights: Mapping[str, Sequence[Sight]], begin_s: float, end_s: float) -> Spans:
    """When a member was not down in the eyes of who led with a majority."""
    told = sorted(
        (sight.at_s, sight.statuses.get(node) not in ("down", "left"))
        for own in sights.values()
        for sight in own
        if _leads(sight)
    )
    seen = [(begin_s, True), *told, (end_s, True)]
    return joined((from_s, to_s) for (from_s, counted), (to_s, _) in pairwise(seen) if counted)


def _capped(from_s: float, to_s: float, headless: Spans) -> float:
    """The end of a span, or the moment in it when there had been a leader for `RECOVERY_S`."""
    left_s = RECOVERY_S
    at_s = from_s
    for begin_s, end_s in [*headless, (to_s, to_s)]:
        if end_s < at_s:
            continue
        if begin_s - at_s >= left_s:
            return min(to_s, at_s + left_s)
        left_s -= max(0.0, begin_s - at_s)
        at_s = max(at_s, end_s)
    return to_s


def _leads(sight: Sight) -> bool:
    return sight.answered and sight.quorum and sight.leader == sight.node


def _lasting(sights: Iterable[Sight], so: Callable[[Sight], bool]) -> Spans:
    """From the first to the last of those sights in a row that were `so`, no further apart than is usual."""
    spans: list[tuple[float, float]] = []
    lasts = False
    for sight in sights:
        if not so(sight):
            lasts = False
        elif lasts and sight.at_s - spans[-1][1] <= GAP_S:
            spans[-1] = (spans[-1][0], sight.at_s)
        else:
            spans.append((sight.at_s, sight.at_s))
            lasts = True
    return spans


def joined(spans: Iterable[tuple[float, float]]) -> Spans:
    """All that is in any of them."""
    union: list[tuple[float, float]] = []
    for from_s, to_s in sorted(spans):
        if union and from_s <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], to_s))
        else:
            union.append((from_s, to_s))
    return union


def _without(spans: Spans, begin_s: float, end_s: float) -> Spans:
    """What is in none of them, between these times."""
    edges = [begin_s, *(edge for span in spans for edge in span), end_s]
    return [(from_s, to_s) for from_s, to_s in zip(edges[::2], edges[1::2], strict=True) if from_s < to_s]


def _intersection(ones: Spans, others: Spans) -> Spans:
    """What is in both."""
    both = [
        (max(one[0], other[0]), min(one[1], other[1]))
        for one in ones
        for other in others
        if max(one[0], other[0]) < min(one[1], other[1])
    ]
    return sorted(both)
