"""One history of a minute: a cluster in trouble, then healed, judged after every step and at its end."""

import logging
import random
from collections import Counter
from dataclasses import dataclass

from tests.simulation.ambushes import Ambushes
from tests.simulation.backfilled_tasks import BackfilledTasks
from tests.simulation.calendar_tasks import CalendarTasks
from tests.simulation.clients import Clients
from tests.simulation.cluster import Cluster
from tests.simulation.faults import Faults
from tests.simulation.graphs import Graphs
from tests.simulation.healed import Healed
from tests.simulation.on_each import OnEach
from tests.simulation.operators import Operators
from tests.simulation.plan import END_S, HEAL_S, MENDED_S, Fault, Plan
from tests.simulation.pooled_tasks import PooledTasks
from tests.simulation.rules import Rules
from tests.simulation.shared_tasks import SharedTasks
from tests.simulation.templated_tasks import TemplatedTasks
from tests.simulation.world import Act, World

LOOK_S = 0.5
HEALED_S = 5.0
"""So long after the healing, work is spread as in a cluster that was never in trouble."""

STRANGER = "n99"
"""A member by a wrong list, which there is not."""


@dataclass(frozen=True)
class Told:
    """How a history went."""

    violation: str | None
    counts: Counter[str]
    story: tuple[str, ...]
    digest: str


class _Complaints(logging.Handler):
    """What the product calls a mistake of its own is one."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self._world.wrong(f"{record.getMessage()}: {record.exc_info[1]!r}")


def tell(plan: Plan, rules: Rules | None = None) -> Told:
    """Runs one history."""
    world = World(random.Random(plan.seed), drift=plan.drift, lost_share=plan.lost_share, held_share=plan.held_share)
    complaints, log = _Complaints(world), logging.getLogger("rota")
    log.addHandler(complaints)
    log.propagate = False
    try:
        rules = rules or Rules()
        cluster = Cluster(world, rules, plan.members)
        with rules.without():
            return _tell(plan, world, cluster)
    finally:
        log.removeHandler(complaints)
        log.propagate = True


def _tell(plan: Plan, world: World, cluster: Cluster) -> Told:
    try:
        return _judged(plan, world, cluster)
    finally:
        for process in cluster.every_process:
            process.loop.bury()


def _judged(plan: Plan, world: World, cluster: Cluster) -> Told:
    operators, clients = Operators(cluster), Clients(cluster)
    faults = Faults(cluster, operators)
    strikers: tuple[object, ...] = (faults, Ambushes(cluster, faults, operators), operators, clients)
    if plan.graph:
        graphs = Graphs(cluster, clients, plan.seed)
        strikers += (graphs,)
        world.at(1.0, graphs.begin)
    if plan.pools:
        pooled = PooledTasks(clients, plan.seed)
        strikers += (pooled,)
        world.at(1.0, pooled.begin)
    if plan.each:
        on_each = OnEach(cluster, clients, plan.seed)
        strikers += (on_each,)
        world.at(1.0, on_each.begin)
    if plan.calendars:
        by_calendar = CalendarTasks(clients, plan.seed)
        strikers += (by_calendar,)
        world.at(1.0, by_calendar.begin)
    if plan.backfills:
        backfilled = BackfilledTasks(cluster, clients, plan.seed)
        strikers += (backfilled,)
        world.at(1.0, backfilled.begin)
    if plan.templates:
        templated = TemplatedTasks(cluster, clients, plan.seed)
        strikers += (templated,)
        world.at(1.0, templated.begin)
    if plan.shares:
        cluster.shares = True
        shared = SharedTasks(clients, plan.seed)
        strikers += (shared,)
        world.at(1.0, shared.begin)
    for number, name in enumerate(list(cluster.names)):
        if number in plan.wrong_lists:
            cluster.disks[name].list_is((*cluster.names, STRANGER))
            world.at(MENDED_S, _mending(cluster, name))
        world.at(plan.first_s[number], _starting(cluster, name))
    world.at(1.0, clients.begin)
    if plan.channels:
        world.at(1.0, clients.make_channels)
    if plan.asked_for:
        world.at(1.0, clients.make_channels_asked_for)
    operators.watch()
    _look_now_and_then(cluster)
    for fault in plan.faults:
        world.at(fault.at_s, _striking(strikers, fault, world))
    world.run(HEAL_S)
    faults.heal()
    world.run(END_S)
    if world.violation is None:
        Healed(cluster, clients).judge()
    judge = cluster.judge
    counts = cluster.counts + cluster.bench.counts + judge.counts + cluster.receivers.counts
    counts += judge.punctuality.counts + judge.succession.counts + judge.holders.counts + judge.everywhere.counts
    counts += judge.paces.counts
    counts += judge.days.counts
    counts += judge.backfills.counts
    counts += judge.fills.counts
    counts += judge.spread.counts
    digest = f"{cluster.ledger.last} {cluster.ledger.state.index} {cluster.ledger.state.token} {world.now_s:.6f}"
    return Told(world.violation, counts, tuple(world.story), digest)


def _look_now_and_then(cluster: Cluster) -> None:
    """Is something late that is not marked?"""
    leader = cluster.leader
    well = leader is not None and cluster.processes[leader].well
    cluster.judge.punctuality.look(cluster.ledger.state, leader if well else None)
    cluster.judge.succession.look(cluster.ledger.state, leader if well else None)
    cluster.judge.backfills.look(cluster.ledger.state, leader if well else None)
    if cluster.shares and cluster.world.now_s > HEAL_S + HEALED_S:
        cluster.judge.spread.judge(cluster.ledger.state, cluster.world.true_us)
    cluster.world.at(cluster.world.now_s + LOOK_S, lambda: _look_now_and_then(cluster))


def _starting(cluster: Cluster, name: str) -> Act:
    return lambda: cluster.start(name)


def _mending(cluster: Cluster, name: str) -> Act:
    """The list of a member that waits is mended, and it is started again."""

    def mend() -> None:
        cluster.crash(name, goodbye=True)
        cluster.disks[name].list_is(tuple(cluster.names))
        cluster.start(name)

    return mend


def _striking(strikers: tuple[object, ...], fault: Fault, world: World) -> Act:
    [act] = [getattr(striker, fault.kind) for striker in strikers if hasattr(striker, fault.kind)]

    def strike() -> None:
        world.tell(f"-- {fault}")
        act(fault)

    return strike
