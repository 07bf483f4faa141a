"""What has been committed in a history: each entry applied once, by the real `apply`, for all members together.

`apply` is a function, so that members that applied the same entries hold the same state; that they do apply the same
ones is what is checked here. When a history is over, the whole of it is applied again as members do it, batch by batch.
"""

from collections.abc import Callable
from dataclasses import dataclass

from node.duty.ownership import Ownership
from node.state.apply import Applied, apply, apply_batch
from node.state.codec import from_pieces, snapshot_pieces, unpack_batch
from node.state.entries import Proposal, ProposalId
from node.state.value import EndedRun, Result, State
from tests.simulation.disk import Entry
from tests.simulation.world import World

Watch = Callable[[State, Proposal, Applied], None]


@dataclass(frozen=True, slots=True)
class Line:
    """A committed entry, and what it did."""

    entry: Entry
    state: State
    results: tuple[tuple[ProposalId, Result], ...] = ()
    ended: tuple[tuple[int, EndedRun], ...] = ()
    touched: frozenset[str] = frozenset()


class Ledger:
    """The committed log, from entry 1 on. `watch` is shown every proposal as it is applied for the first time."""

    def __init__(self, world: World, watch: Watch) -> None:
        self._world, self._watch = world, watch
        self._lines = [Line(Entry(0, "nothing", b""), State())]
        self._owners: dict[int, Ownership] = {0: Ownership.of(State())}

    @property
    def last(self) -> int:
        """The index of the last entry that is known to be committed."""
        return len(self._lines) - 1

    @property
    def state(self) -> State:
        """The newest state."""
        return self._lines[-1].state

    def state_at(self, index: int) -> State:
        """The state after an entry."""
        return self._lines[index].state

    def take(self, me: str, index: int, entry: Entry) -> Line:
        """A member applies an entry: the first to do so makes it known, the others must have the same one."""
        if index == len(self._lines):
            self._lines.append(self._apply(entry))
        line = self._lines[index]
        if line.entry != entry:
            self._world.wrong(f"{me} applies another entry {index} than others did: {entry} and {line.entry}")
        return line

    def ownership(self, me: str, state: State, before: Ownership, touched: frozenset[str] | None) -> Ownership:
        """The placement of a state as a member computes it; every member must find the same (invariant 5)."""
        mine = before.follow(state, touched)
        known = self._owners.setdefault(state.epoch, mine)
        if mine is not before and mine is not known:
            for task in state.tasks:
                if mine.owner(task) != known.owner(task):
                    self._world.wrong(
                        f"invariant 5: {me} takes {mine.owner(task)} for the owner of {task}, not {known.owner(task)}"
                    )
        return mine

    def replay(self) -> None:
        """Apply all of it again from the beginning, and through a snapshot."""
        state = State()
        for line in self._lines:
            if line.entry.kind == "proposals":
                state = apply_batch(state, line.entry.data).state
        if _bytes(state) != _bytes(self.state):
            self._world.wrong("applied again, the log gives another state")
        if _bytes(from_pieces(snapshot_pieces(state))) != _bytes(state):
            self._world.wrong("the state is another one after a snapshot")

    def _apply(self, entry: Entry) -> Line:
        state = self._lines[-1].state
        if entry.kind != "proposals":
            return Line(entry, state)
        results: list[tuple[ProposalId, Result]] = []
        ended: list[tuple[int, EndedRun]] = []
        touched: set[str] = set()
        for proposal in unpack_batch(entry.data):
            before, applied = state, apply(state, proposal)
            state = applied.state
            results.append((proposal.id, applied.result))
            ended += [(state.index, one) for one in applied.ended]
            touched |= applied.touched
            self._watch(before, proposal, applied)
        return Line(entry, state, tuple(results), tuple(ended), frozenset(touched))


def _bytes(state: State) -> bytes:
    return b"".join(snapshot_pieces(state))
