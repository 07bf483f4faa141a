"""The ports of the controller: the member that it works for, and the runner that it gives orders to."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from node.duty.step import LeaseView
from node.execution.order import Order
from node.replication.proposer import Insisting
from node.state.entries import Entry
from node.state.value import Result, Run, State

Propose = Callable[[Entry, float], Awaitable[Result]]


class ControllerPort(Insisting, Protocol):
    """The part of a member that its controller needs. Its methods are called on the event loop."""

    def state(self) -> State:
        """Return the newest state."""

    def live_lease(self) -> LeaseView | None:
        """Return the live lease of this process's incarnation; None while it has no lease."""

    def order_of(self, run: Run, /) -> Order:
        """Make the runner's order for a claimed run, under the lease that `live_lease` returned last."""

    def standing_aside(self) -> str:
        """Return the reason why this member may not claim new runs; "" if it may."""

    async def lacking(self, task: str, /) -> Sequence[str]:
        """Return a sentence for each secret that the task names and that this member lacks."""

    def began_after(self, delay_s: float, /) -> None:
        """Note that an attempt has begun, `delay_s` after its run was due."""


class RunnerPort(Protocol):
    """The part of `node.execution.runner.Runner` that the controller needs."""

    def expect(self) -> None:
        """Note that an attempt will begin soon."""

    def prepare(self, name: str, start: int, keep: int, /) -> None:
        """Set how many processes of this preparation are needed soon (`start`), and how many may stay (`keep`)."""

    def lead_s(self, name: str, /) -> float:
        """Return the lead time of a preparation, in seconds: a little more than the preparation takes here."""

    def launch(self, what: Order, /) -> None:
        """Start an attempt."""

    def cancel(self, run_id: str, token: int, /) -> None:
        """Ask an attempt to stop."""

    def hand_over(self, run_id: str, token: int, /) -> None:
        """Ask an attempt to stop so that another member can continue."""

    def kill(self, run_id: str, token: int, /) -> None:
        """Kill an attempt now."""

    def fail(self, run_id: str, token: int, error: str, /) -> None:
        """Kill an attempt now, as failed."""

    def checkpoint_done(self, run_id: str, token: int, sequence: int, code: str, /) -> None:
        """Answer a checkpoint."""
