"""The entries that set and end blackouts, in which claims of new work are refused (`node.state.claims`).

What a blackout holds is not decided: at its end, occurrences are judged by their task's `catch_up`, since they could
not run in time, and runs that wait (retries, children, runs by hand) are claimed. Failovers, continuous work and
actions of kinds go on, and no run is ended.
"""

import re
from dataclasses import dataclass
from typing import Final

from node.state.blackout import Blackout
from node.state.calendars import RULES_CALENDARS
from node.state.draft import DONE, Draft, refused
from node.state.entries import Entry, applies
from node.state.occurrences import LAST_FIRE_US
from node.state.value import Result, Run
from tasks.definition.spec import NAME_PATTERN

BLACKOUTS_MAX: Final = 100
BLACKOUT_LABELS_MAX: Final = 16
KEPT_US: Final = 7 * 86_400_000_000
"""How long after its end a blackout is shown, at least until another one is set, in microseconds."""

_LABEL_CHARS_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class SetBlackout(Entry):
    """Set a blackout, or change it: the fields are those of `node.state.blackout.Blackout`."""

    #: Its name.
    name: str
    #: When it begins, in microseconds since the epoch.
    from_us: int
    #: When it ends, in microseconds since the epoch.
    until_us: int
    #: The labels that a task must have to be held, as pairs; empty: all tasks are.
    labels: tuple[tuple[str, str], ...] = ()


@applies(SetBlackout, code=36)
def set_blackout(draft: Draft, entry: SetBlackout) -> Result:
    """Set or change a blackout; forget those that ended long ago."""
    if draft.lead.rules < RULES_CALENDARS:
        return refused("invalid", "blackouts need a leader of this version")
    if (fault := _fault(entry)) is not None:
        return refused("invalid", fault)
    for name in sorted(draft.blackouts):
        if draft.blackouts[name].until_us < entry.at_us - KEPT_US:
            draft.blackouts = draft.blackouts.delete(name)
    if entry.name not in draft.blackouts and len(draft.blackouts) >= BLACKOUTS_MAX:
        return refused("full", f"a cluster has {BLACKOUTS_MAX} blackouts at most: end some")
    labels = tuple(sorted(entry.labels))
    draft.blackouts = draft.blackouts.set(entry.name, Blackout(entry.name, entry.from_us, entry.until_us, labels))
    return DONE


def _fault(entry: SetBlackout) -> str | None:
    if re.fullmatch(NAME_PATTERN, entry.name) is None:
        return f"{entry.name[:200]!r} is no name of a blackout: letters, digits and . _ - are, 128 at most"
    if not entry.from_us < entry.until_us <= LAST_FIRE_US:
        return "a blackout ends later than it begins, and before the year 9999"
    if len(entry.labels) > BLACKOUT_LABELS_MAX or any(
        len(one) > _LABEL_CHARS_MAX for pair in entry.labels for one in pair
    ):
        return f"a blackout names {BLACKOUT_LABELS_MAX} labels at most, of {_LABEL_CHARS_MAX} characters at most"
    if len({name for name, _ in entry.labels}) < len(entry.labels):
        return "a label is in it twice"
    return None


@dataclass(frozen=True, slots=True)
class EndBlackout(Entry):
    """End a blackout now, or take back one that is to come."""

    name: str


@applies(EndBlackout, code=37)
def forget_blackout(draft: Draft, entry: EndBlackout) -> Result:
    """End a blackout, or take it back."""
    if entry.name not in draft.blackouts:
        return refused("invalid", f"there is no blackout {entry.name!r}")
    draft.blackouts = draft.blackouts.delete(entry.name)
    return DONE


def is_exempt(run: Run) -> bool:
    """Whether a run is claimed in a blackout, too: a failover, the work of a continuous task, or an action."""
    return run.state == "orphaned" or bool(run.action) or run.spec.continuous
