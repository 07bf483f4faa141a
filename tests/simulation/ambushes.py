"""Faults that lie in wait: they strike when a member is about to say something, and what it says comes late.

Each of them is a story that took a rule of docs/explanation/leases-and-claims.md to end well.
"""

from collections.abc import Callable
from typing import Final

from node.membership.joining import PROPOSE_S
from node.state.attempts import Checkpoint, Finish
from node.state.claims import Claim
from node.state.entries import Entry
from node.state.members import Drain, Join, MarkDown
from node.state.settings import ChangeSettings
from node.state.telling import Told
from tests.simulation.cluster import Cluster, Moment, Trap
from tests.simulation.faults import Faults
from tests.simulation.operators import Operators
from tests.simulation.plan import Fault
from tests.simulation.process import Process
from tests.simulation.world import LANES

LATE_S: Final = 4.0
"""What is late comes when its sender has been taken for dead, and is back."""

CHANGED_S: Final = 8.0
"""A change of the settings is in force by then (`node.liveness.timeouts`)."""

WORD_S: Final = 0.05
"""After the first message of a proposal, others of the same proposal may follow for this long."""


class Ambushes:
    """Sets traps, one of a kind at a time."""

    def __init__(self, cluster: Cluster, faults: Faults, operators: Operators) -> None:
        self._cluster, self._world, self._faults, self._operators = cluster, cluster.world, faults, operators

    def ambush(self, fault: Fault) -> None:
        """The next claim that a leader takes meets with something."""
        blows: tuple[Callable[[str, float], None], ...]
        blows = (self._faults.fell, self._faults.isolate, self._stand, self._unseat)
        blow = blows[fault.other % 4]

        def strike(leader: Process) -> None:
            self._world.at(self._world.now_s + 0.01 * fault.much, lambda: blow(leader.me, fault.for_s))

        self._cluster.traps["taken", Claim] = strike

    def old_leader(self, fault: Fault) -> None:
        """The leader is cut off together with another member, and grants it leases for as long as it may, which is
        long: the others have had the next leader by then.
        """

        def strike() -> None:
            if (leader := self._cluster.leader) is not None and (others := self._others(leader)):
                self._faults.cut_off({leader, others[fault.who % len(others)]}, 4.0 + fault.for_s)

        self._operators.operate(fault.other, lambda at_us: ChangeSettings(at_us, {"window_s": 3.0}))
        self._world.at(self._world.now_s + CHANGED_S, strike)

    def late_word(self, fault: Fault) -> None:
        """A claim, a checkpoint, an end or what became of a message comes after its member was silent for too long, and
        has joined again.
        """
        words = (Claim, Checkpoint, Finish, *([Told] if self._cluster.ledger.state.channels else []))
        word = words[fault.other % len(words)]

        def strike(process: Process) -> None:
            name, silence_s = process.me, self._cluster.ledger.state.settings.lease_s + 0.5
            for other in self._others(name):
                self._world.slow_down(name, other, "raft", silence_s + LATE_S, silence_s - 0.2)
                self._world.slow_down(name, other, "beat", silence_s + LATE_S, silence_s + 0.2)

        self._once(word, strike)

    def late_drain(self, fault: Fault) -> None:
        """A member is drained while its claim is under way."""

        def strike(process: Process) -> None:
            name = process.me
            self._delay(name, 0.2 + fault.much)
            self._operators.operate(fault.who, lambda at_us: Drain(at_us, name, on=True))

        self._once(Claim, strike)

    def late_goodbye(self, fault: Fault) -> None:
        """A member that is to leave says that it is down; before that comes, it is told to stay."""
        name = self._cluster.names[fault.who % len(self._cluster.names)]

        def strike(process: Process) -> None:
            if process.me == name:
                self._delay(name, LATE_S * (0.3 + fault.much))
                self._operators.keep(name, fault.other)

        if self._operators.dismiss(name, fault.other):
            self._once(MarkDown, strike)
            self._world.at(self._world.now_s + 2 * LATE_S, lambda: self._operators.keep(name, fault.other))

    def late_join(self, fault: Fault) -> None:
        """A member that was taken for dead joins, in vain, and joins again; then comes what it said first."""

        def strike(process: Process) -> None:
            for other in self._others(process.me):
                self._world.slow_down(process.me, other, "raft", PROPOSE_S + 2.0 + fault.much, PROPOSE_S)

        self._once(Join, strike)
        self._faults.isolate(self._cluster.names[fault.who % len(self._cluster.names)], 3.2)

    def late_verdict(self, fault: Fault) -> None:
        """A leader does not hear a member, and has its verdict committed when others hear it, under another leader."""

        def strike(process: Process) -> None:
            self._world.stop(process.me, ("raft",), 1.0 + fault.much)

        self._judged(fault, "said", strike)

    def late_lead(self, fault: Fault) -> None:
        """The next leader has such a verdict in its log, and takes its time to commit that it leads."""

        def strike(process: Process) -> None:
            self._world.at(self._world.now_s + WORD_S, lambda: self._faults.isolate(process.me, fault.for_s))
            for other in self._others(process.me):
                self._cluster.processes[other].adapter.raft.writer.slow(4.0, 1.0 + fault.much)

        self._judged(fault, "taken", strike)

    def _judged(self, fault: Fault, moment: Moment, strike: Trap) -> None:
        leader = self._cluster.leader
        if leader is None or not (others := self._others(leader)):
            return
        other, for_s = others[fault.who % len(others)], self._cluster.ledger.state.settings.lease_s + 3.0
        self._world.cut(leader, other, for_s)
        self._world.cut(other, leader, for_s)
        self._cluster.traps[moment, MarkDown] = strike

    def _once(self, word: type[Entry], strike: Trap) -> None:
        """At the next such proposal of a member that does not lead: a leader's own is not under way."""

        def said(process: Process) -> None:
            if process.adapter.raft.leading:
                self._cluster.traps["said", word] = said
            else:
                strike(process)

        self._cluster.traps["said", word] = said

    def _delay(self, name: str, by_s: float) -> None:
        for other in self._others(name):
            self._world.slow_down(name, other, "raft", by_s, WORD_S)

    def _stand(self, name: str, for_s: float) -> None:
        self._world.stop(name, LANES, for_s)

    def _unseat(self, name: str, _for_s: float) -> None:
        others = [process for process in self._cluster.running if process.me != name]
        if others:
            self._world.rng.choice(others).adapter.raft.rise()

    def _others(self, name: str) -> list[str]:
        return [other for other in self._cluster.names if other != name]
