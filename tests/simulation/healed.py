"""What must hold once a cluster has been well for a while: nothing is stuck, all agree, what was due has ended."""

from collections import Counter

from node.duty.ownership import Ownership
from node.raft.founding.founding import ClusterElsewhere
from node.state.value import Run, State, TaskRow
from tasks.definition.run import HELD
from tasks.definition.schedule import occurrences
from tasks.definition.spec import after_of
from tests.simulation.clients import Clients
from tests.simulation.cluster import Cluster
from tests.simulation.process import MAX_RUNS

SOON_US = 3_000_000
"""In a cluster that is well, what is due is dealt with in this time."""

DRY_S = 120.0

LAST_WORD_S = 3.0
"""A drain from before the healing may be applied at the very end; the operators undo it within a second."""


class Healed:
    """Judges a cluster some time after it was healed."""

    def __init__(self, cluster: Cluster, clients: Clients) -> None:
        self._cluster, self._clients, self._world = cluster, clients, cluster.world

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
        owners = Ownership.of(state)
        # A member without room claims when one of its runs has ended; `_runs_dry` checks that it does.
        held = Counter(run.node for run in state.runs.values() if run.state in HELD)
        able = {name for name in state.tasks if (owner := owners.owner(name)) and held[owner] < MAX_RUNS}
        for run in state.runs.values():
            if run.state in HELD or run.task in able:
                self._run(state, run, now_us)
        for name in sorted(able):
            self._task(state, name, state.tasks[name], now_us)

    def _run(self, state: State, run: Run, now_us: int) -> None:
        if run.state in HELD:
            assert run.node is not None
            held = self._cluster.processes[run.node].core.controller.held.get(run.run_id)
            if (held is None or held.token != run.token) and run.attempts[-1].claimed_at_us < now_us - SOON_US:
                self._world.wrong(f"{run.run_id} is held by {run.node} under token {run.token}, which does not run it")
        elif run.state == "orphaned" and run.due_us < now_us - SOON_US and run.task in state.tasks:
            self._world.wrong(f"no member claims {run.run_id}, orphaned")

    def _task(self, state: State, name: str, row: TaskRow, now_us: int) -> None:
        active = [state.runs[one] for one in state.runs_of.get(name, ())]
        lately = row.last is not None and row.last.finished_at_us > now_us - SOON_US
        spec = row.spec
        if active and not lately and not any(run.state in HELD for run in active):
            first = next((run for run in active if run.state == "orphaned"), active[0])
            lost_us = [attempt.finished_at_us or 0 for attempt in first.attempts]
            waits_us = max(first.due_us, first.created_at_us, *lost_us)
            if waits_us < now_us - SOON_US:
                self._world.wrong(
                    f"no member claims {first.run_id}, {first.state}, due {(now_us - waits_us) / 1e6:.1f} s ago"
                )
        if row.paused or not spec.enabled or active or lately:
            return
        due_us = next(occurrences(spec.schedule, row.since_us, row.through_us), None)
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
            paused = all(row.paused or after_of(row.spec_packed) for row in tasks)
            unrest = self._cluster.judge.succession.unrest(self._cluster.ledger.state)
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
        receivers.judge()

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
