"""The environment of a member's Raft: the clock, randomness, and how it connects. Tests give their own.

The library's modules read the same clock and `random` themselves, by names of their own: a test with another clock
has to patch those in `pysyncobj.syncobj` and `pysyncobj.transport` (`testkit.wired` does). `connections` reads the
library's clock directly, since the library compares those times with its own.
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
"""Makes a transport: of this member's core, its node, and the others'."""

MakeSingleCalls = Callable[[RaftCore, Callable[[Node, Any, Message], None], Callable[[Node], None]], SingleCallsPort]
"""Makes `SingleCalls`, with its arguments."""


@dataclass(frozen=True, slots=True)
class Environment:
    """The clock is that of the library, so that times can be compared."""

    clock: Clock = monotonic
    rng: Random = field(default_factory=Random)
    transport: MakeTransport = Transport
    single_calls: MakeSingleCalls = SingleCalls
