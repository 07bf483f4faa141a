"""Which fault comes when: all kinds are shuffled like cards and dealt, one or two at once; a seed says it all."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from bench.chaos.faults import machines, network, orders, processes
from bench.chaos.faults.fault import Draw, Fault

IN_COMPANY: Final = 0.3
"""So often two come at once, where the card allows it."""

ONE_MORE_S: Final = 3.0
"""The second comes so long after the first at the most."""


@dataclass(frozen=True)
class Card:
    """A kind of fault. `needs` what the cluster must have; `alone`: it strikes too many to be met by another;
    `leader`: it strikes the leader, whoever that is.
    """

    draw: Callable[[Draw], Fault]
    needs: str = ""
    alone: bool = False
    leader: bool = False


CARDS: Final = (
    Card(processes.kill_one),
    Card(processes.kill_leader, leader=True),
    Card(processes.kill_two, alone=True),
    Card(processes.kill_all, alone=True),
    Card(processes.kill_in_turn, alone=True),
    Card(processes.stop_1),
    Card(processes.stop_10),
    Card(processes.stop_60, alone=True),
    Card(processes.stop_two, alone=True),
    Card(processes.stop_again),
    Card(processes.stop_dead),
    Card(processes.kill_and_stop, alone=True),
    Card(orders.restart_one),
    Card(orders.restart_all, alone=True),
    Card(orders.rolling, alone=True),
    Card(orders.drain),
    Card(orders.drain_and_kill, alone=True),
    Card(orders.lease),
    Card(network.cut_one, needs="spaces"),
    Card(network.cut_leader, needs="spaces", leader=True),
    Card(network.cut_two, needs="spaces", alone=True),
    Card(network.deaf, needs="spaces"),
    Card(network.dumb, needs="spaces"),
    Card(network.loss, needs="spaces"),
    Card(network.delay, needs="spaces"),
    Card(network.freeze, needs="spaces"),
    Card(machines.clock_ahead, needs="clocks"),
    Card(machines.clock_back, needs="clocks"),
    Card(machines.full_disk, needs="small disk", alone=True),
    Card(machines.hung_disk, needs="small disk", alone=True),
    Card(machines.damaged_files, alone=True),
)


@dataclass(frozen=True)
class Planned:
    """A fault of a round, and how long after the round's begin it strikes."""

    fault: Fault
    after_s: float


class Deck:
    """The faults of each round. `only`: functions of `faults` by name; empty: all that `has` allows."""

    def __init__(self, seed: int, has: Sequence[str], only: Sequence[str] = ()) -> None:
        self._seed = seed
        self.cards = [
            card for card in CARDS if (not card.needs or card.needs in has) and (not only or card.draw.__name__ in only)
        ]

    def deal(self, number: int, names: Sequence[str], leader: str) -> list[Planned]:
        """The faults of round `number`, from 0 on. The same for the same seed, names and leader."""
        rng = random.Random(f"{self._seed}: round {number}")
        card = self._card(number)
        first = card.draw(Draw(rng, tuple(names), leader))
        planned = [Planned(first, 0.0)]
        free = tuple(name for name in names if name not in first.victims)
        # Who leads when the first one's victim was the leader is not known yet.
        company = [
            other
            for other in self.cards
            if other is not card and not other.alone and (leader in free or not other.leader)
        ]
        if not card.alone and company and len(names) > 3 and rng.random() < IN_COMPANY:
            second = rng.choice(company).draw(Draw(rng, free, leader))
            planned.append(Planned(second, rng.uniform(0.0, ONE_MORE_S)))
        return planned

    def _card(self, number: int) -> Card:
        times, place = divmod(number, len(self.cards))
        order = list(self.cards)
        random.Random(f"{self._seed}: deck {times}").shuffle(order)
        return order[place]
