"""Follows the changes of the state, and decides which spans and events this member sends (pure, but for its memory).

Each is sent by one member, which all members know from the state alone: what is about an attempt, by the member that
held it, or by the leader if that member is down or was started anew; what ends a run, by the member that held its last
attempt, or else by the leader. So the run of a killed member has its root all the same: the next member that holds it
ends it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from node.replication.state_machine import StateChange
from node.state.value import Attempt, EndedRun, Run, State
from node.tracing import lineage, spans
from node.tracing.lineage import LineageRecord
from node.tracing.spans import HeldAttempt, Progress, SpanRecord

Told = tuple[list[SpanRecord], list[LineageRecord]]


def is_told_by(state: State, attempt: Attempt) -> str:
    """Return the member that tells of an attempt, by the state after what there is to tell."""
    holder = state.members.get(attempt.node)
    there = holder is not None and holder.status != "down" and holder.incarnation == attempt.incarnation
    return attempt.node if there else state.lead.member


class RunFollower:
    """Decides for the member `me`. `progress` returns how far an attempt here is, by the run's id; None: not known."""

    def __init__(self, me: str, progress: Callable[[str], Progress | None]) -> None:
        self._me = me
        self._progress = progress
        self._held: dict[str, HeldAttempt] = {}

    def follow(self, changes: Sequence[StateChange], now_us: int) -> Told:
        """Return the spans and the events that this member sends for consecutive changes, seen at `now_us`."""
        told: Told = ([], [])
        for change in changes:
            if change.touched is None:  # a snapshot, which does not say what happened
                runs = change.after.runs
                self._held = {
                    run_id: held
                    for run_id, held in self._held.items()
                    if (run := runs.get(run_id)) is not None and run.token == held.token
                }
                continue
            for ended in (each for _, each in change.ended):
                self._end(change, ended, now_us, told)
            for before, after in _changed(change):
                self._step(change, before, after, now_us, told)
        return told

    def _end(self, change: StateChange, ended: EndedRun, now_us: int, told: Told) -> None:
        run = ended.run
        # What nobody claimed was no work: there is nothing to trace. A series is a record of such occurrences.
        if ended.series is not None or run.action or not run.attempts:
            return
        self._step(change, change.before.runs.get(run.run_id), run, now_us, told)
        self._held.pop(run.run_id, None)
        if is_told_by(change.after, run.attempts[-1]) != self._me:
            return
        cluster, error, parents = change.after.cluster_id, ended.error, spans.parents_of(change.after, run)
        told[0].extend(spans.run_spans(cluster, run, ended.state, ended.finished_at_us, error, now_us, parents))
        told[1].append(lineage.ended_event(change.after, run, ended.state, ended.finished_at_us, error))

    def _step(self, change: StateChange, before: Run | None, run: Run, now_us: int, told: Told) -> None:
        cluster = change.after.cluster_id
        known = {} if before is None else {attempt.token: attempt for attempt in before.attempts}
        for attempt in run.attempts:
            was = known.get(attempt.token)
            if was is attempt or is_told_by(change.after, attempt) != self._me:
                continue
            if was is None:
                self._claimed(change, run, attempt, now_us, told)
            held = self._held.get(run.run_id)
            if held is not None and held.token != attempt.token:
                held = None
            if held is not None and attempt.started_at_us is not None and (was is None or was.started_at_us is None):
                held = self._held[run.run_id] = replace(held, since_us=attempt.started_at_us)
            if attempt.finished_at_us is not None and (was is None or was.finished_at_us is None):
                told[0].extend(spans.attempt_spans(cluster, run, attempt, held))
                if held is not None:
                    del self._held[run.run_id]
        if before is not None and run.checkpoint is not before.checkpoint:
            self._checkpointed(cluster, run, now_us, told)

    def _claimed(self, change: StateChange, run: Run, attempt: Attempt, now_us: int, told: Told) -> None:
        if attempt.node == self._me:
            self._held[run.run_id] = HeldAttempt(
                token=attempt.token, committed_us=max(now_us, attempt.claimed_at_us), since_us=now_us
            )
        parents = spans.parents_of(change.after, run)
        told[0].extend(spans.waiting_spans(change.before, run, attempt))
        told[0].append(spans.claim_span(change.after.cluster_id, run, attempt, now_us, parents))
        if attempt is run.attempts[-1]:
            told[1].append(lineage.claimed_event(change.after, run))

    def _checkpointed(self, cluster: str, run: Run, now_us: int, told: Told) -> None:
        held = self._held.get(run.run_id)
        if held is None or held.token != run.token:
            return
        held = replace(held, checkpoints=held.checkpoints + 1)
        if now_us - held.since_us >= spans.CHECKPOINT_US:
            told[0].append(spans.checkpoint_span(cluster, run, held, self._progress(run.run_id), now_us))
            held = replace(held, since_us=now_us, spans=held.spans + 1, checkpoints=0)
        self._held[run.run_id] = held


def _changed(change: StateChange) -> Iterator[tuple[Run | None, Run]]:
    """Yield each active run that the change made or replaced: before (None: it is new), and after."""
    before, after = change.before, change.after
    if after.runs is before.runs:
        return
    for task in change.touched or ():
        for run_id in after.runs_of.get(task, ()):
            run, was = after.runs[run_id], before.runs.get(run_id)
            if run is not was and not run.action:
                yield was, run
