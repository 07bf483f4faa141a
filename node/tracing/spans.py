"""Which spans follow from a change of a run, as values (pure).

A run is one trace. Ids are functions of the run, so that spans that different members send belong together.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from node.state.times import rfc3339
from node.state.value import Attempt, Run, State
from tasks.definition.run import RunState

AttributeValue = str | int | float | bool | tuple[str, ...]

ERRORS: Final[frozenset[RunState]] = frozenset({"failed", "timed_out", "abandoned", "orphaned"})
"""The states of runs and attempts that are errors of their spans. A cancellation is none: somebody asked for it."""

CHECKPOINT_US: Final = 1_000_000
"""The shortest span up to a checkpoint. Checkpoints that follow sooner belong to the next one."""

POOLS_SEEN: Final = 16
"""How many of those who wait for a pool are looked at. The one that is claimed is among the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanRecord:
    """One span, as it is sent."""

    #: What happened, such as `attempt`.
    name: str
    #: The id of the trace, of 128 bits.
    trace_id: int
    #: The id of the span, of 64 bits.
    span_id: int
    #: The id of the span that it is a part of; None: it is the root.
    parent_id: int | None
    #: When it began, in microseconds since the epoch.
    start_us: int
    #: When it ended, in microseconds since the epoch.
    end_us: int
    #: What else is known of it, by name.
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    #: Why it failed; None: it did not.
    error: str | None = None
    #: Spans of other traces that it follows from: each trace's id and span's id.
    links: tuple[tuple[int, int], ...] = ()


class ParentRun(NamedTuple):
    """A run of a task that another task came after."""

    task: str
    run_id: str


class Progress(NamedTuple):
    """How far the work is: `done` of `total` (None: not known), in `unit`."""

    done: float
    total: float | None
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldAttempt:
    """What a member remembers of an attempt of its own, to time what the state keeps no times of."""

    #: The fencing token of the attempt.
    token: int
    #: When its claim was seen to be committed, in microseconds since the epoch.
    committed_us: int
    #: When its work began, or the last span up to a checkpoint ended, in microseconds since the epoch.
    since_us: int
    #: How many spans up to checkpoints there were.
    spans: int = 0
    #: How many checkpoints there were since the last of them.
    checkpoints: int = 0


def trace_id_of(run_id: str, cluster: str) -> int:
    """Return the id of a run's trace: the first 16 bytes of a hash of the cluster's and the run's ids; never 0."""
    return _hashed(16, cluster, run_id)


def span_id_of(run_id: str, cluster: str, what: str, number: int = 0) -> int:
    """Return the id of one of a run's spans, such as the `attempt` with the token `number`; never 0."""
    return _hashed(8, cluster, run_id, what, str(number))


def _hashed(size: int, *parts: str) -> int:
    return int.from_bytes(hashlib.sha256("\0".join(parts).encode()).digest()[:size]) or 1


def traceparent_of(run_id: str, cluster: str, token: int, *, sampled: bool = True) -> str:
    """Return the W3C `traceparent` with which an attempt's work can add spans to its own.

    >>> traceparent_of("nightly@1", "c", 7)
    '00-f5abaf1420f3c4ce10adb715b47d742f-26317fef77045fa5-01'
    """
    trace_id, span_id = trace_id_of(run_id, cluster), span_id_of(run_id, cluster, "attempt", token)
    return f"00-{trace_id:032x}-{span_id:016x}-{int(sampled):02x}"


def trace_start_us(run: Run) -> int:
    """Return when a run became due: where its trace begins, in microseconds since the epoch.

    Runs of backfills, and runs by hand, are due when they are made, whatever time they are for.
    """
    due_us = run.created_at_us
    if run.trigger == "schedule" and not run.backfill:
        due_us = run.fire_at_us
    elif _waited_for_parents(run):
        due_us = run.nominal_us or run.fire_at_us
    return min(due_us, run.created_at_us)


def _waited_for_parents(run: Run) -> bool:
    return run.trigger == "after" and not run.generation and not run.backfill


def parents_of(state: State, run: Run) -> tuple[ParentRun, ...]:
    """Return the runs that a run came after, as far as the state still has them; the one that ended last comes last."""
    if run.trigger != "after":
        return ()
    nominal_us = run.nominal_us or run.fire_at_us
    found = []
    for parent in run.spec.after:
        row = state.tasks.get(parent.task)
        if row is not None and row.last is not None and nominal_us == row.last.fire_at_us:
            found.append((row.last.finished_at_us, ParentRun(parent.task, row.last.run_id)))
            continue
        ends = [end for end in state.past_ends.get(parent.task, ()) if end.run_id and end.nominal_us <= nominal_us]
        if ends:
            found.append((0, ParentRun(parent.task, ends[-1].run_id)))
    return tuple(parent for _, parent in sorted(found))


def _links(cluster: str, parents: tuple[ParentRun, ...]) -> tuple[tuple[int, int], ...]:
    return tuple((trace_id_of(one.run_id, cluster), span_id_of(one.run_id, cluster, "run")) for one in parents)


def waiting_spans(before: State, run: Run, attempt: Attempt) -> Iterator[SpanRecord]:
    """Yield the spans of what a run waited for until this attempt was claimed. `before`: the state before the claim."""
    cluster = before.cluster_id
    earlier = [one for one in run.attempts if one.token < attempt.token]
    since_us = trace_start_us(run)
    attributes: dict[str, AttributeValue] = {}
    if earlier:
        since_us = earlier[-1].finished_at_us or attempt.claimed_at_us
        name = "wait after a loss" if earlier[-1].state == "orphaned" else "wait for a retry"
    else:
        name = "wait"
        if _waited_for_parents(run) and run.created_at_us > since_us:
            yield _part(cluster, run, "wait for parents", attempt.token, since_us, run.created_at_us)
            since_us = run.created_at_us
    if pools := _pools_waited_for(before, run):
        name, attributes = "wait for a pool", {"rota.pools": pools}
    if attempt.claimed_at_us > since_us:
        yield _part(cluster, run, name, attempt.token, since_us, attempt.claimed_at_us, attributes)


def _pools_waited_for(before: State, run: Run) -> tuple[str, ...]:
    return tuple(
        name
        for name in sorted(run.spec.uses)
        if (pool := before.pools.get(name)) is not None
        and any(queued.run_id == run.run_id for queued in pool.queue[:POOLS_SEEN])
    )


def claim_span(cluster: str, run: Run, attempt: Attempt, now_us: int, parents: tuple[ParentRun, ...]) -> SpanRecord:
    """Return the span of a claim, from its proposal until it was committed and seen; it follows from the `parents`."""
    end_us = max(now_us, attempt.claimed_at_us)
    parent_id = span_id_of(run.run_id, cluster, "attempt", attempt.token)
    links = _links(cluster, parents)
    return _part(cluster, run, "claim", attempt.token, attempt.claimed_at_us, end_us, parent_id=parent_id, links=links)


def checkpoint_span(cluster: str, run: Run, held: HeldAttempt, progress: Progress | None, now_us: int) -> SpanRecord:
    """Return the span of the work up to a checkpoint: a batch, of kinds that work in batches."""
    attributes: dict[str, AttributeValue] = {"rota.checkpoints": held.checkpoints}
    if progress is not None:
        attributes |= {"rota.progress.done": progress.done, "rota.progress.unit": progress.unit}
        if progress.total is not None:
            attributes["rota.progress.total"] = progress.total
    return SpanRecord(
        name="checkpoint",
        trace_id=trace_id_of(run.run_id, cluster),
        span_id=span_id_of(run.run_id, cluster, f"checkpoint {held.spans}", held.token),
        parent_id=span_id_of(run.run_id, cluster, "attempt", held.token),
        start_us=held.since_us,
        end_us=max(now_us, held.since_us),
        attributes=attributes,
    )


def attempt_spans(cluster: str, run: Run, attempt: Attempt, held: HeldAttempt | None) -> Iterator[SpanRecord]:
    """Yield the spans of an ended attempt: its own, and that of its launch. `held`: it was this member's own."""
    end_us = max(attempt.finished_at_us or 0, attempt.claimed_at_us)
    failed = attempt.state in ERRORS
    attributes: dict[str, AttributeValue] = {
        "rota.attempt": attempt.attempt,
        "rota.node": attempt.node,
        "rota.token": attempt.token,
        "rota.state": attempt.state,
    }
    if attempt.error is not None and not failed:
        attributes["rota.note"] = attempt.error
    if failed:
        attributes["error.type"] = attempt.state
    yield _part(
        cluster,
        run,
        "attempt",
        attempt.token,
        attempt.claimed_at_us,
        end_us,
        attributes,
        error=(attempt.error or attempt.state) if failed else None,
    )
    if attempt.started_at_us is not None:
        since_us = attempt.claimed_at_us if held is None else held.committed_us
        parent_id = span_id_of(run.run_id, cluster, "attempt", attempt.token)
        until_us = max(attempt.started_at_us, attempt.claimed_at_us)
        yield _part(cluster, run, "launch", attempt.token, min(since_us, until_us), until_us, parent_id=parent_id)


def run_spans(
    cluster: str,
    run: Run,
    state: RunState,
    finished_at_us: int,
    error: str | None,
    now_us: int,
    parents: tuple[ParentRun, ...],
) -> Iterator[SpanRecord]:
    """Yield the spans that end a run's trace: the commit of its end, and the root."""
    end_us = max(now_us, finished_at_us)
    failed = state in ERRORS
    yield _part(cluster, run, "finish", 0, finished_at_us, end_us)
    attributes: dict[str, AttributeValue] = {
        "rota.cluster": cluster,
        "rota.run_id": run.run_id,
        "rota.task": run.task,
        "rota.kind": run.spec.kind,
        "rota.trigger": run.trigger,
        "rota.fire_at": rfc3339(run.nominal_us or run.fire_at_us),
        "rota.state": state,
        "rota.attempts": run.attempts[-1].attempt,
    }
    if run.backfill:
        attributes["rota.backfill"] = run.backfill
    if run.member:
        attributes["rota.member"] = run.member
    if failed:
        attributes["error.type"] = state
    elif error is not None:
        attributes["rota.note"] = error
    yield SpanRecord(
        name=f"run {run.task}",
        trace_id=trace_id_of(run.run_id, cluster),
        span_id=span_id_of(run.run_id, cluster, "run"),
        parent_id=None,
        start_us=min(trace_start_us(run), finished_at_us),
        end_us=end_us,
        attributes=attributes,
        error=(error or state) if failed else None,
        links=_links(cluster, parents),
    )


def _part(
    cluster: str,
    run: Run,
    name: str,
    token: int,
    start_us: int,
    end_us: int,
    attributes: Mapping[str, AttributeValue] | None = None,
    *,
    parent_id: int | None = None,
    error: str | None = None,
    links: tuple[tuple[int, int], ...] = (),
) -> SpanRecord:
    """Make a span of a run. `parent_id` None: it is a part of the root."""
    return SpanRecord(
        name=name,
        trace_id=trace_id_of(run.run_id, cluster),
        span_id=span_id_of(run.run_id, cluster, name, token),
        parent_id=span_id_of(run.run_id, cluster, "run") if parent_id is None else parent_id,
        start_us=start_us,
        end_us=end_us,
        attributes=attributes or {},
        error=error,
        links=links,
    )
