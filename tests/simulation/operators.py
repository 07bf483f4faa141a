"""The operators of a cluster: members drain, leave, are replaced and come, while it is in trouble."""

from collections.abc import Awaitable, Callable
from typing import Final

from node.raft.errors import RaftError
from node.state.entries import Entry
from node.state.members import Drain
from node.state.value import Result
from tests.simulation.cluster import Cluster
from tests.simulation.plan import Fault
from tests.simulation.process import Process, seed_of

GROWN_MAX: Final = 6
LEAST: Final = 3
OPERATOR_S: Final = 1.0
TRIES: Final = 10
FAREWELL_S: Final = 5.0


class Operators:
    """Do what a plan names, and ask again where they get no answer.

    `changing` is the member that is coming or going: one at a time, as operators do it.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.changing: str | None = None
        self._cluster, self._world = cluster, cluster.world
        self._next = len(cluster.names)
        self._healed = False
        self._seen: set[str] = set()

    def heal(self) -> None:
        """Nothing new from now on; what was begun is ended."""
        self._healed = True

    def watch(self) -> None:
        """A node that is no member any more is taken away after a while, however it came to go."""
        members = self._cluster.ledger.state.members
        for name, member in members.items():
            if self._healed and member.drained:
                self.operate(int(self._world.now_s), self._undrained(name))
            if name not in self._cluster.names and self.changing is None:
                self._send_away(name)
        for name in list(self._cluster.names):
            if name in members:
                self._seen.add(name)
            elif name in self._seen:
                self._seen.discard(name)
                self._world.at(self._world.now_s + FAREWELL_S, self._taking_away(name))
        self._world.at(self._world.now_s + OPERATOR_S, self.watch)

    def _send_away(self, name: str) -> None:
        """A late AddMember has added a node that had gone: it is removed once more."""
        running = self._cluster.running
        if running:
            process = running[int(self._world.now_s) % len(running)]
            process.spawn(self._asking(lambda: process.core.membership.changes.remove(name, 4.0)))

    def _taking_away(self, name: str) -> Callable[[], None]:
        def take_away() -> None:
            # A removed member is left there until Raft does not count on it any more.
            if self._cluster.counts_on(name):
                self._world.at(self._world.now_s + OPERATOR_S, take_away)
                return
            self._cluster.remove(name)
            self._cluster.counts["removed"] += 1

        return take_away

    def _undrained(self, name: str) -> Callable[[int], Entry]:
        return lambda at_us: Drain(at_us, name, on=False)

    def drain(self, fault: Fault) -> None:
        """A member gets nothing new."""
        name = self._name(fault.who)
        self.operate(fault.other, lambda at_us: Drain(at_us, name, on=True))

    def undrain(self, fault: Fault) -> None:
        """A member does its share again."""
        self.operate(fault.other, self._undrained(self._name(fault.who)))

    def leave_and_stay(self, fault: Fault) -> None:
        """A member is to be removed, and is not after all."""
        name = self._name(fault.who)
        if self.dismiss(name, fault.other):
            self._world.at(self._world.now_s + 0.3 * fault.for_s, lambda: self.keep(name, fault.other))

    def dismiss(self, name: str, number: int) -> bool:
        """Have a member removed, if one may go."""
        others = [process for process in self._cluster.running if process.me != name]
        if not others or not self._may_go(LEAST + 1):
            return False
        self.changing = name
        self._world.at(self._world.now_s + FAREWELL_S, self._changed)
        process = others[number % len(others)]
        process.spawn(self._asking(lambda: process.core.membership.changes.remove(name, 0.1)))
        return True

    def keep(self, name: str, number: int) -> None:
        """It is not to be removed after all."""
        self.operate(number, self._undrained(name))

    def _changed(self) -> None:
        self.changing = None

    def operate(self, number: int, entry: Callable[[int], Entry]) -> None:
        """Have one of the members propose something."""
        running = self._cluster.running
        if running:
            process = running[number % len(running)]
            process.spawn(self._operating(process, entry))

    async def _operating(self, process: Process, entry: Callable[[int], Entry]) -> None:
        try:
            await process.propose(entry(process.now_us()), 2.0)
        except RaftError:
            self._cluster.counts["client errors"] += 1

    def replace(self, fault: Fault) -> None:
        """A member is removed, and another one takes its slot."""
        self._remove(self._name(fault.who), then=self._join)

    def remove(self, fault: Fault) -> None:
        """A member leaves for good."""
        if self._may_go(LEAST + 1):
            self._remove(self._name(fault.who), then=lambda: None)

    def join(self, _fault: Fault) -> None:
        """A member comes."""
        if len(self._cluster.names) < GROWN_MAX and self.changing is None:
            self._join()

    def grow(self, fault: Fault) -> None:
        """One node or two are started whose list names the members and themselves; no member adds them."""
        cluster = self._cluster
        if self._healed or cluster.waiting:
            return
        new = [f"n{self._next + place}" for place in range(1 + fault.other % 2)]
        self._next += len(new)
        cluster.waiting += new
        for name in new:
            cluster.machine(name, (*cluster.names, *new))
            cluster.start(name)
        cluster.counts["grown by list"] += 1

    @property
    def settled(self) -> bool:
        """Whether no member comes or goes, or gets a new disk: two at once may leave no majority of disks.

        Nor do two members, where one of three has gone and its successor has not come yet, if one of them is lost.
        """
        members = self._cluster.ledger.state.members.values()
        stay = len(members) >= LEAST and not any(member.leaving for member in members)
        return self.changing is None and stay and self._cluster.all_remember

    def _may_go(self, least: int) -> bool:
        """Whether operators may remove a member: there are `least` at least."""
        return self.settled and len(self._cluster.ledger.state.members) >= least

    def _remove(self, name: str, then: Callable[[], None]) -> None:
        if not self._may_go(LEAST):
            return
        self.changing = name
        self._world.tell(f"{name} is to be removed")
        self._removal(name, TRIES, then)

    def _removal(self, name: str, left: int, then: Callable[[], None]) -> None:
        """Ask one member after another to remove it, until it is gone; after `left` tries it is kept."""
        cluster, world = self._cluster, self._world
        if name in cluster.names and cluster.ledger.state.members and name not in cluster.ledger.state.members:
            self.changing = None
            then()
            return
        others = [process for process in cluster.running if process.me != name]
        if not left or self._healed:
            self.changing = None
            self.operate(0, self._undrained(name))
            return
        if others:
            process = others[left % len(others)]
            process.spawn(self._asking(lambda: process.core.membership.changes.remove(name, 4.0)))
        world.at(world.now_s + OPERATOR_S, lambda: self._removal(name, left - 1, then))

    def _join(self) -> None:
        """A new member counts for the majority before it votes: so all others must be able to vote."""
        cluster = self._cluster
        if self._healed:
            return
        if not cluster.all_remember or len(cluster.ledger.state.members) < LEAST - 1:
            self._world.at(self._world.now_s + OPERATOR_S, self._join)
            return
        name = f"n{self._next}"
        self._next += 1
        self.changing = name
        members = tuple(sorted(cluster.ledger.state.members)) or tuple(cluster.names)
        cluster.names.append(name)
        cluster.machine(name, (*members, name))
        cluster.disks[name].cluster_id = cluster.ledger.state.cluster_id  # as ROTA_JOIN has it
        cluster.start(name)
        self._letting_in(name, 0)

    def _letting_in(self, name: str, tries: int) -> None:
        """Ask one member after another, until it is one: what has been asked for could not be taken back."""
        cluster, world = self._cluster, self._world
        if name in cluster.ledger.state.members:
            cluster.counts["let in"] += 1
            self._seen.add(name)  # it may be removed before anybody looks again
            self.changing = None
            return
        others = [process for process in cluster.running if process.me in cluster.ledger.state.members]
        if others:
            process = others[tries % len(others)]
            process.spawn(self._asking(lambda: process.core.membership.changes.add(seed_of(name), 4.0)))
        world.at(world.now_s + OPERATOR_S, lambda: self._letting_in(name, tries + 1))

    async def _asking(self, change: Callable[[], Awaitable[Result]]) -> None:
        try:
            await change()
        except RaftError:
            self._cluster.counts["client errors"] += 1

    def _name(self, number: int) -> str:
        names = self._cluster.names
        return names[number % len(names)]
