"""A member as its membership services see it, of what a test says."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from node.raft.ports import RaftRole
from node.state.entries import Entry
from node.state.value import Result, State
from tests.unit.node.state.given import NOW_US


async def _nothing(_entry: Entry, _timeout_s: float) -> Result:
    raise AssertionError("nothing is to be proposed")


@dataclass
class FakeMember:
    """Implements `node.replication.proposer.MemberPort`."""

    me: str
    state: Callable[[], State]
    propose: Callable[[Entry, float], Coroutine[Any, Any, Result]] = _nothing
    role: Callable[[], RaftRole] = RaftRole
    standing: Callable[[], int | None] = lambda: None

    def now_us(self) -> int:
        return NOW_US
