"""Reserves ports of this machine for nodes that must come back on the same port after a restart."""

import socket
import sys
from collections.abc import Iterable
from contextlib import ExitStack, closing, suppress
from typing import Final

HOST: Final = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """Find `count` unused ports, chosen by the kernel."""
    with ExitStack() as stack:
        return [_bind(stack, 0) for _ in range(count)]


def hold(ports: Iterable[int]) -> ExitStack:
    """Reserve ports for listeners with SO_REUSEADDR until the stack is closed.

    Without this, the kernel may give the port of a stopped node to an outgoing connection of another process, and the
    node cannot restart. A socket that is bound but never listens prevents that and does not block a listener (Linux:
    `__inet_hash_connect` skips ports that were bound explicitly). On other systems such a socket would block the
    listener, so no port is reserved there. A port that is in use is skipped, because the node itself reports it.
    """
    held = ExitStack()
    if sys.platform == "linux":
        for port in ports:
            with suppress(OSError):
                _bind(held, port)
    return held


def claim_ports(ports: Iterable[int]) -> ExitStack:
    """Claim ports against every other `claim_ports` on this machine until the stack is closed or this process ends.

    A node listens only seconds after `rota up` has found its port free; until then a second `rota up` would find it
    free too. The claim is a socket in Linux's abstract namespace, which leaves no file. Raises `OSError` for the first
    port that is claimed already or has a listener; its `filename` is the port.
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
