"""A small cluster to begin with, and proposals to change it."""

from dataclasses import dataclass, field
from typing import Any

from node.state.apply import Applied, apply
from node.state.channel import Channel
from node.state.claims import Claim
from node.state.entries import Entry, Proposal, ProposalId, Seed
from node.state.members import FoundCluster, Join
from node.state.registry import Put, PutTasks
from node.state.value import EndedRun, Result, Run, State
from tasks.definition.spec import Spec

DAY_US = 86_400_000_000
NOW_US = 20_000 * DAY_US
"""The clock when a history begins."""


def seed(member: str) -> Seed:
    return Seed(member, f"{member}.example", 7001, 8101)


def joining(member: str, at_us: int = NOW_US, **fields: Any) -> Join:
    given: dict[str, Any] = {"labels": (), "capacity": 1, "kinds": ("command",), "after": 0}
    return Join(at_us, member, f"{member}.example", 7001, 8101, 9001, **(given | fields))


def packed(name: str, **fields: Any) -> bytes:
    return Spec.model_validate({"name": name, "kind": "command"} | fields).pack()


def hook(**fields: Any) -> Channel:
    return Channel.model_validate({"kind": "webhook", "url": "https://hooks.example/"} | fields)


@dataclass
class History:
    """A state and what led to it. `do` applies an entry; `must` applies one that has to be accepted."""

    state: State = field(default_factory=State)
    sequence: int = 0
    ended: list[EndedRun] = field(default_factory=list)
    last: Applied = field(default_factory=lambda: Applied(State(), Result("ok")))

    def do(self, entry: Entry) -> Result:
        self.sequence += 1
        self.last = apply(self.state, Proposal(ProposalId("a", 1, self.sequence), entry))
        self.state = self.last.state
        self.ended += self.last.ended
        return self.last.result

    def back(self, member: str, at_us: int = NOW_US, **fields: Any) -> dict[str, Any]:
        """A member joins (again)."""
        return self.must(joining(member, at_us, after=self.state.members[member].incarnation, **fields))

    def must(self, entry: Entry) -> dict[str, Any]:
        result = self.do(entry)
        assert result.ok, result
        return result.value

    def put(self, name: str, at_us: int = NOW_US, **fields: Any) -> None:
        self.must(PutTasks(at_us, (Put(packed(name, **fields)),)))

    def claim(self, task: str, fire_at_us: int, member: str = "a", run_id: str | None = None) -> Run:
        at_us = max(fire_at_us, self.state.runs[run_id].due_us) if run_id else fire_at_us
        incarnation = self.state.members[member].incarnation
        value = self.must(Claim(at_us, task, fire_at_us, member, incarnation, run_id))
        return self.state.runs[value["run_id"]]


def cluster(*members: str) -> History:
    """A founded cluster whose members are up."""
    history = History()
    history.must(FoundCluster(NOW_US, "cluster", tuple(seed(member) for member in members)))
    for member in members:
        history.must(joining(member))
    return history
