"""States for tests, made by the real `apply`."""

from typing import Any

from node.state.apply import apply
from node.state.attempts import Began
from node.state.claims import Claim
from node.state.deadlines import Breached
from node.state.entries import Entry, Proposal, ProposalId, Seed
from node.state.members import FoundCluster, Join, TakeLead
from node.state.occurrences import Start
from node.state.registry import Put, PutTasks
from node.state.value import RULES, DeadlineEvent, EndedRun, Result, State
from tasks.definition.spec import Spec

NOW_US = 1_795_000_000_000_000
HOUR_US = 3_600_000_000


class World:
    """A state, and the result of the last entry."""

    def __init__(self, members: int = 3) -> None:
        self.state = State()
        self.result = Result("ok")
        self.ended: tuple[EndedRun, ...] = ()
        self.touched: frozenset[str] = frozenset()
        self.deadlines: tuple[DeadlineEvent, ...] = ()
        self._sequence = 0
        seeds = tuple(Seed(f"node-{number}", f"host-{number}", 7000, 8100) for number in range(1, members + 1))
        self.do(FoundCluster(NOW_US, "c-1", seeds))
        for seed in seeds:
            self.do(Join(NOW_US, seed.id, seed.host, 7000, 8100, 7100, (), 1, ("copy",), 0))

    def do(self, entry: Entry) -> dict[str, Any]:
        """Apply an entry that must be accepted."""
        self._sequence += 1
        applied = apply(self.state, Proposal(ProposalId("node-1", 1, self._sequence), entry))
        assert applied.result.ok, applied.result
        self.state, self.ended, self.touched = applied.state, applied.ended, applied.touched
        self.deadlines = applied.deadlines
        return applied.result.value

    def task(self, name: str, **fields: Any) -> None:
        """Register a task."""
        spec = Spec.model_validate({"name": name, "kind": "copy", "params": {"source": "x"}, **fields})
        self.do(PutTasks(NOW_US, (Put(spec.pack()),)))

    def late(self, name: str) -> None:
        """Register a task that has had no success for an hour, and was to have one."""
        self.do(TakeLead(NOW_US, "node-1", self.state.lead.term + 1, RULES))
        self.task(name, deadlines={"success_every_s": 3600})
        self.do(Breached(NOW_US + HOUR_US, name, "success_every", NOW_US))

    def running(self, task: str, node: str = "node-1") -> tuple[str, int]:
        """Start a run by hand, and have a member run it: its id and token."""
        run_id = self.do(Start(NOW_US, task))["run_id"]
        run = self.state.runs[run_id]
        incarnation = self.state.members[node].incarnation
        token = self.do(Claim(NOW_US, task, run.fire_at_us, node, incarnation, run_id))["token"]
        self.do(Began(NOW_US + 1, run_id, token))
        return run_id, token
