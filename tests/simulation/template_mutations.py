"""The rules about params that depend on the occurrence, switched off (`tests.simulation.mutants`)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest import mock

from node.duty import decide, occurrence_params
from node.state import apply, carried, claims, joins
from node.state.copying import replace
from node.state.draft import Draft
from node.state.value import CarriedFields, OccurrenceId, Result, Run, State, TaskRow
from tasks.definition.spec import timing
from tasks.definition.template import OccurrenceTimes
from tests.simulation.rules import Rules, instead


def as_they_come(_draft: Draft, run: Run, params: dict[str, Any] | None) -> Run | Result:
    """A claim without params is accepted."""
    return replace(run, params=params)


def made_by_nobody(_state: State, row: TaskRow, _nominal_us: int, _run: Run | None = None) -> Any:
    """The owner makes no params."""
    return occurrence_params.MadeParams(version=row.version)


@contextmanager
def _without_params() -> Iterator[None]:
    with (
        mock.patch.object(claims, "_with_params", as_they_come),
        mock.patch.object(decide, "made_params", made_by_nobody),
    ):
        yield


def never_stale(_row: TaskRow, _entry: claims.Claim) -> bool:
    """The params of a claim may be made by another version of the definition."""
    return False


def by_its_own_moment(state: State, run: Run) -> OccurrenceTimes:
    """The time of an occurrence is that of its run, which another may have moved."""
    times = occurrence_params.occurrence_times(state, run.task, timing(run.spec_packed), run.fire_at_us)
    by_hand = run.trigger == "manual" or run.generation
    return times._replace(window_start_us=None) if by_hand else times


def always_with_a_window(state: State, run: Run) -> OccurrenceTimes:
    """What is started by hand has a window."""
    nominal_us = run.nominal_us or run.fire_at_us
    return occurrence_params.occurrence_times(state, run.task, timing(run.spec_packed), nominal_us)


def of_any_occurrence(one: CarriedFields, parent: str, _occurrence: OccurrenceId) -> bool:
    """What a parent has left is for whatever occurrence comes next."""
    return one.parent == parent


def kept_for_ever(_draft: Draft, _task: str, _occurrence: OccurrenceId | None = None) -> None:
    """What was kept for an occurrence stays once that is decided."""


def nothing_carried(_draft: Draft) -> None:
    """Nothing of a parent's result is copied."""


def without_fields(_draft: Draft, run: Run, _join: Any) -> Run:
    """A run begins, whatever its params need of its parents."""
    return run


TEMPLATE_MUTANTS: Final[dict[str, Rules]] = {
    "template-claim": Rules(without=_without_params),
    "template-version": instead(claims, "made_by_another", never_stale),
    "template-nominal": instead(occurrence_params, "times_of", by_its_own_moment),
    "template-by-hand": instead(occurrence_params, "times_of", always_with_a_window),
    "fields-occurrence": instead(carried, "_is_of", of_any_occurrence),
    "fields-dropped": instead(joins, "drop_carried", kept_for_ever),
    "fields-copied": instead(apply, "carry_fields", nothing_carried),
    "fields-in-run": instead(joins, "with_fields", without_fields),
}
"""By name."""

TEMPLATES_SHOWN_BY: Final[dict[str, int]] = {
    "template-claim": 3,
    "template-version": 143,
    "template-nominal": 93,
    "template-by-hand": 23,
    "fields-occurrence": 73,
    "fields-dropped": 3,
    "fields-copied": 3,
    "fields-in-run": 3,
}
"""A seed whose history shows it (`tests.simulation.mutants`)."""
