"""What befalls a cluster's network, processes, disks and clocks: each fault of a plan, by its name."""

from tests.simulation.cluster import Cluster
from tests.simulation.operators import Operators
from tests.simulation.plan import Fault
from tests.simulation.process import Process
from tests.simulation.world import LANES


class Faults:
    """Strikes. `operators` know when a disk may not be lost."""

    def __init__(self, cluster: Cluster, operators: Operators) -> None:
        self._cluster, self._world, self._operators = cluster, cluster.world, operators
        self._healed = False

    def heal(self) -> None:
        """From now on everything goes well: whatever is not there comes back, and nothing new befalls."""
        cluster = self._cluster
        self._healed = True
        cluster.traps.clear()
        self._operators.heal()
        self._world.heal()
        for name in list(cluster.names):
            cluster.start(name)
        for process in cluster.running:
            process.adapter.raft.writer.slow(0.0, 0.0)
            process.has_wrong("disk", None)

    # -- the network

    def partition(self, fault: Fault) -> None:
        """Two sides that do not reach each other."""
        names = sorted(self._cluster.names, key=lambda name: hash_of(name, fault.who))
        side = 1 + fault.other % max(1, len(names) - 1)
        for one in names[:side]:
            for other in names[side:]:
                self._world.cut(one, other, fault.for_s)
                self._world.cut(other, one, fault.for_s)

    def one_way(self, fault: Fault) -> None:
        """What a member says, or what it is told, gets lost."""
        self._cut_one_way(self._name(fault.who), fault)

    def _cut_one_way(self, name: str, fault: Fault) -> None:
        for other in self._others(name):
            pair = (name, other) if fault.much < 0.5 else (other, name)
            self._world.cut(*pair, fault.for_s)

    def apart(self, fault: Fault) -> None:
        """Two members do not reach each other; the others reach both."""
        name = self._name(fault.who)
        if others := self._others(name):  # members may have been removed until one is alone
            other = others[fault.other % len(others)]
            self._world.cut(name, other, fault.for_s)
            self._world.cut(other, name, fault.for_s)

    def cut_leader(self, fault: Fault) -> None:
        """The leader is cut off: from all, or one way."""
        leader = self._cluster.leader
        if leader is None:
            return
        if fault.other % 3 == 0:
            self._cut_one_way(leader, fault)
            return
        for other in self._others(leader):
            self._world.cut(leader, other, fault.for_s)
            self._world.cut(other, leader, fault.for_s)

    def slow(self, fault: Fault) -> None:
        """What goes to and from a member is under way for long: all of it, or one kind."""
        self._slow(self._name(fault.who), fault)

    def slow_leader(self, fault: Fault) -> None:
        """The same of the leader."""
        if (leader := self._cluster.leader) is not None:
            self._slow(leader, fault)

    def mire(self, fault: Fault) -> None:
        """What a member hears of heartbeats is under way for long; then it is cut off, and what still comes is old."""
        leader = self._cluster.leader
        name = leader if leader is not None and fault.other % 2 else self._name(fault.who)
        by_s = 1.5 + 2.5 * fault.much
        for other in self._others(name):
            self._world.slow_down(other, name, "beat", by_s, by_s)
        self._world.at(self._world.now_s + 0.9 * by_s, lambda: self.isolate(name, max(by_s + 3.5, fault.for_s)))

    def _slow(self, name: str, fault: Fault) -> None:
        by_s = 0.3 + 3.7 * fault.much
        for lane in (LANES, LANES[:1], LANES[1:2])[fault.other % 3]:
            for other in self._others(name):
                if fault.other % 2 or fault.much > 0.3:
                    self._world.slow_down(name, other, lane, by_s, fault.for_s)
                self._world.slow_down(other, name, lane, by_s, fault.for_s)

    def isolate(self, name: str, for_s: float) -> None:
        """A member reaches no other."""
        self.cut_off({name}, for_s)

    def cut_off(self, names: set[str], for_s: float) -> None:
        """Some members reach one another, and no others."""
        if self._healed:
            return
        for one in sorted(names):
            for other in self._cluster.names:
                if other not in names:
                    self._world.cut(one, other, for_s)
                    self._world.cut(other, one, for_s)

    # -- processes

    def pause(self, fault: Fault) -> None:
        """SIGSTOP; its supervisors are other processes."""
        self._world.stop(self._name(fault.who), LANES, fault.for_s)

    def pause_leader(self, fault: Fault) -> None:
        """The same of the leader."""
        if (leader := self._cluster.leader) is not None:
            self._world.stop(leader, LANES, fault.for_s)

    def stall(self, fault: Fault) -> None:
        """One thread waits, for the disk or for the interpreter, and the others go on."""
        self._world.stop(self._name(fault.who), (LANES[fault.other % len(LANES)],), fault.for_s)

    def crash(self, fault: Fault) -> None:
        """kill -9, and a start later."""
        self.fell(self._name(fault.who), fault.for_s)

    def crash_leader(self, fault: Fault) -> None:
        """The same of the leader."""
        if (leader := self._cluster.leader) is not None:
            self.fell(leader, fault.for_s)

    def blackout(self, fault: Fault) -> None:
        """All at once, and one after the other back."""
        self._cluster.counts["blackouts"] += 1
        for place, name in enumerate(list(self._cluster.names)):
            self.fell(name, fault.for_s + 0.2 * place)

    def fell(self, name: str, for_s: float) -> None:
        """kill -9, and a start so much later."""
        if self._cluster.crash(name):
            self._world.at(self._world.now_s + for_s, lambda: self._cluster.start(name))

    def wipe(self, fault: Fault) -> None:
        """A machine is lost, with its disk, and one without takes its place."""
        name = self._name(fault.who)
        if self._operators.settled and self._cluster.crash(name):
            self._cluster.wipe(name)
            self._world.at(self._world.now_s + 0.5 + fault.for_s, lambda: self._cluster.start(name))

    def lose_apart(self, fault: Fault) -> None:
        """A member loses its disk, and reaches only nodes that wait, with the same list: they must found nothing."""
        cluster, name = self._cluster, self._name(fault.who)
        if not self._operators.settled:
            return
        self._operators.grow(fault)
        if cluster.crash(name) and cluster.wipe(name):
            self.cut_off({name, *cluster.waiting}, 2 * fault.for_s)
            cluster.counts["lost apart"] += 1
        self._world.at(self._world.now_s + 0.5, lambda: cluster.start(name))

    def stop(self, fault: Fault) -> None:
        """A member stops in good order, and is started again later."""
        name = self._name(fault.who)
        process = self._cluster.processes[name]
        if not self._world.machines[name].running or process.leaving_now:
            return
        process.stop(lambda: self._stopped(process, fault.for_s))

    def _stopped(self, process: Process, for_s: float) -> None:
        if self._cluster.processes[process.me] is process and self._cluster.crash(process.me, goodbye=True):
            back_s = self._world.now_s + (0.5 if self._healed else for_s)
            self._world.at(back_s, lambda: self._cluster.start(process.me))

    def slow_disk(self, fault: Fault) -> None:
        """A disk takes its time to make things durable; or it is full, too, and its member drains itself."""
        name = self._name(fault.who)
        process = self._cluster.processes[name]
        process.adapter.raft.writer.slow(fault.for_s, 1.5 * fault.much)
        if self._world.machines[name].running and fault.other % 2:
            process.has_wrong("disk", "no room")
            self._world.at(self._world.now_s + fault.for_s, lambda: self._has_room(process))

    def _has_room(self, process: Process) -> None:
        if process in self._cluster.running:
            process.has_wrong("disk", None)

    def clock(self, fault: Fault) -> None:
        """A wall clock is wrong for a while: by an hour, or by a little."""
        machine = self._world.machines[self._name(fault.who)]
        by_s = (3600.0, -3600.0, 30.0, -30.0, 3.0, -3.0, 0.5, -0.5)[fault.other % 8]
        machine.wall_off_s += by_s
        self._cluster.counts["clocks moved"] += 1

        def right() -> None:
            if not self._healed:
                machine.wall_off_s -= by_s

        self._world.at(self._world.now_s + 2 * fault.for_s, right)

    def elect(self, fault: Fault) -> None:
        """An election, though there is a leader."""
        name = self._name(fault.who)
        if self._world.machines[name].running:
            self._cluster.processes[name].adapter.raft.rise()

    # -- choosing members

    def _name(self, number: int) -> str:
        names = self._cluster.names
        return names[number % len(names)]

    def _others(self, name: str) -> list[str]:
        return [other for other in self._cluster.names if other != name]


def hash_of(name: str, number: int) -> int:
    """An order of names that depends on a number."""
    return (int(name[1:]) + 1) * (2 * number + 1) * 2_654_435_761 % 4_294_967_291
