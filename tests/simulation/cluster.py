"""A history's machines, disks and processes: what starts, dies and is found by name."""

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Literal

from node.state.apply import Applied
from node.state.entries import Proposal
from node.state.value import State
from tests.simulation.adapter import Adapter
from tests.simulation.beats import Beats
from tests.simulation.bench import Bench
from tests.simulation.disk import Disk
from tests.simulation.habits import Habits
from tests.simulation.judge import Judge
from tests.simulation.ledger import Ledger
from tests.simulation.process import Process
from tests.simulation.receivers import Receivers
from tests.simulation.rules import Rules
from tests.simulation.world import World

Moment = Literal["said", "taken"]
Trap = Callable[[Process], None]


class Cluster:
    """All of it. `names` are the members that there are or are to be; `processes` the latest process of each.

    `waiting` are nodes that run with a longer list than the members', and are added by no member. `shares`: members
    tell their places.
    """

    def __init__(self, world: World, rules: Rules, members: int) -> None:
        self.world, self.rules = world, rules
        self.habits = Habits(world)
        self.counts: Counter[str] = Counter()
        self.bench = Bench(world, self._newest, rules.steps)
        self.judge = Judge(world, self.bench.taken)
        self.receivers = Receivers(world)
        self.ledger = Ledger(world, self._watch)
        self.names = [f"n{number}" for number in range(members)]
        self.waiting: list[str] = []
        self.shares = False
        self.disks: dict[str, Disk] = {}
        self.processes: dict[str, Process] = {}
        self.every_process: list[Process] = []
        self.traps: dict[tuple[Moment, type], Trap] = {}
        self._links = itertools.count(1)
        for name in self.names:
            self.machine(name, tuple(self.names))

    def _watch(self, before: State, proposal: Proposal, applied: Applied) -> None:
        self.judge.watch(before, proposal, applied)
        self.receivers.watch(before, proposal, applied)

    def _newest(self) -> State:
        return self.ledger.state

    def machine(self, name: str, members: tuple[str, ...]) -> None:
        """A new machine, with an empty disk."""
        self.world.add(name)
        self.disks[name] = Disk(members)

    def start(self, name: str) -> None:
        """A process starts, on the disk that is there."""
        machine = self.world.machines[name]
        if machine.running or name not in (*self.names, *self.waiting):
            return
        self.bench.sweep(name)
        machine.boot += 1
        machine.running = True
        machine.stopped_until_s.clear()
        process = Process(self, name, self.disks[name], next(self._links))
        self.processes[name] = process
        self.every_process.append(process)
        self.world.tell(f"{name} starts")
        process.start()

    def crash(self, name: str, *, goodbye: bool = False) -> bool:
        """kill -9, also of a process that is paused; after a `goodbye` the others do not take it for dead."""
        machine = self.world.machines[name]
        if not machine.running:
            return False
        process = self.processes[name]
        machine.running = False
        self.world.tell(f"{name} {'ends' if goodbye else 'dies'}")
        self.disks[name].crash(self.world.rng)
        self.bench.orphan(name)
        for other in self.names:
            if other != name:
                self._tell_end(name, other, process.link, goodbye=goodbye)
        return True

    def _tell_end(self, name: str, other: str, link: int, *, goodbye: bool) -> None:
        def ended() -> None:
            beats = self.processes[other].beats
            if goodbye:
                beats.parted(link)
            else:
                beats.ended(link)

        self.world.send(name, other, "beat", ended)
        self.world.send(name, other, "raft", lambda: self.processes[other].adapter.raft.lost(name))

    def wipe(self, name: str) -> bool:
        """The disk of a member that does not run is lost, unless that were one too many: a majority remembers.

        Its list of members is that of now, and names those that wait, too.
        """
        rest = [other for other in self.voters() if other != name]
        if self.world.machines[name].running or 2 * len(rest) <= len(self.disks[name].members):
            return False
        session, life = self.disks[name].session, self.disks[name].life
        self.disks[name] = Disk((*self.names, *self.waiting), life=life + 1)
        self.counts["disks lost"] += 1
        self.world.tell(f"{name} has lost its disk (session {session})")
        return True

    def counts_on(self, name: str) -> bool:
        """Whether a voter's Raft has it as a member, or that of another such member, which may come back and lead."""
        known, votes = set(self.ledger.state.members), self.voters()
        while more := {one for other in known.intersection(votes) for one in self.disks[other].members} - known:
            known |= more
        return name in known

    @property
    def all_remember(self) -> bool:
        """Whether no disk has been lost lately, and no change of the members is under way."""
        members = set(self.ledger.state.members)
        settled = all(set(process.disk.members) == members for process in self.running)
        return settled and len(self.voters()) == len(self.names)

    def voters(self) -> list[str]:
        """The members whose disk holds what they have acknowledged."""
        return [name for name in self.names if self.disks[name].voter]

    def remove(self, name: str) -> None:
        """A machine is taken away for good."""
        self.crash(name)
        if name in self.names:
            self.names.remove(name)

    def adapter(self, name: str) -> Adapter:
        """A member's present process, as Raft knows it."""
        return self.processes[name].adapter

    def beats(self, name: str) -> Beats:
        """A member's present process, as heartbeats know it."""
        return self.processes[name].beats

    def spring(self, moment: Moment, process: Process, entry: object) -> None:
        """A process is about to say something, or, as the leader, has taken it: what lay in wait for that strikes."""
        trap = self.traps.pop((moment, type(entry)), None)
        if trap is not None:
            trap(process)

    def labels(self, name: str) -> tuple[tuple[str, str], ...]:
        """What a member says of itself."""
        return (("disk", "ssd" if int(name[1:]) % 2 else "hdd"),)

    @property
    def running(self) -> list[Process]:
        """The processes that live."""
        return [self.processes[name] for name in self.names if self.world.machines[name].running]

    @property
    def leader(self) -> str | None:
        """The leader of the latest term, as far as is known."""
        leading = [process for process in self.running if process.adapter.raft.leading]
        return max(leading, key=lambda process: process.disk.term).me if leading else None
