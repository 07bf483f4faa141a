"""`apply`: the next state, and what became of each proposal (DESIGN.md, sections 5 to 8).

Pure and total. It reads no clock and draws no random number, so that every member comes to the same state; and it
never raises, whatever it is given, because an exception inside a replicated method stops the log on every member
for good. What it cannot accept it refuses, with a code:

ok not-founded founded no-such-member no-such-task no-such-run exists version invalid not-up incarnation leaving
occurrence-taken overlap held not-due fenced too-large full stale leadership fault

`fault` is a handler that failed, which no entry should bring about: it is refused by all members alike.
Every proposal counts in `State.index`, a refused one too; its result is remembered in its proposer's window.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

from node.state import attempts, claims, entries, members, occurrences, registry, restoring, settings, windows
from node.state.codec import BadEntry, pack_batch, unpack_batch
from node.state.draft import Draft, refused
from node.state.entries import Entry, FoundCluster, Proposal, ProposalId, Unreadable
from node.state.value import EndedRun, Result, State

LATEST_AT_US: Final = occurrences.LAST_FIRE_US
"""An entry stamped later than this is refused: what it makes due would have no place in the calendar."""

_HANDLERS: Final[dict[type[Any], Callable[[Draft, Any], Result]]] = {
    entries.FoundCluster: members.found,
    entries.TakeLead: members.take_lead,
    entries.Join: members.join,
    entries.AddMember: members.add_member,
    entries.RemoveMember: members.remove_member,
    entries.Drain: members.drain,
    entries.StandAside: members.stand_aside,
    entries.MarkDown: members.mark_down,
    entries.ChangeSettings: settings.change,
    entries.PutTasks: registry.put_tasks,
    entries.DeleteTask: registry.delete_task,
    entries.Pause: registry.pause,
    entries.Start: occurrences.start,
    entries.Enqueue: occurrences.enqueue,
    entries.SkipOccurrences: occurrences.pass_over,
    entries.Claim: claims.claim,
    entries.Began: attempts.began,
    entries.Checkpoint: attempts.checkpoint,
    entries.Finish: attempts.finish,
    entries.Cancel: attempts.cancel,
    entries.Refound: members.refound,
    entries.RestoreTasks: restoring.put_back,
}

_NOTHING: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Applied:
    """What one proposal did: the next state, its result, the runs it ended, the tasks it touched.

    A task is touched when its row or a run of it has changed, so that its owner looks at it again.
    """

    state: State
    result: Result
    ended: tuple[EndedRun, ...] = ()
    touched: frozenset[str] = _NOTHING


@dataclass(frozen=True, slots=True)
class Batch:
    """What the proposals of one Raft entry did. `ended` holds each run with the index of its proposal."""

    state: State
    results: list[tuple[ProposalId, Result]]
    ended: list[tuple[int, EndedRun]]
    touched: frozenset[str]


def apply(state: State, proposal: Proposal) -> Applied:
    """Apply one proposal, exactly as if it had come packed. Never raises."""
    try:
        [readable] = unpack_batch(pack_batch([proposal]))
    except BadEntry as error:
        return Applied(replace(state, index=state.index + 1), refused("invalid", str(error)))
    return _apply(state, readable)


def apply_batch(state: State, data: bytes) -> Batch:
    """Apply a packed list of proposals, in order. Bytes that are none count as one refused proposal. Never raises."""
    try:
        proposals = unpack_batch(data)
    except BadEntry:
        return Batch(replace(state, index=state.index + 1), [], [], _NOTHING)
    return _together(state, proposals)


def _together(state: State, proposals: list[Proposal]) -> Batch:
    results: list[tuple[ProposalId, Result]] = []
    ended: list[tuple[int, EndedRun]] = []
    touched: list[frozenset[str]] = []
    for proposal in proposals:
        applied = _apply(state, proposal)
        state = applied.state
        results.append((proposal.id, applied.result))
        ended.extend((state.index, one) for one in applied.ended)
        touched.append(applied.touched)
    return Batch(state, results, ended, frozenset(chain.from_iterable(touched)))


def _apply(state: State, proposal: Proposal) -> Applied:
    """Apply a proposal whose fields are of their types."""
    one = proposal.id
    if not windows.known(state.windows, len(state.members), one.proposer, member=one.proposer in state.members):
        strangers = refused("no-such-member", f"{one.proposer!r} is no member, and too many others have proposed")
        return Applied(replace(state, index=state.index + 1), strangers)
    first = windows.forgotten(state.windows, one, state.forgotten) or windows.recall(state.windows, one)
    if first is not None:
        return Applied(replace(state, index=state.index + 1), first)
    draft = Draft(state)
    result = _handle(draft, proposal.entry)
    remembered = windows.remember(state.windows, one, result)
    if not result.ok:
        return Applied(replace(state, index=state.index + 1, windows=remembered), result)
    if len(draft.members) < len(state.members):
        remembered, draft.forgotten = windows.forget(remembered, draft.members, state.forgotten)
    return Applied(draft.state(remembered), result, tuple(draft.ended), frozenset(draft.touched))


def _handle(draft: Draft, entry: Entry | Unreadable) -> Result:
    if isinstance(entry, Unreadable):
        return refused("invalid", entry.why)
    if entry.at_us > LATEST_AT_US:
        return refused("invalid", "stamped beyond the calendar: set the clock of the member that proposed it")
    if not draft.cluster_id and not isinstance(entry, FoundCluster):
        return refused("not-founded", "the cluster has no members yet: its first entry founds it")
    try:
        return _HANDLERS[type(entry)](draft, entry)
    except (MemoryError, RecursionError):
        # Of this process alone: to go on would leave this member with another state than the others.
        raise
    except Exception as error:  # noqa: BLE001 - the last line of defence: see above
        return refused("fault", f"{type(entry).__name__} failed ({error!r}): report this, with the entry")
