"""What members tell one another of their bootstraps."""

import asyncio

from node.history.bootstrap_board import STALE_S, BootstrapBoard
from node.peer.bootstrap import Bootstrap, begin, fed_by, finished_bootstrap, wait_because, with_gaps, with_portion
from node.peer.portions import Gap, Portion
from node.peer.protocol import PeerAway
from node.state.members import MarkDown
from tests.unit.node.loop import Naps, serving, until
from tests.unit.node.state.given import NOW_US, cluster

OF_B = begin("b", [Gap(0, 10), Gap(20, 30)], NOW_US)


def test_a_bootstrap_counts_indexes_and_runs() -> None:
    going = with_portion(fed_by(OF_B, "a"), Portion(0, 4, ((3, b""), (4, b""))), 0.5)
    going = with_portion(fed_by(going, "c"), Portion(4, 10, ((9, b""),)), 1.0)
    assert (going.fed, going.runs, going.runs_per_s) == ((("a", 2), ("c", 1)), 3, 2.0)
    assert (going.indexes, going.indexes_total, going.index, going.missing) == (10, 20, 10, 10)
    waiting = wait_because(with_gaps(going, [Gap(20, 25)]), "no other member is up")
    assert (waiting.feeder, waiting.waiting, waiting.missing) == (None, "no other member is up", 5)
    assert fed_by(waiting, "a").fed == going.fed, "the same feeder again is not another one"
    assert fed_by(waiting, "a").waiting is None
    over = finished_bootstrap(fed_by(waiting, "d"), NOW_US + 1)
    assert (over.fed, over.missing, over.finished_us) == (going.fed, 0, NOW_US + 1)
    assert OF_B.runs_per_s == 0.0


def test_what_was_heard_is_shown_until_it_is_stale_or_its_member_is_gone() -> None:
    now_s = 50.0
    world = cluster("a", "b", "c")
    board = BootstrapBoard("a", lambda: now_s)
    board.hear(OF_B)
    board.hear(begin("stranger", [], NOW_US))
    board.hear(begin("a", [], NOW_US))
    assert board.known(world.state) == {"b": OF_B}
    now_s += STALE_S
    assert board.known(world.state) == {}
    board.hear(OF_B)
    world.must(MarkDown(NOW_US, "b", 1, "stopped", 0))
    assert board.known(world.state) == {}, "a member that is down fetches nothing"
    over = finished_bootstrap(OF_B, NOW_US)
    board.hear(over)
    now_s += 10 * STALE_S
    assert board.known(world.state) == {"b": over}, "the end stays known"
    own = begin("a", [Gap(0, 1)], NOW_US)
    board.publish(own)
    assert board.known(world.state) == {"b": over, "a": own}


def test_the_latest_is_told_to_those_that_are_not_down_and_the_end_always() -> None:
    world = cluster("a", "b", "c", "d")
    world.must(MarkDown(NOW_US, "d", 1, "stopped", 0))
    told: list[tuple[str, Bootstrap]] = []
    naps = Naps(held=True)
    board = BootstrapBoard("a")

    class Listeners:
        async def tell_bootstrap(self, member: str, bootstrap: Bootstrap, timeout_s: float, /) -> None:
            told.append((member, bootstrap))
            if member == "b":
                raise PeerAway("b", "it answered 404")

    async def scenario() -> None:
        service = asyncio.create_task(board.announce(Listeners(), lambda: world.state, naps))
        states = [begin("a", [Gap(0, size)], NOW_US) for size in range(1, 5)]
        board.publish(states[0])
        await until(lambda: naps.asked)
        for state in states[1:]:
            board.publish(state)
        naps.wake()
        await until(lambda: len(naps.asked) == 2)
        naps.wake()
        await asyncio.sleep(0)
        assert sorted(told[:2]) == [("b", states[0]), ("c", states[0])]
        assert sorted(told[2:]) == [("b", states[3]), ("c", states[3])]
        assert not service.done()
        service.cancel()

    serving(scenario())
