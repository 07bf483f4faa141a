"""What all requests to one node share."""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from node.http.call import Limits
from node.http.events import Hub
from node.http.metrics import Metrics
from node.http.surface import Node
from node.peers import Peers
from node.state.value import State

if TYPE_CHECKING:
    from node.http.endpoint import Endpoint


class TaskNames:
    """The names of all tasks in order, sorted once for each epoch: every change of the set of tasks bumps it."""

    def __init__(self) -> None:
        self._of: tuple[str, int] | None = None
        self._names: list[str] = []

    def after(self, state: State, name: str | None) -> list[str]:
        """Those after `name`, or all."""
        version = (state.cluster_id, state.epoch)
        if self._of != version:
            self._names = sorted(state.tasks)
            self._of = version
        return self._names[bisect_right(self._names, name) :] if name is not None else self._names


@dataclass(frozen=True, slots=True)
class Service:
    """The node, and what its HTTP keeps beside it. `now_us` is the wall clock."""

    node: Node
    peers: Peers
    limits: Limits
    metrics: Metrics
    hub: Hub
    now_us: Callable[[], int]
    member_token: str
    endpoints: tuple["Endpoint", ...]
    names: TaskNames = field(default_factory=TaskNames)
