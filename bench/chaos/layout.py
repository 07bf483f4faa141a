"""What the picture shows, as values: spans of time in lanes, without a drawing library."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bench.chaos.observer import Sight
from bench.chaos.records import Attempt

SILENT = "silent"
"""A member that did not answer who asked it."""


@dataclass(frozen=True)
class Span:
    """From when to when something was so."""

    begin_s: float
    end_s: float
    what: str


@dataclass(frozen=True)
class Bar:
    """An attempt in the row of its node's lane, in which nothing else was then."""

    attempt: Attempt
    row: int


def conditions(node: str, sights: Mapping[str, Sequence[Sight]]) -> list[Span]:
    """What a member was: up, draining or down in the eyes of a leader with a majority, or silent itself."""
    told = [one for each in sights.values() for one in each if one.answered and one.quorum and one.leader == one.node]
    seen = [(one.at_s, one.statuses.get(node, "down")) for one in sorted(told, key=lambda one: one.at_s)]
    said = _spans(seen)
    silent = _spans([(sight.at_s, "" if sight.answered else SILENT) for sight in sights.get(node, ())])
    return [span for span in (*said, *silent) if span.what]


def leaderships(sights: Mapping[str, Sequence[Sight]]) -> dict[str, list[Span]]:
    """When each member led, with a majority."""
    return {
        node: [
            span
            for span in _spans([(one.at_s, "leads" if one.quorum and one.leader == node else "") for one in own])
            if span.what
        ]
        for node, own in sights.items()
    }


def _spans(seen: Sequence[tuple[float, str]]) -> list[Span]:
    """Equal observations in a row, as one span that lasts until the next one."""
    spans: list[Span] = []
    begin_s, what = seen[0] if seen else (0.0, "")
    for at_s, now in seen:
        if now != what:
            spans.append(Span(begin_s, at_s, what))
            begin_s, what = at_s, now
    if seen:
        spans.append(Span(begin_s, seen[-1][0], what))
    return spans


def packed(attempts: Iterable[Attempt], gap_s: float = 0.3) -> list[Bar]:
    """The attempts of one node, each in the lowest row that is free."""
    free_s: list[float] = []
    bars = []
    for attempt in sorted(attempts, key=lambda one: (one.begun_s, one.token)):
        row = next((row for row, at_s in enumerate(free_s) if at_s <= attempt.begun_s), len(free_s))
        if row == len(free_s):
            free_s.append(0.0)
        free_s[row] = attempt.last_s + gap_s
        bars.append(Bar(attempt, row))
    return bars


def hand_overs(attempts: Iterable[Attempt]) -> list[tuple[Attempt, Attempt]]:
    """Attempts that did not come to their end, each with the one that went on elsewhere."""
    by_run: dict[str, list[Attempt]] = {}
    for attempt in sorted(attempts, key=lambda one: one.token):
        by_run.setdefault(attempt.run, []).append(attempt)
    return [
        (before, after) for tries in by_run.values() for before, after in pairwise(tries) if before.node != after.node
    ]
