"""When an occurrence that falls into a blackout begins, as its owner will decide at the blackout's end. Pure."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import islice, takewhile
from typing import NamedTuple

from node.duty.decide import lateness_us
from node.state.blackout import Blackout, Blackouts, blackout_of
from node.state.calendar import days_of
from node.state.times import rfc3339
from node.state.value import State, TaskRow
from tasks.definition.policy import KEPT
from tasks.definition.schedule import occurrences
from tasks.definition.spec import CatchUp, labels_of


class HeldTime(NamedTuple):
    """What holds an occurrence at its due time, until when, and what becomes of it then."""

    #: The blackouts that hold it, one after the other.
    blackouts: tuple[str, ...]
    #: When the last of them ends, in microseconds since the epoch.
    until_us: int
    #: Whether it begins then; False: it is missed.
    begins: bool
    #: The task's `catch_up`, by which that is decided.
    catch_up: CatchUp

    def __str__(self) -> str:
        """Return it as the end of a sentence about an occurrence."""
        names = (
            f"blackout {self.blackouts[0]}" if len(self.blackouts) == 1 else f"blackouts {', '.join(self.blackouts)}"
        )
        missed = "" if self.begins else f", and missed then (catch_up: {self.catch_up})"
        return f"held by the {names} until {rfc3339(self.until_us)}{missed}"


def held_time(state: State, row: TaskRow, at_us: int) -> HeldTime | None:
    """Return what holds the occurrence of a task that is due at `at_us`; None: nothing does.

    Of the occurrences that are held together, `catch_up: latest` begins the last one. `overlap` is not asked, since
    nobody knows what will run then.
    """
    if not state.blackouts or row.timing.continuous:
        return None
    names, until_us = _held_until(state.blackouts, row.spec_packed, at_us)
    if not names:
        return None
    spec, days = row.spec, days_of(state.calendars, row.timing)
    coming = occurrences(row.timing.schedule, days, row.since_us, at_us)
    every = spec.catch_up == "all" and spec.overlap != "replace"
    later = sum(1 for _ in islice(takewhile(lambda one_us: one_us <= until_us, coming), KEPT if every else 1))
    if every:
        begins = later < KEPT
    else:
        begins = not later and (spec.catch_up != "skip" or at_us >= until_us - lateness_us(state))
    return HeldTime(names, until_us, begins, spec.catch_up)


def _held_until(blackouts: Blackouts, packed: bytes, at_us: int) -> tuple[tuple[str, ...], int]:
    names: list[str] = []
    while (blackout := blackout_of(blackouts, packed, at_us)) is not None:
        names.append(blackout.name)
        at_us = blackout.until_us  # another one may have begun by then
    return tuple(names), at_us


def held_count(holding: Sequence[Blackout], packed: bytes, times: Sequence[int]) -> int:
    """Return how many of a task's due `times`, in order, are in blackouts. `packed`: its definition."""
    if not holding or not times:
        return 0
    labels = labels_of(packed).items() if any(one.labels for one in holding) else ()
    count, counted_us = 0, 0
    for one in sorted(holding, key=lambda one: one.from_us):
        if set(one.labels) <= set(labels):
            from_us = max(one.from_us, counted_us)
            count += max(0, bisect_left(times, one.until_us) - bisect_left(times, from_us))
            counted_us = max(counted_us, one.until_us)
    return count


def holding_within(blackouts: Blackouts, from_us: int, until_us: int) -> list[Blackout]:
    """Return the blackouts that hold something between these times."""
    return [one for one in blackouts.values() if one.from_us <= until_us and from_us < one.until_us]
