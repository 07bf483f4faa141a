"""Answers are kept for as long as they cost, and not where members or settings have changed."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace

from node.duty.ownership import Ownership
from node.duty.what_if import Supposition
from node.http.api.what_ifs import KEPT, OLD_S, WhatIfs
from node.state.value import State
from tests.unit.node.duty.test_what_if import HOUR, NOW, cluster, some_rows


class Machine:
    """A clock, and what each computation costs of a core."""

    def __init__(self, cost_s: float) -> None:
        self.now_s = 100.0
        self.cost_s = cost_s
        self.spent_s = 0.0

    def spent(self) -> float:
        self.spent_s += self.cost_s / 3  # read before and after each of two computations
        return self.spent_s


def asking(machine: Machine) -> Callable[..., Awaitable[object]]:
    what_ifs = WhatIfs(lambda: machine.now_s, machine.spent)

    async def ask(state: State, without: str = "node-2", now_us: int = NOW) -> object:
        supposition = Supposition(frozenset({without}))
        return await what_ifs.answer(state, Ownership.of(state), supposition, now_us, HOUR)

    return ask


def states() -> Iterator[State]:
    """States that differ by what is not of members or settings."""
    state = cluster(*some_rows(20))
    while True:
        yield state
        state = replace(state, index=state.index + 1)


def test_a_cheap_answer_is_of_the_present_state() -> None:
    async def asked() -> None:
        ask, of = asking(Machine(0.001)), states()
        first, second = next(of), next(of)
        one = await ask(first)
        assert await ask(first) is one
        assert await ask(second) is not one
        assert await ask(second, now_us=NOW + 3_000_000) is not await ask(second)

    asyncio.run(asked())


def test_a_dear_answer_is_given_again_unless_members_change() -> None:
    async def asked() -> None:
        machine = Machine(1.0)
        ask, of = asking(machine), states()
        one = await ask(next(of))
        later = next(of)
        assert await ask(later) is one
        machine.now_s += OLD_S + 1
        two = await ask(later)
        assert two is not one
        gone = replace(later.members["node-3"], status="down")
        assert await ask(replace(later, index=later.index + 1, members=later.members.set("node-3", gone))) is not two

    asyncio.run(asked())


def test_few_answers_are_kept() -> None:
    async def asked() -> None:
        ask, state = asking(Machine(1.0)), next(states())
        one = await ask(state, "node-1")
        for number in range(KEPT - 1):
            await ask(state, f"other-{number}")
        assert await ask(state, "node-1") is one
        for number in range(KEPT):
            await ask(state, f"more-{number}")
        assert await ask(state, "node-1") is not one

    asyncio.run(asked())
