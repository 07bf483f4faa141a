"""Random histories against a simple model of which member holds which run: the invariants."""

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from node.state.apply import Batch, apply_batch
from node.state.attempts import Began, Cancel, Checkpoint, Finish
from node.state.claims import Claim
from node.state.codec import from_pieces, pack_batch, snapshot_pieces
from node.state.entries import Entry, Proposal, ProposalId
from node.state.members import AddMember, Drain, FoundCluster, Join, MarkDown, RemoveMember, TakeLead
from node.state.occurrences import Enqueue, SkipOccurrences, Start
from node.state.registry import PLACING, DeleteTask, Pause, Put, PutTasks
from node.state.settings import ChangeSettings
from node.state.value import EndedRun, Result, State
from node.state.windows import KEPT, SLACK
from tasks.definition.run import ACTIVE, HELD, may_change
from tests.unit.node.state.given import NOW_US, joining, packed, seed

MEMBERS = st.sampled_from(["a", "b", "c"])
TASKS = st.sampled_from(["t", "u"])
SCHEDULES = st.sampled_from([None, {"every_s": 1}, {"every_s": 2}, {"continuous": True}])
SECOND_US = 1_000_000


class Model:
    """Which member holds which run under which token, and all runs that ever were. Nothing else."""

    def __init__(self) -> None:
        self.holders: dict[str, tuple[str, int]] = {}
        self.claimed: set[tuple[int, int]] = set()
        self.over: set[str] = set()
        self.token = 0

    def claim(self, run_id: str, occurrence: tuple[int, int], member: str, token: int, *, new: bool) -> None:
        assert token > self.token, "tokens increase"
        assert run_id not in self.holders, "one holder at a time"
        assert run_id not in self.over, "what has ended is over"
        assert not (new and occurrence in self.claimed), "an occurrence is claimed once ever"
        self.token = token
        self.claimed.add(occurrence)
        self.holders[run_id] = (member, token)

    def lose(self, member: str) -> None:
        self.holders = {run_id: held for run_id, held in self.holders.items() if held[0] != member}


class Histories(RuleBasedStateMachine):
    """Entries of each kind against a cluster, as honest members and late messages might propose them."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.state = State()
        self.twin = State()
        self.clock_us = NOW_US
        self.sequence = 0
        self.sent: list[tuple[bytes, Result]] = []

    @initialize()
    def found(self) -> None:
        self.propose(FoundCluster(NOW_US, "cluster", (seed("a"), seed("b"), seed("c"))))
        for member in "abc":
            self.propose(joining(member))
        often = packed("t", schedule={"every_s": 1}, overlap="allow", failover={"max": 2})
        self.propose(PutTasks(NOW_US, (Put(often), Put(packed("u", schedule={"continuous": True})))))

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 7.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock_us += round(seconds * SECOND_US)

    @rule(
        member=MEMBERS, data=st.data(), what=st.sampled_from(["join", "join", "down", "down", "come", "go", "govern"])
    )
    def members_change(self, member: str, data: st.DataObject, what: str) -> None:
        if what == "join":
            lost = self.propose(self.joining(member, data)).ok
        elif what == "down":
            incarnation = self.incarnation(member) - data.draw(st.sampled_from([0, 0, 0, 1]))
            reason: Any = data.draw(st.sampled_from(["gone", "stopped"]))
            lost = self.propose(MarkDown(self.clock_us, member, incarnation, reason, data.draw(st.integers(0, 2)))).ok
        elif what == "go":
            lost = self.propose(RemoveMember(self.clock_us, member)).value.get("gone", False)
        elif what == "come":
            self.propose(AddMember(self.clock_us, seed(member)))
            lost = False
        else:
            self.govern(member, on=data.draw(st.booleans()), term=data.draw(st.integers(0, 2)))
            lost = False
        if lost:
            self.model.lose(member)

    def joining(self, member: str, data: st.DataObject) -> Join:
        after = self.incarnation(member) - data.draw(st.sampled_from([0, 0, 0, 1]))
        return joining(member, self.clock_us, capacity=data.draw(st.integers(0, 2)), after=after)

    def govern(self, member: str, *, on: bool, term: int) -> None:
        self.propose(Drain(self.clock_us, member, on))
        self.propose(TakeLead(self.clock_us, member, term))
        self.propose(ChangeSettings(self.clock_us, {"balance_slack_milli": term * 100 - 100, "lease_s": 1 + term}))

    @rule(
        task=TASKS,
        schedule=SCHEDULES,
        overlap=st.sampled_from(["skip", "queue", "replace", "allow"]),
        placing=st.sampled_from([{}, {"sticky": True}, {"pin": "a"}, {"weight": 2}, {"enabled": False}]),
        resume=st.sampled_from([{"max": 1}, {"max": 2}, {"resume": "restart"}, {"resume": "abandon"}]),
        late_s=st.sampled_from([0, 2]),
        if_version=st.sampled_from([None, None, 0, 1]),
    )
    def put(
        self, task: str, schedule: Any, overlap: str, placing: Any, resume: Any, late_s: int, if_version: int | None
    ) -> None:
        # What is registered anew has no memory: it begins with the clock. A change may come by a clock that is late.
        at_us = self.clock_us - late_s * SECOND_US if task in self.state.tasks else self.clock_us
        spec = packed(task, schedule=schedule, overlap=overlap, failover=resume, retry={"attempts": 2}, **placing)
        self.propose(PutTasks(at_us, (Put(spec, if_version),)))

    @rule(task=TASKS, what=st.sampled_from(["pause", "resume", "resume", "resume", "delete"]))
    def change(self, task: str, what: str) -> None:
        self.propose(
            DeleteTask(self.clock_us, task) if what == "delete" else Pause(self.clock_us, task, what == "pause")
        )

    @rule(task=TASKS, key=st.sampled_from([None, "k"]), fire=st.none() | st.integers(-3, 3))
    def start(self, task: str, key: str | None, fire: int | None) -> None:
        fire_at_us = None if fire is None else self.clock_us + fire * SECOND_US
        self.propose(Start(self.clock_us, task, None, fire_at_us, key))

    @rule(
        task=TASKS, ago=st.lists(st.integers(-1, 3), max_size=3), what=st.sampled_from(["enqueue", "skipped", "missed"])
    )
    def settle(self, task: str, ago: list[int], what: Any) -> None:
        times = tuple(self.clock_us - seconds * SECOND_US for seconds in ago)
        self.propose(
            Enqueue(self.clock_us, task, times)
            if what == "enqueue"
            else SkipOccurrences(self.clock_us, task, what, times)
        )

    @rule(task=TASKS, member=MEMBERS, ahead_s=st.integers(0, 3), early=st.integers(0, 9), late=st.integers(0, 9))
    def claim_an_occurrence(self, task: str, member: str, ahead_s: int, early: int, late: int) -> None:
        row = self.state.tasks.get(task)
        if row is None:
            return
        fire_at_us = row.since_us if row.spec.continuous else row.through_us + ahead_s * SECOND_US
        if early:
            self.clock_us = max(self.clock_us, fire_at_us)
        self.claim(Claim(self.clock_us, task, fire_at_us, member, self.incarnation(member) - (late == 0)))

    @rule(data=st.data(), member=MEMBERS, patient=st.integers(0, 5))
    def claim_a_run(self, data: st.DataObject, member: str, patient: bool) -> None:
        run_id = self.some_run(data)
        run = self.state.runs.get(run_id)
        if run is not None:
            if patient:
                self.clock_us = max(self.clock_us, run.due_us)
            self.claim(Claim(self.clock_us, run.task, run.fire_at_us, member, self.incarnation(member), run_id))

    @rule(
        data=st.data(),
        late=st.integers(0, 4),
        what=st.sampled_from(
            "began checkpoint succeeded failed away cancelled timed_out not_started handed_over".split()
        ),
    )
    def work(self, data: st.DataObject, late: int, what: Any) -> None:
        run_id = self.some_run(data)
        held = self.model.holders.get(run_id)
        token = held[1] if held is not None and late else data.draw(st.integers(0, self.model.token + 1))
        entry: Entry
        if what == "began":
            entry = Began(self.clock_us, run_id, token)
        elif what == "checkpoint":
            entry = Checkpoint(self.clock_us, run_id, token, b"place")
        else:
            entry = Finish(self.clock_us, run_id, token, what, {"rows": 1}, "why", retry=late < 4)
        result = self.propose(entry)
        assert result.ok == (held is not None and held[1] == token), "what bears an old token is refused, and only that"
        if result.ok and isinstance(entry, Finish):
            del self.model.holders[run_id]

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.propose(Cancel(self.clock_us, self.some_run(data)))

    @rule(data=st.data())
    def send_again(self, data: st.DataObject) -> None:
        if self.sent:
            packed_before, result = data.draw(st.sampled_from(self.sent))
            before = self.state
            batch = self.apply(packed_before)
            assert batch.results[0][1] == result
            assert batch.state == replace(before, index=before.index + 1)

    @rule()
    def snapshot(self) -> None:
        self.twin = from_pieces(snapshot_pieces(self.state))
        assert self.twin == self.state

    @invariant()
    def held_runs_are_those_of_the_model(self) -> None:
        held = {run.run_id: (run.node, run.token) for run in self.state.runs.values() if run.state in HELD}
        assert held == self.model.holders
        for run_id in held:
            run = self.state.runs[run_id]
            member = self.state.members[run.node or ""]
            assert (member.status != "down", member.incarnation) == (True, run.incarnation)
            assert run.attempts[-1].token == run.token

    @invariant()
    def the_state_hangs_together(self) -> None:
        listed = [run_id for runs in self.state.runs_of.values() for run_id in runs]
        assert sorted(listed) == sorted(self.state.runs)
        assert all(self.state.runs[one].task == task for task, runs in self.state.runs_of.items() for one in runs)
        assert all(runs for runs in self.state.runs_of.values())
        assert all(run.state in ACTIVE for run in self.state.runs.values())
        seats = {member.id: member.slot for member in self.state.members.values()}
        assert seats == {member: slot for slot, member in enumerate(self.state.slots) if member is not None}
        assert all(len(window.results) <= KEPT + SLACK for window in self.state.windows.values())
        assert not self.model.over & set(self.state.runs)

    def incarnation(self, member: str) -> int:
        present = self.state.members.get(member)
        return 1 if present is None else present.incarnation

    def some_run(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from([*sorted(self.state.runs), *sorted(self.model.over)[:2], "t~nothing"]))

    def claim(self, entry: Claim) -> None:
        before = self.state
        result = self.propose(entry)
        if result.ok:
            run = self.state.runs[result.value["run_id"]]
            occurrence = (before.tasks[run.task].order, run.fire_at_us)
            new = result.value["attempt"] == 1
            self.model.claim(run.run_id, occurrence, entry.member, result.value["token"], new=new)
            assert before.members[entry.member].status == "up"
            assert result.value == {"run_id": run.run_id, "token": run.token, "attempt": run.attempts[-1].attempt}

    def propose(self, entry: Entry) -> Result:
        self.sequence += 1
        data = pack_batch([Proposal(ProposalId("abc"[self.sequence % 3], 1, self.sequence), entry)])
        before = self.state
        batch = self.apply(data)
        [(_, result)] = batch.results
        self.sent = [*self.sent[-5:], (data, result)]
        if not result.ok:
            assert self.state == replace(before, index=before.index + 1, windows=self.state.windows)
        self.check_step(before, [one for _, one in batch.ended])
        return result

    def apply(self, data: bytes) -> Batch:
        batch = apply_batch(self.state, data)
        self.twin = apply_batch(self.twin, data).state
        assert self.twin == batch.state, "equal states and equal entries give equal states"
        assert batch.state.index == self.state.index + 1
        assert all(result.code != "fault" for _, result in batch.results), batch.results
        self.state = batch.state
        return batch

    def check_step(self, before: State, ended: list[EndedRun]) -> None:
        after = self.state
        assert after.epoch == before.epoch + (_placing(before) != _placing(after)), "section 4's list, and nothing else"
        for task, row in after.tasks.items():
            if task in before.tasks and before.tasks[task].order == row.order:
                assert row.through_us >= before.tasks[task].through_us
        ends = {one.run.run_id: one.state for one in ended}
        assert len(ends) == len(ended)
        for run_id in set(before.runs) | set(after.runs) | set(ends):
            was = before.runs[run_id].state if run_id in before.runs else None
            now = ends.get(run_id) or after.runs[run_id].state
            assert was == now or may_change(was, now), f"{was} -> {now}"
        self.model.over |= set(ends)


def _placing(state: State) -> object:
    """All that section 4 names: slots, status, labels, capacity, kinds, tasks and their fields, incumbents, slack."""
    rows = state.tasks.values()
    tasks = {
        row.placing.name: (row.order, row.placing.incumbent, *(getattr(row.spec, name) for name in PLACING))
        for row in rows
    }
    return state.seats(), tasks, state.settings.balance_slack_milli


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=20, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
