"""Which OpenLineage events follow from a change of a run, as values (pure)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from node.state.value import Run, State
from node.tracing.spans import ParentRun, parents_of
from tasks.definition.run import RunState

LineageEventType = Literal["START", "RUNNING", "COMPLETE", "FAIL", "ABORT"]

_ENDS: Final[Mapping[RunState, LineageEventType]] = {"succeeded": "COMPLETE", "cancelled": "ABORT"}
"""The events of final states; those of all others are FAIL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageRecord:
    """One event, as it is sent."""

    #: What happened to the run.
    event: LineageEventType
    #: When, in microseconds since the epoch.
    at_us: int
    #: The id of the cluster.
    cluster: str
    #: The id of the run.
    run_id: str
    #: The name of the task.
    task: str
    #: The name under which its work keeps what it leaves (`Run.lineage`).
    lineage: str
    #: The kind of the task.
    kind: str
    #: Whether the task runs all the time.
    continuous: bool
    #: The params, from which the datasets follow. Secrets in them are references, and no param is sent.
    params: Mapping[str, Any]
    #: The time of the occurrence, in microseconds since the epoch.
    nominal_us: int
    #: Why the run failed; None: it did not.
    error: str | None = None
    #: The runs that it came after; the last of them made it due.
    parents: tuple[ParentRun, ...] = field(default=())


def claimed_event(state: State, run: Run) -> LineageRecord:
    """Return the event of a run's latest claim: START of the first, RUNNING of any other."""
    attempt = run.attempts[-1]
    return _event("START" if attempt.attempt == 1 else "RUNNING", state, run, attempt.claimed_at_us)


def ended_event(state: State, run: Run, ended: RunState, finished_at_us: int, error: str | None) -> LineageRecord:
    """Return the event of a run's end."""
    return _event(_ENDS.get(ended, "FAIL"), state, run, finished_at_us, error)


def _event(event: LineageEventType, state: State, run: Run, at_us: int, error: str | None = None) -> LineageRecord:
    spec = run.spec
    return LineageRecord(
        event=event,
        at_us=at_us,
        cluster=state.cluster_id,
        run_id=run.run_id,
        task=run.task,
        lineage=run.lineage,
        kind=spec.kind,
        continuous=spec.continuous,
        params=spec.params if run.params is None else run.params,
        nominal_us=run.nominal_us or run.fire_at_us,
        error=(error or "it failed") if event == "FAIL" else None,
        parents=parents_of(state, run),
    )
