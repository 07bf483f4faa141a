"""Filling the gaps in a member's history from the other members."""

import asyncio
import sqlite3
from collections.abc import Sequence

from node.history.backfill import ROUND_S, ROUND_S_MAX, Backfill
from node.peer.portions import Gap, Portion, first_held, remaining
from node.peer.protocol import PeerAway
from tests.unit.node.loop import Naps, serving
from tests.unit.node.state.given import cluster


class Gaps:
    """A history with gaps."""

    def __init__(self, gap: Gap) -> None:
        self.left = [gap]
        self.filled: list[int] = []
        self.broken: list[Exception] = []

    def gaps(self) -> Sequence[Gap]:
        if self.broken:
            raise self.broken.pop(0)
        return tuple(self.left)

    def fill(self, gap: Gap, portion: Portion) -> None:
        left = remaining(gap, portion)
        self.left.remove(gap)
        self.left += left
        self.filled.append(portion.through)


class Sources:
    """The answers of the other members, by name; a member without answers is unreachable."""

    def __init__(self, **answers: list[Portion | None]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def history(self, member: str, gap: Gap, /) -> Portion | None:
        self.asked.append(member)
        if member not in self.answers:
            raise PeerAway(member, "silent")
        answers = self.answers[member]
        return answers.pop(0) if len(answers) > 1 else answers[0]


class Missing:
    """The gaps of the other members, by name, in a history of twenty entries."""

    def __init__(self, **gaps: list[Gap]) -> None:
        self.gaps = gaps

    async def history(self, member: str, gap: Gap, /) -> Portion | None:
        held = first_held(gap, 20, self.gaps[member])
        return None if held is None else Portion(*held, ())


def portion(after: int, through: int) -> Portion:
    return Portion(after, through, ())


def rounds(gaps: Gaps, sources: Sources | Missing, count: int = 1) -> list[float]:
    """Run `count` rounds. Returns the pauses after them."""
    naps = Naps()

    async def scenario() -> None:
        over = asyncio.Event()

        async def sleep(seconds: float) -> None:
            await naps(seconds)
            if len(naps.asked) >= count:
                over.set()
                await asyncio.Event().wait()

        state = cluster("a", "b", "c").state
        service = asyncio.create_task(Backfill("a", gaps, sources, lambda: state, sleep).run())
        done, _ = await asyncio.wait((service, asyncio.ensure_future(over.wait())), return_when="FIRST_COMPLETED")
        assert service not in done, service.exception()
        service.cancel()

    serving(scenario())
    return naps.asked


def test_a_gap_is_filled_in_portions_from_a_member_that_has_it() -> None:
    gaps, sources = Gaps(Gap(0, 9)), Sources(b=[portion(0, 4), portion(4, 9)])
    rounds(gaps, sources, 2)
    assert gaps.filled == [4, 9]
    assert "a" not in sources.asked


def test_a_member_with_the_same_gap_or_unreachable_is_passed_over() -> None:
    gaps = Gaps(Gap(0, 9))
    rounds(gaps, Sources(b=[None], c=[portion(0, 9)]))
    assert gaps.left == []


def test_all_that_any_member_has_is_fetched_in_any_order() -> None:
    for _ in range(10):  # they are asked in any order
        gaps = Gaps(Gap(0, 20))
        rounds(gaps, Missing(b=[Gap(0, 5), Gap(9, 12)], c=[Gap(0, 3), Gap(5, 7), Gap(14, 20)]))
        assert gaps.left == [Gap(0, 3)], "no member has that"


def test_a_member_that_answers_with_nothing_is_not_asked_again_at_once() -> None:
    gaps, sources = Gaps(Gap(5, 9)), Sources(b=[portion(5, 5)], c=[portion(5, 5)])
    rounds(gaps, sources)
    assert sorted(sources.asked) == ["b", "c"]
    assert gaps.filled == []


def test_rounds_get_rarer_while_no_member_has_the_rest() -> None:
    pauses = rounds(Gaps(Gap(0, 9)), Sources(b=[None], c=[None]), 12)
    assert pauses[:3] == [ROUND_S, 2 * ROUND_S, 4 * ROUND_S]
    assert pauses[-1] == ROUND_S_MAX


def test_a_failing_disk_does_not_end_the_node() -> None:
    gaps = Gaps(Gap(0, 9))
    gaps.broken = [sqlite3.OperationalError("disk I/O error")]
    rounds(gaps, Sources(b=[portion(0, 9)], c=[portion(0, 9)]), 2)
    assert gaps.left == []
