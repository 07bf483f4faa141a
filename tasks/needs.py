"""What an attempt needs of the machine: the paths that its params name, programs, and whether it uses the network.

A kind says it (`tasks.kind.Kind.needs`), purely, from checked params. The node has the kernel refuse the attempt
everything else (`node.execution.domain`), so that a fault in a kind, in Spark or in a program opens nothing more.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from tasks.access import Access
from tasks.own_credentials import Group
from tasks.reach import Reach

Use = Literal["read", "write", "run"]


class Tool(NamedTuple):
    """A path of this machine that a kind uses whatever its params are: to `run` it, or to `read` or `write` there."""

    path: str
    use: Use


Tools = Callable[[Mapping[str, str], Access], Iterable[Tool]]
"""Finds the tools on this machine, from a worker's variables and what tasks may reach. Called before the worker is
confined, and before the kind sees the params."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What one attempt needs. Without arguments: nothing but its scratch folder."""

    #: The paths that the params name. Hosts among them are checked by name where they are connected to.
    reaches: tuple[Reach, ...] = ()
    #: Functions that find tools on this machine (`Tools`), each as `module:function`.
    tools: tuple[str, ...] = ()
    #: Whether the attempt uses the network, loopback included. Without it the kernel refuses all sockets but AF_UNIX.
    network: bool = True
    #: By which of the node user's own files hosts are reached, for want of a secret in the params.
    own_credentials: tuple[Group, ...] = ()
    #: Whether the params are a program of the task's author: it gets what the node's user may, without the node's own.
    everything: bool = False
    #: Folders to which `everything` is narrowed, beside programs and libraries; none: it is not.
    roots: tuple[str, ...] = ()
    #: False: nothing is taken away. Only a setting of the member says so, never a task.
    confined: bool = True


UNCONFINED = Needs(everything=True, confined=False)
"""For tests, and commands on members with ROTA_COMMAND_CONFINED=0."""


def unpacked(value: Mapping[str, Any]) -> Needs:
    """The `Needs` from which `dataclasses.asdict` made `value`, which has been through msgpack."""
    lists = {name: tuple(each) for name, each in value.items() if isinstance(each, list)}
    reaches = tuple(Reach._make(map(_tupled, reach)) for reach in lists["reaches"])
    return Needs(**{**value, **lists, "reaches": reaches})


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
