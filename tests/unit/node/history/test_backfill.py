"""Filling the gaps in a member's history from the others: DESIGN.md, section 5."""

import asyncio
import sqlite3
from collections.abc import Sequence

from node.history.backfill import ROUND_S, ROUND_S_MAX, Backfill
from node.peer.portions import Gap, Portion, first_held, left_of
from node.peer.protocol import PeerAway
from tests.unit.node.loop import Naps, serving
from tests.unit.node.state.given import cluster


class Holes:
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
        left = left_of(gap, portion)
        self.left.remove(gap)
        self.left += left
        self.filled.append(portion.through)


class Others:
    """What the other members answer, by their names; one that is not there is away."""

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
    """What the other members miss, by their names, of a history of twenty entries."""

    def __init__(self, **gaps: list[Gap]) -> None:
        self.gaps = gaps

    async def history(self, member: str, gap: Gap, /) -> Portion | None:
        held = first_held(gap, 20, self.gaps[member])
        return None if held is None else Portion(*held, ())


def portion(after: int, through: int) -> Portion:
    return Portion(after, through, ())


def rounds(holes: Holes, others: Others | Missing, count: int = 1) -> list[float]:
    """Serve so many rounds: the pauses after them."""
    naps = Naps()

    async def scenario() -> None:
        over = asyncio.Event()

        async def sleep(seconds: float) -> None:
            await naps(seconds)
            if len(naps.asked) >= count:
                over.set()
                await asyncio.Event().wait()

        state = cluster("a", "b", "c").state
        service = asyncio.create_task(Backfill("a", holes, others, lambda: state, sleep).run())
        done, _ = await asyncio.wait((service, asyncio.ensure_future(over.wait())), return_when="FIRST_COMPLETED")
        assert service not in done, service.exception()
        service.cancel()

    serving(scenario())
    return naps.asked


def test_a_gap_is_filled_in_portions_by_who_has_it_all() -> None:
    holes, others = Holes(Gap(0, 9)), Others(b=[portion(0, 4), portion(4, 9)])
    rounds(holes, others, 2)
    assert holes.filled == [4, 9]
    assert "a" not in others.asked


def test_who_has_a_gap_there_itself_or_is_away_is_passed_over() -> None:
    holes = Holes(Gap(0, 9))
    rounds(holes, Others(b=[None], c=[portion(0, 9)]))
    assert holes.left == []


def test_what_each_of_the_others_has_is_taken_whoever_is_asked_first() -> None:
    for _ in range(10):  # they are asked in any order
        holes = Holes(Gap(0, 20))
        rounds(holes, Missing(b=[Gap(0, 5), Gap(9, 12)], c=[Gap(0, 3), Gap(5, 7), Gap(14, 20)]))
        assert holes.left == [Gap(0, 3)], "nobody has that"


def test_one_that_answers_with_nothing_is_not_asked_on_and_on() -> None:
    holes, others = Holes(Gap(5, 9)), Others(b=[portion(5, 5)], c=[portion(5, 5)])
    rounds(holes, others)
    assert sorted(others.asked) == ["b", "c"]
    assert holes.filled == []


def test_what_nobody_has_is_asked_for_ever_more_seldom() -> None:
    pauses = rounds(Holes(Gap(0, 9)), Others(b=[None], c=[None]), 12)
    assert pauses[:3] == [ROUND_S, 2 * ROUND_S, 4 * ROUND_S]
    assert pauses[-1] == ROUND_S_MAX


def test_a_disk_that_fails_does_not_end_the_node() -> None:
    holes = Holes(Gap(0, 9))
    holes.broken = [sqlite3.OperationalError("disk I/O error")]
    rounds(holes, Others(b=[portion(0, 9)], c=[portion(0, 9)]), 2)
    assert holes.left == []
