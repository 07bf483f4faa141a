"""The params of an occurrence, for its first claim: made by the owner of a task with a template, and kept by the run.

Only the owner works out the window, since `apply` never evaluates a schedule.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from node.duty.latest import schedule_roots
from node.state.bounds import PARAMS_BYTES_MAX, params_bytes
from node.state.calendar import days_of
from node.state.value import Run, State, TaskRow
from tasks.definition.spec import Cron, Spec, TaskTiming, timing
from tasks.definition.template import OccurrenceTimes, TemplateFault, sample_params, substituted, template_of
from tasks.definition.windows import window_start_us


class MadeParams(NamedTuple):
    """The params of an occurrence, or why they cannot be made. Both None: those of the definition, or of the run.

    `version`: the version of the definition that they are made by, of an occurrence that is not a run yet; else 0.
    """

    params: dict[str, Any] | None = None
    fault: str | None = None
    version: int = 0


NOT_MADE: Final = MadeParams()
_SAMPLE_US: Final = 1_767_225_600_000_000


def made_params(state: State, row: TaskRow, nominal_us: int, run: Run | None = None) -> MadeParams:
    """Return what the claim of an occurrence is to carry. `run`: its run; None: the occurrence is not a run yet."""
    packed = row.spec_packed if run is None else run.spec_packed
    if template_of(packed) is None or (run is not None and run.params is not None):
        return NOT_MADE
    if run is None:
        spec, version = row.spec, row.version
        times = occurrence_times(state, row.placing.name, row.timing, nominal_us)
    else:
        spec, version, times = run.spec, 0, times_of(state, run)
    fields = None if run is None else run.fields
    try:
        params = substituted(spec.params, times, fields or {})
    except TemplateFault as fault:
        return MadeParams(None, str(fault), version)
    if (size := params_bytes(params)) > PARAMS_BYTES_MAX:
        why = f"the params of this occurrence have {size} bytes, and {PARAMS_BYTES_MAX} at most are kept"
        return MadeParams(None, why, version)
    return MadeParams(params, None, version)


def readable_params(spec: Spec) -> Mapping[str, Any]:
    """Return params that the kind of a task can read: with a template, those of a sample occurrence."""
    return sample_params(spec.params, OccurrenceTimes(_SAMPLE_US))[0] if spec.template else spec.params


def times_of(state: State, run: Run) -> OccurrenceTimes:
    """Return the times of a run's occurrence. What was started by hand, or together with that, has no window."""
    rhythm, nominal_us = timing(run.spec_packed), run.nominal_us or run.fire_at_us
    if not run.backfill and (run.trigger == "manual" or run.generation):
        return OccurrenceTimes(nominal_us, None, _zone(_ruling(state, run.task, rhythm)))
    return occurrence_times(state, run.task, rhythm, nominal_us)


def occurrence_times(state: State, task: str, rhythm: TaskTiming, nominal_us: int) -> OccurrenceTimes:
    """Return the times of a task's occurrence: by its own schedule, or else by that from which it descends."""
    rhythm = _ruling(state, task, rhythm)
    start_us = window_start_us(rhythm.schedule, days_of(state.calendars, rhythm), nominal_us)
    return OccurrenceTimes(nominal_us, start_us, _zone(rhythm))


def _ruling(state: State, task: str, rhythm: TaskTiming) -> TaskTiming:
    if rhythm.schedule is not None:
        return rhythm
    roots = (row.timing for row, _ in schedule_roots(state, task))
    return next((one for one in roots if one.schedule is not None), rhythm)


def _zone(rhythm: TaskTiming) -> str:
    return rhythm.schedule.timezone if isinstance(rhythm.schedule, Cron) else "UTC"
