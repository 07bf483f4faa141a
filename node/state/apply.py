"""`apply` computes the next state, and the result of each proposal.

Pure and total. It reads no clock and draws no random number, so that every member reaches the same state. It never
raises, because an exception in a replicated method would stop the log on every member for good. Every result has one of
these codes; all but `ok` refuse the entry:

ok not-founded founded no-such-member no-such-task no-such-run exists version invalid not-up incarnation leaving
occurrence-taken overlap pool rate blackout held not-due fenced too-large full stale leadership no-such-channel
no-such-notice no-such-backfill fault

`fault` means that a handler raised, which is a bug; all members refuse the entry alike. Every proposal counts in
`State.index`, a refused one too; its result is kept in its proposer's window.
"""

from dataclasses import dataclass
from itertools import chain
from typing import Final

from node.state import deadlines, joins, occurrences, windows
from node.state.calendars import follow_calendars
from node.state.carried import carry_fields
from node.state.codec import BadEntry, pack_batch, unpack_batch
from node.state.copying import replace
from node.state.draft import Draft, refused
from node.state.entries import HANDLERS, Entry, Proposal, ProposalId, Unreadable
from node.state.facts import note_facts
from node.state.members import FoundCluster
from node.state.pools import follow_pools
from node.state.value import DeadlineEvent, EndedRun, Result, State

LATEST_AT_US: Final = occurrences.LAST_FIRE_US
"""An entry stamped later than this is refused: the times that follow from it would be beyond the calendar."""

_NOTHING: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Applied:
    """The effect of one proposal."""

    #: The next state.
    state: State
    #: The result of the proposal.
    result: Result
    #: The runs that the proposal ended.
    ended: tuple[EndedRun, ...] = ()
    #: The tasks whose row, one of whose runs, or whose calendars have changed. The owner of each decides anew.
    touched: frozenset[str] = _NOTHING
    #: The deadlines that the proposal breached, or that are no longer breached.
    deadlines: tuple[DeadlineEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class Batch:
    """The effect of the proposals of one Raft entry."""

    #: The state after all of them.
    state: State
    #: Each proposal's id and result, in order.
    results: list[tuple[ProposalId, Result]]
    #: Each run that ended, with the index of the proposal that ended it.
    ended: list[tuple[int, EndedRun]]
    #: The tasks whose row, or one of whose runs, has changed.
    touched: frozenset[str]
    #: Each deadline that was breached, or is no longer breached, with the index of its proposal.
    deadlines: list[tuple[int, DeadlineEvent]]


def apply(state: State, proposal: Proposal) -> Applied:
    """Apply one proposal, exactly as if it had been packed and unpacked. Never raises."""
    try:
        [readable] = unpack_batch(pack_batch([proposal]))
    except BadEntry as error:
        return Applied(replace(state, index=state.index + 1), refused("invalid", str(error)))
    return _apply(state, readable)


def apply_batch(state: State, data: bytes) -> Batch:
    """Apply a packed list of proposals, in order. Undecodable bytes count as one refused proposal. Never raises."""
    try:
        proposals = unpack_batch(data)
    except BadEntry:
        return Batch(replace(state, index=state.index + 1), [], [], _NOTHING, [])
    return _together(state, proposals)


def _together(state: State, proposals: list[Proposal]) -> Batch:
    results: list[tuple[ProposalId, Result]] = []
    ended: list[tuple[int, EndedRun]] = []
    touched: list[frozenset[str]] = []
    judged: list[tuple[int, DeadlineEvent]] = []
    for proposal in proposals:
        applied = _apply(state, proposal)
        state = applied.state
        results.append((proposal.id, applied.result))
        ended.extend((state.index, one) for one in applied.ended)
        touched.append(applied.touched)
        judged.extend((state.index, one) for one in applied.deadlines)
    return Batch(state, results, ended, frozenset(chain.from_iterable(touched)), judged)


def _apply(state: State, proposal: Proposal) -> Applied:
    """Apply a proposal whose fields are known to have the declared types."""
    one = proposal.id
    if not windows.known(state.windows, len(state.members), one.proposer, member=one.proposer in state.members):
        unknown = refused("no-such-member", f"{one.proposer!r} is no member, and too many others have proposed")
        return Applied(replace(state, index=state.index + 1), unknown)
    first = windows.forgotten(state.windows, one, state.forgotten) or windows.recall(state.windows, one)
    if first is not None:
        return Applied(replace(state, index=state.index + 1), first)
    draft = Draft(state)
    result = _handle(draft, proposal.entry, state)
    remembered = windows.remember(state.windows, one, result)
    if not result.ok:
        return Applied(replace(state, index=state.index + 1, windows=remembered), result)
    if len(draft.members) < len(state.members):
        remembered, draft.forgotten = windows.forget(remembered, draft.members, state.forgotten)
    touched = draft.touched | draft.retimed if draft.retimed else draft.touched
    effects = tuple(draft.ended), frozenset(touched), tuple(draft.deadlines)
    return Applied(draft.state(remembered), result, *effects)


def _handle(draft: Draft, entry: Entry | Unreadable, before: State) -> Result:
    if isinstance(entry, Unreadable):
        return refused("invalid", entry.why)
    if entry.at_us > LATEST_AT_US:
        return refused("invalid", "stamped beyond the calendar: set the clock of the member that proposed it")
    if not draft.cluster_id and not isinstance(entry, FoundCluster):
        return refused("not-founded", "the cluster has no members yet: its first entry founds it")
    try:
        result = HANDLERS[type(entry)](draft, entry)
        if result.ok:
            carry_fields(draft)
            joins.tell_children(draft, entry.at_us)
            follow_pools(draft, before, entry.at_us)
            follow_calendars(draft, before)
            deadlines.follow(draft, before, entry.at_us)
            note_facts(draft, before, entry.at_us)
        return result
    except (MemoryError, RecursionError):
        # Only this process is affected: to continue would leave this member with a different state.
        raise
    except Exception as error:  # noqa: BLE001 - the last line of defence: see above
        return refused("fault", f"{type(entry).__name__} failed ({error!r}): report this, with the entry")
