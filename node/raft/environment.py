"""The environment of a member's Raft: the clock, randomness, and the connections. Tests pass their own.

The library's modules import the clock and `random` themselves: a test with another clock has to patch them in
`pysyncobj.syncobj` and `pysyncobj.transport` (`testkit.raft.wired` does). `connections` reads the library's clock
directly, because the library compares the times of connections with its own.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from pysyncobj.monotonic import monotonic
from pysyncobj.node import Node

from node.raft.core.parts import Clock, RaftCore, SingleCallsPort
from node.raft.transport.transport import Transport
from node.raft.wire.messages import Message
from node.raft.wire.single_call import SingleCalls

MakeTransport = Callable[[RaftCore, Node, set[Node]], Transport]
"""Makes a transport from this member's core, its node, and the nodes of the other members."""

MakeSingleCalls = Callable[[RaftCore, Callable[[Node, Any, Message], None], Callable[[Node], None]], SingleCallsPort]
"""Makes a `SingleCalls`; the arguments are those of its constructor."""


@dataclass(frozen=True, slots=True)
class Environment:
    """The environment of one member's Raft. The default clock is the library's, so that both use comparable times."""

    clock: Clock = monotonic
    rng: Random = field(default_factory=Random)
    transport: MakeTransport = Transport
    single_calls: MakeSingleCalls = SingleCalls
