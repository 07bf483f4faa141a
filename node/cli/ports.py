"""Ports of this machine for nodes that are to be found at the same place again after they were down."""

import socket
import sys
from collections.abc import Iterable
from contextlib import ExitStack, closing, suppress
from typing import Final

HOST: Final = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """As many ports that nobody listens on, given by the kernel."""
    with ExitStack() as stack:
        return [_bind(stack, 0) for _ in range(count)]


def hold(ports: Iterable[int]) -> ExitStack:
    """Keep ports for whoever listens on them with SO_REUSEADDR, until the stack is closed, or gone.

    While a node is down, the kernel may otherwise give its port to any connection that is made on this machine, and the
    node cannot come back. A socket that is bound and never listens prevents that, and does not stand in a listener's
    way (Linux: `__inet_hash_connect` passes by a port that was bound by number). Elsewhere it would: nothing is held
    there. A port that is taken already is left to the node, which says so better.
    """
    held = ExitStack()
    if sys.platform == "linux":
        for port in ports:
            with suppress(OSError):
                _bind(held, port)
    return held


def claim(ports: Iterable[int]) -> ExitStack:
    """Claim ports against every other `claim` on this machine, until the stack is closed, or this process ends.

    A node listens only seconds after `rota up` has seen that its port is free, and until then a second `rota up` sees
    the same. The claim is a socket in Linux's abstract namespace, which leaves no file behind. Raises `OSError` for the
    first port that is claimed already or that somebody listens on; its `filename` is the port.
    """
    with ExitStack() as claimed:
        for port in ports:
            mark = claimed.enter_context(closing(socket.socket(socket.AF_UNIX)))
            try:
                mark.bind(f"\0rota-up-{port}")
                with ExitStack() as probe:
                    _bind(probe, port)
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(port)) from error
        return claimed.pop_all()


def _bind(stack: ExitStack, port: int) -> int:
    one = stack.enter_context(closing(socket.socket()))
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind((HOST, port))
    return int(one.getsockname()[1])
