"""The rules about backfills, switched off (`tests.simulation.mutants`)."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest import mock

from immutables import Map

from node.duty import backfills as keeping
from node.duty import decide, turns
from node.duty.room import BackfillPlaces
from node.state import backfill, claims
from node.state.backfill import BackfillRow
from node.state.backfills import AdvanceBackfill, advance_backfill
from node.state.copying import replace
from node.state.draft import Draft
from node.state.pool import Pool
from node.state.pools import pool_shortage
from node.state.value import Rerun, Result, Run, State, TaskRow
from tasks.definition.pools import PoolNeeds
from tasks.definition.spec import Schedule
from tests.simulation.rules import Rules, handler, instead

_END: Final = Draft.end


def from_where_it_was_seen(draft: Draft, entry: AdvanceBackfill) -> Result:
    """The position that the leader saw counts, and not the one that there is."""
    if (row := draft.backfills.get(entry.number)) is not None:
        draft.backfills = draft.backfills.set(row.number, replace(row, position_us=entry.position_us))
    return advance_backfill(draft, entry)


def beside_any(_row: TaskRow, _active: Iterable[Run]) -> None:
    """Other runs of the task begin beside one of a backfill."""


@contextmanager
def _beside() -> Iterator[None]:
    one, other = (mock.patch.object(room, "held_by_backfill", beside_any) for room in (claims, decide))
    with one, other:
        yield


def all_but_actions(draft: Draft, task: str) -> list[Run]:
    """The runs of backfills count for overlap and deadlines, too."""
    return [run for run in draft.active(task) if not run.action]


def end_as_any(draft: Draft, run: Run, *how: Any) -> None:
    """The end of a run of a backfill counts for its task."""
    _END(draft, replace(run, backfill=0), *how)


def always(_places: BackfillPlaces, _kind: str) -> bool:
    """Backfills take all places of a member."""
    return True


def as_any(pools: Map[str, Pool], needs: PoolNeeds, _backfill: int = 0) -> str | None:
    """Backfills take all of a pool."""
    return pool_shortage(pools, needs)


@contextmanager
def _whole_pools() -> Iterator[None]:
    with mock.patch.object(claims, "pool_shortage", as_any), mock.patch.object(turns, "pool_shortage", as_any):
        yield


def nothing_is_over(_state: State, _row: BackfillRow) -> list[Rerun]:
    """The leader does not look for occurrences that nothing carries on."""
    return []


def since_the_registration(_schedule: Schedule | None, since_us: int) -> int:
    """An interval does not go back beyond the registration."""
    return since_us


BACKFILL_MUTANTS: Final[dict[str, Rules]] = {
    "backfill-position": handler(AdvanceBackfill, from_where_it_was_seen),
    "backfill-beside": Rules(without=_beside),
    "backfill-overlap": instead(Draft, "overlapping", all_but_actions),
    "backfill-last": instead(Draft, "end", end_as_any),
    "backfill-half": instead(BackfillPlaces, "open", always),
    "backfill-half-of-pool": Rules(without=_whole_pools),
    "backfill-over": instead(keeping, "what_is_over", nothing_is_over),
    "backfill-backwards": instead(keeping, "reckoned_from_us", since_the_registration),
    "backfill-pauses": instead(backfill, "PAUSED_AFTER", 1000),
}
"""By name."""

BACKFILLS_SHOWN_BY: Final[dict[str, int]] = {
    "backfill-position": 1078,
    "backfill-beside": 8,
    "backfill-overlap": 8,
    "backfill-last": 8,
    "backfill-half": 658,
    "backfill-half-of-pool": 78,
    "backfill-over": 8,
    "backfill-backwards": 8,
    "backfill-pauses": 218,
}
"""A seed whose history shows it (`tests.simulation.mutants`)."""
