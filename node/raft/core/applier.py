"""Committed entries as this product has them: barriers, and batches of proposals for the state machine."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Protocol

from node.raft.errors import Broken
from node.raft.ports import StateMachinePort
from node.state.entries import ProposalId
from node.state.value import Result

PROPOSALS: Final = b"P"
BARRIER: Final = b"B"
"""The first byte of an entry: its kind."""


class AppliedPort(Protocol):
    """A port that is told of each applied entry."""

    def barrier_applied(self, mark: bytes) -> None:
        """A barrier of any member was applied."""

    def applied(self, results: Sequence[tuple[ProposalId, Result]]) -> None:
        """Proposals of any member were applied, with these results."""


class Applier:
    """Implements `ports.EntryApplier` over the state machine. on_term: called with each later term."""

    def __init__(self, machine: StateMachinePort, applied: AppliedPort, on_term: Callable[[int], None]) -> None:
        self._machine, self._applied, self._on_term = machine, applied, on_term

    def apply(self, data: bytes) -> None:
        """Apply the bytes of a committed entry. Raises Broken: `StateMachinePort.apply` must be total."""
        if data[:1] == BARRIER:
            self._applied.barrier_applied(data[1:])
            return
        try:
            results = self._machine.apply(data[1:])
        except Exception as error:
            raise Broken("a committed entry could not be applied") from error
        self._applied.applied(results)

    def capture(self) -> Callable[[], Iterator[bytes]]:
        """As `StateMachinePort.capture`."""
        return self._machine.capture()

    def restore(self, pieces: Iterable[bytes]) -> None:
        """As `StateMachinePort.restore`."""
        self._machine.restore(pieces)

    def term_began(self, term: int) -> None:
        """This member is in a later term. Nothing has been sent in it yet."""
        self._on_term(term)
