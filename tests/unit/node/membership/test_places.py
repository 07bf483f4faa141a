"""A member tells how many attempts it runs at once: after each join, and again until the state has it."""

import asyncio

from node.membership.places import PlacesTeller
from node.raft.errors import NoQuorum
from node.state.entries import Entry
from node.state.members import TakeLead
from node.state.places import Places
from node.state.value import RULES, Result
from tests.unit.node.loop import Naps, serving, turns, until
from tests.unit.node.membership.fake_member import FakeMember
from tests.unit.node.state.given import NOW_US, cluster

PLACES = Places(4, ())


def test_places_are_told_after_each_join_until_the_state_has_them_and_never_to_an_earlier_version() -> None:
    async def scenario() -> None:
        history, said, trouble = cluster("a", "b"), list[Entry](), [NoQuorum("none")]

        async def propose(entry: Entry, _timeout_s: float) -> Result:
            said.append(entry)
            if trouble:
                raise trouble.pop()
            return history.do(entry)

        def standing() -> int | None:
            return history.state.members["b"].incarnation

        teller = PlacesTeller(FakeMember("b", lambda: history.state, propose, standing=standing), PLACES, Naps())
        service = asyncio.get_running_loop().create_task(teller.run())
        teller.wake()
        await turns()
        assert said == []
        history.must(TakeLead(NOW_US, "a", 1, RULES))
        teller.wake()
        await until(lambda: history.state.members["b"].places == PLACES)
        assert len(said) == 2
        history.back("b")
        teller.wake()
        await until(lambda: history.state.members["b"].places == PLACES)
        await turns()
        assert len(said) == 3
        service.cancel()

    serving(scenario())
