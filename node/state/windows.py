"""The windows of proposers, by which a proposal takes effect once however often it is sent.

They are the client sessions of Ongaro 2014, "Consensus: Bridging Theory and Practice", section 6.3: for each client the
state machine keeps serial numbers with their results, and answers a known number with the first result. In the thesis,
the client says which results it no longer needs. Here the newest results are kept, and the newest forgotten number. A
proposal with that number or a lower one is refused, since it may have been applied.

The window of a removed member is kept, because proposals of it may still be in flight. Only the latest such windows
are kept, and the greatest session of all forgotten windows. If a proposer without a window has no greater session than
that, its window may have been forgotten.
"""

from collections.abc import Container
from typing import Final

from immutables import Map

from node.state.entries import ProposalId
from node.state.value import Result, Window

KEPT: Final = 512
"""The least number of results that are kept, unless their weight exceeds `HEAVY`."""

SLACK: Final = 128
"""How many more results may gather before they are cut to `KEPT`, so that sorting is amortized over many proposals."""

HEAVY: Final = 100_000
"""The most lines that the results of one proposer may have in total: as many as 100 lists of 1,000 tasks have."""

OTHERS_MAX: Final = 64
"""How many proposers that are not members may have a window. They are mostly removed members."""

STALE: Final = "this proposal is older than what is remembered: it may have been applied. Read, then propose anew."


def recall(windows: Map[str, Window], proposal: ProposalId) -> Result | None:
    """Return the answer to a proposal that must not be applied: its first result, or "stale". None: apply it."""
    window = windows.get(proposal.proposer)
    if window is None or proposal.session > window.session:
        return None if proposal.sequence > 0 else Result("stale", detail=STALE)
    if proposal.session < window.session:
        return Result("stale", {"session": window.session}, STALE)
    if proposal.sequence <= window.floor:
        return Result("stale", detail=STALE)
    return window.results.get(proposal.sequence)


def forgotten(windows: Map[str, Window], proposal: ProposalId, greatest: int) -> Result | None:
    """Return the answer to a proposal whose proposer's window may have been forgotten; None: it was not forgotten.

    `greatest` is the greatest forgotten session. The answer names it, so that a member that is added again continues in
    a later session.
    """
    if proposal.proposer in windows or proposal.session > greatest:
        return None
    return Result("stale", {"session": greatest, "forgotten": True}, STALE)


def forget(windows: Map[str, Window], members: Container[str], greatest: int) -> tuple[Map[str, Window], int]:
    """Forget windows until at most `OTHERS_MAX` belong to proposers that are not `members`.

    Returns the remaining windows, and the greatest session forgotten so far. The windows with the smallest sessions go
    first. They are the oldest, because a session is the time of a start.
    """
    others = sorted((window.session, proposer) for proposer, window in windows.items() if proposer not in members)
    left = windows.mutate()
    for session, proposer in others[: max(0, len(others) - OTHERS_MAX)]:
        del left[proposer]
        greatest = max(greatest, session)
    return left.finish(), greatest


def remember(windows: Map[str, Window], proposal: ProposalId, result: Result) -> Map[str, Window]:
    """Return the windows with `result` added. A greater session of the proposer starts a new window."""
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
    """Whether the proposer has a window or may get one: a member always, others up to `OTHERS_MAX`."""
    return member or proposer in windows or len(windows) < members + OTHERS_MAX


def weigh(results: Map[int, Result]) -> int:
    """Return the weight of a window with these results."""
    return sum(_weight(result) for result in results.values())


def _weight(result: Result) -> int:
    lines = result.value.get("tasks")
    return 1 + (len(lines) if isinstance(lines, list) else 0)


def _cut(results: Map[int, Result], weight: int) -> tuple[Map[int, Result], int, int]:
    """Drop the oldest results: all but `KEPT`, and further ones while the rest weighs more than half of `HEAVY`."""
    oldest_first = sorted(results)
    floor = 0
    left = results.mutate()
    for place, sequence in enumerate(oldest_first):
        if len(oldest_first) - place <= KEPT and weight <= HEAVY // 2:
            break
        weight -= _weight(left.pop(sequence))
        floor = sequence
    return left.finish(), weight, floor
