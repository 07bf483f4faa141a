"""Filling the gaps in a member's history: from one member at a time, in the order of its bootstrap's succession."""

import asyncio
import itertools
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Sequence

import pytest

from node.history.bootstrap_board import BootstrapBoard
from node.history.feeders import feeders
from node.history.gap_filler import REST_S_MAX, ROUND_S, ROUND_S_MAX, GapFiller
from node.peer.bootstrap import Bootstrap
from node.peer.portions import Gap, Portion, first_held, remaining
from node.peer.protocol import PeerAway
from node.state.members import Drain, MarkDown
from tests.unit.node.loop import serving
from tests.unit.node.state.given import NOW_US, History, cluster

ME, LENGTH = "a", 20
OWNER, SECOND, THIRD = feeders(cluster("a", "b", "c", "d").state.seats(), ME)
"""Who feeds `ME`, in order."""


class Gaps:
    """A history with gaps. `broken` are errors of the next reads."""

    def __init__(self, *gaps: Gap) -> None:
        self.left = list(gaps)
        self.runs: list[int] = []
        self.broken: list[Exception] = []

    def gaps(self) -> Sequence[Gap]:
        if self.broken:
            raise self.broken.pop(0)
        return tuple(sorted(self.left))

    def fill(self, gap: Gap, portion: Portion) -> None:
        left = remaining(gap, portion)
        self.left.remove(gap)
        self.left += left
        self.runs += [entry for entry, _ in portion.runs]


class Others:
    """The other members of a cluster of `LENGTH` entries, each of which ended a run; each sends two in a portion.

    `gaps` are what a member lacks itself. Those in `away` do not answer. `on_request` is called before each answer.
    """

    def __init__(self, **gaps: list[Gap]) -> None:
        self.gaps = gaps
        self.away: set[str] = set()
        self.asked: list[tuple[str, Gap]] = []
        self.on_request: Callable[[str, Gap], None] = lambda _member, _gap: None

    async def history(self, member: str, gap: Gap, /) -> Portion | None:
        self.asked.append((member, gap))
        self.on_request(member, gap)
        if member in self.away:
            raise PeerAway(member, "refused")
        held = first_held(gap, LENGTH, self.gaps.get(member, []))
        if held is None:
            return None
        through = min(held.through, held.after + 2)
        return Portion(held.after, through, tuple((entry, b"run") for entry in range(held.after + 1, through + 1)))

    def members(self) -> list[str]:
        """Those that were asked, in order, each once for successive requests."""
        return [name for number, (name, _) in enumerate(self.asked) if number == 0 or self.asked[number - 1][0] != name]


class Given:
    """The gap filler of `ME` in a cluster of four, and time that passes when it waits."""

    def __init__(self, gaps: Gaps, others: Others) -> None:
        self.gaps, self.others = gaps, others
        self.world: History = cluster("a", "b", "c", "d")
        self.board = BootstrapBoard(ME)
        self.published: list[Bootstrap] = []
        self.rounds: list[float] = []
        self.rests: list[float] = []
        self.at_s = 1000.0
        self.on_round: Callable[[int], None] = lambda _number: None
        self.rest_of: Callable[[float], Awaitable[None]] = lambda _seconds: asyncio.sleep(0)

    # -- `FillingTime`

    def now_us(self) -> int:
        return NOW_US

    def now_s(self) -> float:
        return self.at_s

    async def round(self, seconds: float) -> None:
        self.rounds.append(seconds)
        self.at_s += seconds
        self.on_round(len(self.rounds))
        if len(self.rounds) >= self._most:
            self._over.set()
            await asyncio.Event().wait()
        await asyncio.sleep(0)

    async def rest(self, seconds: float) -> None:
        self.rests.append(seconds)
        await self.rest_of(seconds)

    # -- verbs

    def run(self, rounds: int = 1) -> Bootstrap:
        """Run so many rounds. Returns the bootstrap after them."""
        self._most = len(self.rounds) + rounds

        async def scenario() -> None:
            self._over = asyncio.Event()
            filler = GapFiller(ME, self.gaps, self.others, lambda: self.world.state, self.board, self)
            service = asyncio.create_task(filler.run())
            over = asyncio.create_task(self._over.wait())
            done, _ = await asyncio.wait((service, over), return_when="FIRST_COMPLETED")
            assert service not in done, service.exception()
            service.cancel()

        serving(scenario())
        assert self.board.own is not None
        return self.board.own

    def mark_down(self, *members: str) -> None:
        """Mark members down."""
        for member in members:
            incarnation = self.world.state.members[member].incarnation
            self.world.must(MarkDown(NOW_US, member, incarnation, "stopped", 0))


def given(*missing: Gap, **gaps: list[Gap]) -> Given:
    """`ME` lacks this, and other members lack `gaps`."""
    return Given(Gaps(*(missing or (Gap(0, LENGTH),))), Others(**gaps))


def test_all_comes_from_the_owner_of_the_bootstrap() -> None:
    case = given()
    own = case.run()
    assert case.others.members() == [OWNER]
    assert case.gaps.runs == list(range(1, LENGTH + 1)), "each once, in order"
    assert (own.fed, own.indexes, own.indexes_total, own.index) == (((OWNER, LENGTH),), LENGTH, LENGTH, LENGTH)
    assert (own.finished_us, own.feeder, own.missing) == (NOW_US, None, 0)


def test_the_next_in_succession_goes_on_where_the_feeder_died(caplog: pytest.LogCaptureFixture) -> None:
    case = given()

    def die(member: str, gap: Gap) -> None:
        if gap.after >= 8:
            case.others.away.add(OWNER)

    case.others.on_request = die
    with caplog.at_level(logging.INFO, "rota.history"):
        own = case.run()
    assert case.others.members() == [OWNER, SECOND]
    assert case.others.asked[-6] == (SECOND, Gap(8, LENGTH))
    assert case.gaps.runs == list(range(1, LENGTH + 1)), "none is missing, and none was fetched twice"
    assert own.fed == ((OWNER, 8), (SECOND, 12))
    begun, changed, done = (record.getMessage() for record in caplog.records)
    assert begun == f"bootstrap/a: fetching the finished runs of 20 log indexes, through index 20, from {OWNER}"
    assert changed == f"bootstrap/a: {OWNER} does not answer: refused; {SECOND} goes on after index 8"
    assert done.startswith("bootstrap/a: done, nothing is missing any more: 20 finished runs in ")
    assert done.endswith(f"8 from {OWNER}, 12 from {SECOND}")


def test_a_feeder_that_is_marked_down_while_it_does_not_answer_is_left_at_once() -> None:
    case = given()
    hung = asyncio.Event()
    answer = case.others.history

    async def hang(member: str, gap: Gap, /) -> Portion | None:
        if member == OWNER:
            case.mark_down(OWNER)
            await hung.wait()
        return await answer(member, gap)

    case.others.history = hang  # type: ignore[method-assign]
    assert case.run().fed == ((SECOND, LENGTH),)


def test_a_member_that_is_down_is_not_asked() -> None:
    case = given()
    case.mark_down(OWNER, SECOND)
    case.run()
    assert case.others.members() == [THIRD]


def test_a_draining_member_is_asked_last() -> None:
    case = given()
    case.world.must(Drain(NOW_US, OWNER, on=True))
    case.others.gaps = {SECOND: [Gap(0, 9)], THIRD: [Gap(0, 9)]}
    case.run()
    assert case.others.members() == [SECOND, THIRD, OWNER]


def test_a_feeder_stays_though_the_owner_is_back() -> None:
    case = given()
    case.mark_down(OWNER)

    def come_back(_member: str, gap: Gap) -> None:
        if gap.after == 4:
            case.world.back(OWNER)

    case.others.on_request = come_back
    case.run()
    assert case.others.members() == [SECOND]


def test_what_a_feeder_lacks_itself_is_asked_of_the_next_once_it_has_sent_the_rest() -> None:
    case = given(**{OWNER: [Gap(0, 4), Gap(9, 12)], SECOND: [Gap(2, 4)]})
    own = case.run()
    assert case.others.members() == [OWNER, SECOND, THIRD]
    assert sorted(case.gaps.runs) == list(range(1, LENGTH + 1))
    assert own.fed == ((OWNER, 13), (SECOND, 5), (THIRD, 2))


def test_several_gaps_come_from_one_feeder() -> None:
    case = given(Gap(0, 3), Gap(7, 9), Gap(11, LENGTH))
    own = case.run()
    assert case.others.members() == [OWNER]
    assert (own.indexes, own.indexes_total, own.runs) == (14, 14, 14)


def test_feeders_without_any_of_it_are_named(caplog: pytest.LogCaptureFixture) -> None:
    lacking = [Gap(0, LENGTH)]
    case = given(b=lacking, c=lacking, d=lacking)
    with caplog.at_level(logging.WARNING, "rota.history"):
        own = case.run(3)
    why = "; ".join(f"{feeder} has no more of them" for feeder in (OWNER, SECOND, THIRD))
    assert own.waiting == f"the finished runs of 20 log indexes, through index 20, are missing: {why}"
    assert (own.feeder, own.runs, own.missing, own.finished_us) == (None, 0, LENGTH, None)
    assert len(caplog.records) == 1, "it is said once"


def test_without_another_member_it_says_so_and_begins_as_soon_as_one_is_up() -> None:
    case = given()
    case.mark_down(OWNER, SECOND, THIRD)
    said: set[str | None] = set()

    def come_back(number: int) -> None:
        assert case.board.own is not None
        said.add(case.board.own.waiting)
        if number == 40:
            assert case.others.asked == []
            case.world.back(SECOND)

    case.on_round = come_back
    assert case.run(41).fed == ((SECOND, LENGTH),)
    lacking = "the finished runs of 20 log indexes, through index 20, are missing"
    assert said == {f"{lacking}: no other member is up", None}


def test_members_without_the_rest_are_asked_ever_less_often_until_another_is_up() -> None:
    case = given(Gap(0, 4), **{OWNER: [Gap(0, 4)], SECOND: [Gap(0, 4)]})
    case.mark_down(THIRD)
    times: list[float] = []

    def note(member: str, _gap: Gap) -> None:
        if member == OWNER:
            times.append(case.at_s)

    case.others.on_request = note

    def come_back(number: int) -> None:
        if number == 300:
            case.world.back(THIRD)

    case.on_round = come_back
    own = case.run(301)
    pauses = [after - before for before, after in itertools.pairwise(times)]
    assert pauses[:4] == [ROUND_S, 2 * ROUND_S, 4 * ROUND_S, 8 * ROUND_S]
    assert max(pauses) == ROUND_S_MAX
    assert own.fed == ((THIRD, 4),)


def test_an_answer_that_is_no_portion_of_the_gap_is_that_of_a_member_that_is_away() -> None:
    case = given()
    answer = case.others.history

    async def empty(member: str, gap: Gap, /) -> Portion | None:
        return Portion(gap.after, gap.after, ()) if member == OWNER else await answer(member, gap)

    case.others.history = empty  # type: ignore[method-assign]
    assert case.run().fed == ((SECOND, LENGTH),)


def test_a_failing_disk_does_not_end_the_node() -> None:
    case = given()
    case.gaps.broken = [sqlite3.OperationalError("disk I/O error")]
    assert case.run(2).finished_us is not None


def test_damage_is_left_to_the_history_to_report(caplog: pytest.LogCaptureFixture) -> None:
    for code, told in ((sqlite3.SQLITE_CORRUPT, 0), (sqlite3.SQLITE_IOERR, 1)):
        error = sqlite3.DatabaseError("broken")
        error.sqlite_errorcode = code
        case = given()
        case.gaps.broken = [error]
        caplog.clear()
        case.run(2)
        assert caplog.text.count("finished runs cannot be fetched: broken; retrying") == told


def test_gaps_that_were_given_up_end_the_bootstrap() -> None:
    lacking = [Gap(0, LENGTH)]
    case = given(b=lacking, c=lacking, d=lacking)
    case.on_round = lambda _number: case.gaps.left.clear()
    own = case.run(2)
    assert (own.finished_us, own.waiting, own.runs) == (NOW_US, None, 0)


def test_a_later_gap_is_another_bootstrap() -> None:
    case = given(Gap(0, 4))
    case.on_round = lambda number: case.gaps.left.extend([Gap(4, 10)] if number == 1 else [])
    own = case.run(2)
    assert (own.runs, own.indexes_total, own.index) == (6, 6, 10)


def test_a_slow_feeder_is_asked_less_often() -> None:
    case = given()

    def take(_member: str, gap: Gap) -> None:
        case.at_s += 0.25 if gap.after < 10 else 8.0

    case.others.on_request = take
    own = case.run()
    assert case.rests == [0.25] * 5 + [REST_S_MAX] * 4, "and no rest after the last"
    assert own.fetching_s == 5 * 0.25 + 5 * 8.0
    assert own.runs_per_s == LENGTH / own.fetching_s
