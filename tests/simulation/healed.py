"""What must hold once a cluster has been well for a while: nothing is stuck, all agree, what was due has ended."""

from collections import Counter

from node.duty.ownership import Ownership
from node.raft.founding.founding import ClusterElsewhere
from node.state.calendar import days_of
from node.state.places import for_batch
from node.state.value import Run, State, TaskRow
from tasks.definition.run import HELD
from tasks.definition.schedule import occurrences
from tests.simulation.clients import Clients
from tests.simulation.cluster import Cluster
from tests.simulation.days import due_times, stale_calendar
from tests.simulation.holders import pools_of
from tests.simulation.process import MAX_RUNS
from tests.simulation.spread import DECLINED_S

SOON_US = 3_000_000
"""In a cluster that is well, what is due is dealt with in this time."""

DRY_S = 120.0

LAST_WORD_S = 3.0
"""A drain from before the healing may be applied at the very end; the operators undo it within a second."""


def _contended(state: State, run: Run, now_us: int) -> bool:
    """Whether a run lacks something of a pool, may not start yet, or others go before it: whether it is claimed shows
    when all ends."""
    pools = [(state.pools[name], units) for name, units in run.spec.uses.items()]
    first = all([one.run_id for one in state.pools[name].queue] == [run.run_id] for name in pools_of(run))
    rate = run.spec.rate
    lately = rate is not None and any(
        now_us - 60_000_000 / 20 - SOON_US < one.at_us <= now_us for one in state.pools[rate.pool].starts
    )
    return not first or lately or any(pool.used + units > pool.capacity for pool, units in pools)


class Healed:
    """Judges a cluster some time after it was healed."""

    def __init__(self, cluster: Cluster, clients: Clients) -> None:
        self._cluster, self._clients, self._world = cluster, clients, cluster.world

    @property
    def _declined_us(self) -> int:
        """How long offers may be declined, by one member after the other."""
        return round(DECLINED_S * 1e6) * (len(self._cluster.names) - 1) if self._cluster.shares else 0

    def judge(self) -> None:
        """Every member is well; nothing is left undone; and with nothing new, every run comes to its end."""
        self._drain_nobody()
        self._members()
        self._waiting()
        self._nothing_is_stuck()
        if self._world.violation is None:
            self._runs_dry()
        if self._world.violation is None:
            self._all_told()
        if self._world.violation is None:
            self._all_agree()
            self._cluster.ledger.replay()

    def _drain_nobody(self) -> None:
        end_s = self._world.now_s + LAST_WORD_S
        while self._world.now_s < end_s and any(one.drained for one in self._cluster.ledger.state.members.values()):
            self._world.run(self._world.now_s + 0.5)

    def _members(self) -> None:
        cluster, state = self._cluster, self._cluster.ledger.state
        if sorted(state.members) != sorted(cluster.names):
            self._world.wrong(f"the members are {sorted(state.members)}, and should be {sorted(cluster.names)}")
            return
        for process in cluster.running:
            member = state.members[process.me]
            if member.status != "up" or member.incarnation != process.core.membership.joining.incarnation:
                self._world.wrong(f"{process.me} has been well for long, and is {member.status} ({member.reason})")
            elif not process.core.lease_held:
                self._world.wrong(f"{process.me} has been well for long, and has no lease")
            elif not process.adapter.role.ready or process.core.controller.failing:
                self._world.wrong(f"{process.me} has been well for long, and is not ready")

    def _waiting(self) -> None:
        """A node that was added by no member knows of the cluster, and is not ready."""
        for name in self._cluster.waiting:
            adapter, cluster_id = self._cluster.processes[name].adapter, self._cluster.ledger.state.cluster_id
            outlook = adapter.raft.outlook
            if adapter.role.ready or not isinstance(outlook, ClusterElsewhere) or outlook.cluster_id != cluster_id:
                self._world.wrong(f"{name} was added by no member, and does not wait for {cluster_id}: {outlook}")

    def _nothing_is_stuck(self) -> None:
        state, now_us = self._cluster.ledger.state, self._world.true_us
        if (why := stale_calendar(state)) is not None:
            self._world.wrong(why)
        owners = Ownership.of(state)
        # A member without room claims when one of its runs has ended; `_runs_dry` checks that it does.
        held = Counter(run.node for run in state.runs.values() if run.state in HELD)
        places = {
            name: for_batch(MAX_RUNS, 0, continuous=True) if one.places.runs else MAX_RUNS
            for name, one in state.members.items()
        }
        able = {name for name in state.tasks if (owner := owners.owner(name)) and held[owner] < places[owner]}
        for run in state.runs.values():
            if run.state in HELD or run.task in able - set(state.each):
                self._run(state, run, now_us)
        for name in sorted(able - set(state.each)):
            self._task(state, name, state.tasks[name], now_us)
        busy = {name for name, runs in held.items() if name is not None and runs >= MAX_RUNS}
        if (neglected := self._cluster.judge.everywhere.neglected(state, now_us - SOON_US, busy)) is not None:
            self._world.wrong(neglected)

    def _run(self, state: State, run: Run, now_us: int) -> None:
        if run.state in HELD:
            assert run.node is not None
            held = self._cluster.processes[run.node].core.controller.held.get(run.run_id)
            if (held is None or held.token != run.token) and run.attempts[-1].claimed_at_us < now_us - SOON_US:
                self._world.wrong(f"{run.run_id} is held by {run.node} under token {run.token}, which does not run it")
        elif run.backfill:
            return  # it may wait for others, and comes to its end (`_runs_dry`)
        elif run.state == "orphaned" and run.due_us < now_us - SOON_US and run.task in state.tasks:
            if _contended(state, run, now_us):
                return
            self._world.wrong(f"no member claims {run.run_id}, orphaned")

    def _task(self, state: State, name: str, row: TaskRow, now_us: int) -> None:
        active = [state.runs[one] for one in state.runs_of.get(name, ())]
        if any(run.backfill and run.state in HELD for run in active) and row.spec.overlap != "allow":
            return  # the others wait for it
        active = [run for run in active if not run.backfill]
        lately = row.last is not None and row.last.finished_at_us > now_us - SOON_US
        spec = row.spec
        if active and not lately and not any(run.state in HELD for run in active):
            first = next((run for run in active if run.state == "orphaned"), active[0])
            lost_us = [attempt.finished_at_us or 0 for attempt in first.attempts]
            waits_us = max(first.due_us, first.created_at_us, *lost_us)
            if waits_us < now_us - SOON_US - self._declined_us and not _contended(state, first, now_us):
                self._world.wrong(
                    f"no member claims {first.run_id}, {first.state}, due {(now_us - waits_us) / 1e6:.1f} s ago"
                )
        if row.paused or not spec.enabled or active or lately:
            return
        written_out = due_times(state, row, max(row.since_us, row.through_us), now_us)
        due_us = (
            next(iter(written_out), None)
            if written_out is not None
            else next(
                occurrences(spec.schedule, days_of(state.calendars, row.timing), row.since_us, row.through_us), None
            )
        )
        if due_us is not None and due_us < now_us - SOON_US - (2_000_000 if spec.continuous else 0):
            self._world.wrong(f"no member deals with {name}, due {(now_us - due_us) / 1e6:.1f} s ago")

    def _runs_dry(self) -> None:
        """With nothing new, every run comes to its end; a continuous one may go on."""
        self._cluster.bench.hurry = True
        self._clients.pause_all()
        end_s = self._world.now_s + DRY_S
        while self._world.now_s < end_s and self._world.violation is None:
            self._world.run(self._world.now_s + 0.5)
            runs = self._cluster.ledger.state.runs.values()
            left = [run for run in runs if not (run.spec.continuous and run.state in HELD)]
            tasks = self._cluster.ledger.state.tasks.values()
            paused = all(row.paused or (row.spec.after and row.spec.schedule is None) for row in tasks)
            unrest = self._cluster.judge.succession.unrest(self._cluster.ledger.state)
            unrest += self._cluster.judge.backfills.unrest(self._cluster.ledger.state)
            if not left and paused and not unrest:
                return
        runs_left = [(run.run_id, run.state) for run in left]
        self._world.wrong(f"has not come to an end: {runs_left}, paused: {paused}, after others: {unrest}")

    def _all_told(self) -> None:
        """What came to pass is told."""
        receivers, end_s = self._cluster.receivers, self._world.now_s + DRY_S
        while waiting := receivers.waiting(self._cluster.ledger.state):
            if self._world.now_s >= end_s or self._world.violation is not None:
                self._world.wrong(f"something is still to be told on {waiting}")
                return
            self._world.run(self._world.now_s + 0.5)
        receivers.judge(self._cluster.ledger.state)

    def _all_agree(self) -> None:
        """All have applied the same, know the same leader, and find the same owners."""
        cluster, last = self._cluster, self._cluster.ledger.last
        self._world.run(self._world.now_s + 1.0)
        leaders = {process.adapter.role.leader for process in cluster.running}
        if len(leaders) != 1 or None in leaders:
            self._world.wrong(f"they take {leaders} for their leader")
        owners = Ownership.of(cluster.ledger.state)
        for process in cluster.running:
            if process.applied_index < last:
                self._world.wrong(f"{process.me} has applied {process.applied_index} of {last} entries")
            for task in cluster.ledger.state.tasks:
                if process.core.placement.ownership.owner(task) != owners.owner(task):
                    self._world.wrong(
                        f"{process.me} takes {process.core.placement.ownership.owner(task)} for the owner of {task}"
                    )
