"""A member's controller over the real `apply`, with attempts that do what a test says."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from node.control.controller import Controller
from node.duty.room import KindTerms
from node.duty.step import LeaseView
from node.execution.attempt_events import AttemptEnded, AttemptStarted, CheckpointAsked
from node.execution.order import Order
from node.liveness.wall_clock import now_us
from node.raft.errors import EntryTooLarge, NoQuorum
from node.replication.proposer import Proposer
from node.state.attempts import Finish
from node.state.entries import Entry, Proposal, ProposalId
from node.state.occurrences import Start
from node.state.value import Result, Run, State
from tasks.definition.run import AttemptEnd
from tests.unit.node.duty.given import Owners
from tests.unit.node.loop import Naps, until
from tests.unit.node.state.given import History, cluster


class Runner:
    """Remembers what it is told. `broken` is raised by the next launch."""

    def __init__(self) -> None:
        self.launched: list[Order] = []
        self.told: list[tuple[str, int]] = []
        self.answered: list[str] = []
        self.broken: Exception | None = None
        self.expected = 0
        self.prepared: dict[str, tuple[int, int]] = {}

    def expect(self) -> None:
        self.expected += 1

    def prepare(self, name: str, start: int, keep: int, /) -> None:
        self.prepared[name] = (start, keep)

    def lead_s(self, name: str, /) -> float:
        return 10.0

    def launch(self, what: Order, /) -> None:
        if self.broken is not None:
            error, self.broken = self.broken, None
            raise error
        self.launched.append(what)

    def cancel(self, run_id: str, token: int, /) -> None:
        self.told.append(("cancel", token))

    def hand_over(self, run_id: str, token: int, /) -> None:
        self.told.append(("hand over", token))

    def kill(self, run_id: str, token: int, /) -> None:
        self.told.append(("kill", token))

    def fail(self, run_id: str, token: int, error: str, /) -> None:
        self.told.append((f"fail: {error}", token))

    def checkpoint_done(self, run_id: str, token: int, sequence: int, code: str, /) -> None:
        self.answered.append(code)


class Ability:
    """Remembers what it heard."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def cannot_start(self, why: str) -> None:
        self.heard.append(why)

    def started(self) -> None:
        self.heard.append("started")


class Work:
    """Member `a` of a cluster of two, which owns every task, at its work. Implements `ControllerPort`.

    Of the entries in `trouble` (by class), the next proposals fail so; those in `slow` wait for `answer`.
    While there is a `fault`, each step raises it.
    """

    def __init__(
        self, max_runs: int = 4, naps: Naps | None = None, kinds: Mapping[str, KindTerms] | None = None
    ) -> None:
        self.history: History = cluster("a", "b")
        self.runner = Runner()
        self.naps = naps or Naps()
        self.ability = Ability()
        self.lease: LeaseView | None = LeaseView(1, 1)
        self.owners = Owners()
        self.wrong = ""
        self.secrets_lacking: tuple[str, ...] = ()
        self.fault: Exception | None = None
        self.delays_s: list[float] = []
        self.entries: list[Entry] = []
        self.ids: list[ProposalId] = []
        self.trouble: dict[type[Any], list[Exception]] = {}
        self.slow: set[type[Any]] = set()
        self.waiting: list[tuple[Proposal, Future[Result]]] = []
        self.too_large: Callable[[Entry], bool] = lambda _entry: False
        proposer = Proposer("a", 1, self._send, self.naps)
        self.propose, self.insist = proposer.propose, proposer.insist
        self.controller = Controller("a", max_runs, self, self.runner, self.ability, self.naps, kinds)
        self.controller.observe(self.history.state, self.owners, None)

    # -- the member, as its controller sees it

    def state(self) -> State:
        return self.history.state

    def now_us(self) -> int:
        return now_us()

    async def lacking(self, _task: str) -> tuple[str, ...]:
        return self.secrets_lacking

    def live_lease(self) -> LeaseView | None:
        if self.fault is not None:
            raise self.fault
        return self.lease

    def order_of(self, run: Run) -> Order:
        return Order(run.run_id, run.task, "command", "", {}, 1, run.token, run.fire_at_us, run.checkpoint, None, 0.0)

    def standing_aside(self) -> str:
        return self.wrong

    def began_after(self, delay_s: float) -> None:
        self.delays_s.append(delay_s)

    # -- what happens

    def enter(self, entry: Entry) -> Result:
        """An entry of anybody's is applied."""
        result = self.history.do(entry)
        self.controller.observe(self.history.state, self.owners, self.history.last.touched)
        return result

    def answer(self) -> None:
        """What was slow is applied now."""
        waiting, self.waiting = self.waiting, []
        for proposal, future in waiting:
            assert isinstance(proposal.entry, Entry)
            future.set_result(self.enter(proposal.entry))

    def enter_task(self, task: str, at_us: int, **spec: Any) -> None:
        """A task is registered."""
        self.history.put(task, at_us, **spec)
        self.controller.observe(self.history.state, self.owners, self.history.last.touched)

    def due(self, task: str = "t", **spec: Any) -> str:
        """A task with a run that is due: its id."""
        self.history.put(task, **spec)
        result = self.enter(Start(now_us(), task))
        assert result.ok, result
        return str(result.value["run_id"])

    async def launch(self, task: str = "t", **spec: Any) -> Order:
        """A run that is due, claimed and launched."""
        before = len(self.runner.launched)
        self.due(task, **spec)
        await until(lambda: len(self.runner.launched) > before)
        return self.runner.launched[-1]

    async def launch_and_end_uncommitted(self, failures: int) -> Order:
        """A launched run whose attempt has ended; that many proposals of its end fail for want of a majority.

        Returns once the first of them has failed. The next waits for `naps.wake`, so `naps` must be held.
        """
        order = await self.launch()
        self.trouble = {Finish: [NoQuorum()] * failures}
        self.ends(order)
        await until(lambda: self.naps.asked)
        return order

    def run(self, order: Order) -> Run:
        """The run of an attempt, as the state has it."""
        return self.history.state.runs[order.run_id]

    def starts(self, order: Order) -> None:
        self.controller.on_event(AttemptStarted(order.run_id, order.token))

    def asks(self, order: Order, data: bytes, sequence: int = 1) -> None:
        self.controller.on_event(CheckpointAsked(order.run_id, order.token, sequence, data))

    def ends(self, order: Order, end: AttemptEnd = "succeeded", **more: Any) -> None:
        self.controller.on_event(AttemptEnded(order.run_id, order.token, end, **more))

    def of(self, kind: type[Any]) -> list[Any]:
        """The entries of one class that were proposed."""
        return [entry for entry in self.entries if isinstance(entry, kind)]

    def _send(self, proposal: Proposal, timeout_s: float) -> "Future[Result]":
        entry = proposal.entry
        assert isinstance(entry, Entry)
        self.entries.append(entry)
        self.ids.append(proposal.id)
        future: Future[Result] = Future()
        if self.too_large(entry):
            raise EntryTooLarge("1234567 bytes in one proposal")
        if failures := self.trouble.get(type(entry)):
            future.set_exception(failures.pop(0))
        elif type(entry) in self.slow:
            self.waiting.append((proposal, future))
        else:
            future.set_result(self.enter(entry))
        return future


def ended(work: Work) -> list[str]:
    """The states in which runs have ended, in order."""
    return [one.state for one in work.history.ended]
