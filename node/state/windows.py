"""What is remembered of each proposer, so that a proposal takes effect once however often it is sent.

Client sessions, Ongaro 2014, "Consensus: Bridging Theory and Practice", section 6.3: the state machine keeps, for
each client, its serial numbers with their results; a number that it knows is answered with the first result. The
thesis lets each client say which results it needs no more. Here the newest are kept instead, and the number of the
newest that was forgotten: a proposal not newer than that is refused, since it may have been applied.

A member that was removed leaves its window, for what it may still have under way. Of such windows the latest are kept
as well, and of all that were forgotten the greatest session: who has no window, and a session not greater than that,
may be one of them.
"""

from collections.abc import Container
from typing import Final

from immutables import Map

from node.state.entries import ProposalId
from node.state.value import Result, Window

KEPT: Final = 512
"""The results that are remembered at least, unless they are heavy."""

SLACK: Final = 128
"""So many more may gather before they are cut back to `KEPT`, so that sorting them is paid by many proposals."""

HEAVY: Final = 100_000
"""The lines that the results of one proposer may hold together: those of 100 lists of 1,000 tasks."""

STRANGERS: Final = 64
"""The proposers besides the members that may have a window: removed members, and whoever else is heard."""

STALE: Final = "this proposal is older than what is remembered: it may have been applied. Read, then propose anew."


def recall(windows: Map[str, Window], proposal: ProposalId) -> Result | None:
    """What a proposal is to be answered without being applied: its first result, or "stale"; None: apply it."""
    window = windows.get(proposal.proposer)
    if window is None or proposal.session > window.session:
        return None if proposal.sequence > 0 else Result("stale", detail=STALE)
    if proposal.session < window.session:
        return Result("stale", {"session": window.session}, STALE)
    if proposal.sequence <= window.floor:
        return Result("stale", detail=STALE)
    return window.results.get(proposal.sequence)


def forgotten(windows: Map[str, Window], proposal: ProposalId, greatest: int) -> Result | None:
    """What a proposal is to be answered whose proposer's window may have been forgotten; None: it was not.

    `greatest` is the greatest session that was. It is told, so that who comes anew, or is let in again, goes on in a
    later one.
    """
    if proposal.proposer in windows or proposal.session > greatest:
        return None
    return Result("stale", {"session": greatest, "forgotten": True}, STALE)


def forget(windows: Map[str, Window], members: Container[str], greatest: int) -> tuple[Map[str, Window], int]:
    """The windows with `STRANGERS` of others than `members` at most, and the greatest session forgotten so far.

    The smallest sessions go, since they are the oldest: a session is named by the time of a start.
    """
    strangers = sorted((window.session, proposer) for proposer, window in windows.items() if proposer not in members)
    left = windows.mutate()
    for session, proposer in strangers[: max(0, len(strangers) - STRANGERS)]:
        del left[proposer]
        greatest = max(greatest, session)
    return left.finish(), greatest


def remember(windows: Map[str, Window], proposal: ProposalId, result: Result) -> Map[str, Window]:
    """The windows with `result` in them. A greater session of the proposer starts its window anew."""
    window = windows.get(proposal.proposer)
    if window is None or proposal.session > window.session:
        window = Window(proposal.session)
    results = window.results.set(proposal.sequence, result)
    weight = window.weight + _weight(result)
    floor = window.floor
    if len(results) > KEPT + SLACK or weight > HEAVY:
        results, weight, floor = _cut(results, weight)
    return windows.set(proposal.proposer, Window(proposal.session, floor, results, weight))


def known(windows: Map[str, Window], members: int, proposer: str, *, member: bool) -> bool:
    """Whether there is a window for the proposer, or may be one: always for members, for others while few have."""
    return member or proposer in windows or len(windows) < members + STRANGERS


def weigh(results: Map[int, Result]) -> int:
    """The weight of a window with these results."""
    return sum(_weight(result) for result in results.values())


def _weight(result: Result) -> int:
    lines = result.value.get("tasks")
    return 1 + (len(lines) if isinstance(lines, list) else 0)


def _cut(results: Map[int, Result], weight: int) -> tuple[Map[int, Result], int, int]:
    """Forget the oldest: all but `KEPT`, and more while what is left weighs more than half of `HEAVY`."""
    oldest_first = sorted(results)
    floor = 0
    left = results.mutate()
    for place, sequence in enumerate(oldest_first):
        if len(oldest_first) - place <= KEPT and weight <= HEAVY // 2:
            break
        weight -= _weight(left.pop(sequence))
        floor = sequence
    return left.finish(), weight, floor
