"""Drains a member that cannot start attempts (`node.membership.self_drain`), so that other members do its work.

A member without free descriptors, processes or memory gives back each claim; as the owner of the task, it would claim
the run again, and due tasks would wait until the shortage ends. While no other member is up, this member keeps trying.
"""

import asyncio
import logging
import os
import subprocess
from collections.abc import Awaitable, Callable
from typing import Final

from node.execution.launch_health import scarce
from node.state.value import State

_log = logging.getLogger("rota.member")

AFTER: Final = 2
"""The member drains itself after this many attempts in a row that could not be started."""

REST_S: Final = 15.0
REST_S_MAX: Final = 240.0
"""How long the member waits before it checks again: first `REST_S`, then twice as long after each failed check."""

PROCESS_S: Final = 1.0
"""How long an empty process may take to start and end."""

ENOUGH: Final = 16
"""This many free descriptors end a shortage: enough for four attempts."""


def shortage() -> str | None:
    """Return which resource this machine lacks to start attempts; None: it lacks no resource.

    Blocks, since it starts a process.
    """
    held: list[int] = []
    try:
        for _ in range(ENOUGH):
            held.append(os.memfd_create("room", os.MFD_CLOEXEC))  # noqa: PERF401 - closed after an error, too
    except OSError as error:
        return error.strerror
    finally:
        for descriptor in held:
            os.close(descriptor)
    try:
        subprocess.run(["/bin/sh", "-c", ":"], check=False, stdin=subprocess.DEVNULL, timeout=PROCESS_S)
    except OSError as error:
        return error.strerror if scarce(error) else None
    except subprocess.TimeoutExpired:
        return f"a process did not end within {PROCESS_S:g} s"
    return None


class LaunchWatch:
    """Drains member `me` while no attempt can be started here.

    `drain` receives the reason, and None when the member can start attempts again. `shortage` returns the lacking
    resource.
    """

    def __init__(
        self,
        me: str,
        state: Callable[[], State],
        drain: Callable[[str | None], None],
        shortage: Callable[[], str | None] = shortage,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._me = me
        self._state = state
        self._drain = drain
        self._shortage = shortage
        self._sleep = sleep
        self._failed = asyncio.Event()
        self._failures = 0
        self._rest_s = REST_S
        self._why = ""

    def cannot_start(self, why: str) -> None:
        """Note that an attempt could not be started because of a shortage (`node.execution.launch_health.scarce`)."""
        self._failures += 1
        self._why = why
        self._failed.set()

    def started(self) -> None:
        """Note that an attempt has started here."""
        self._failures, self._rest_s = 0, REST_S

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self._failed.wait()
            self._failed.clear()
            if self._failures >= AFTER and self._others_are_up():
                self._drain(f"attempts cannot be started here ({self._why})")
                await self._rest()

    async def _rest(self) -> None:
        """Wait until the shortage ends or no other member is up, then end the drain."""
        why: str | None = self._why
        while why is not None:
            await self._sleep(self._rest_s)
            self._rest_s = min(2 * self._rest_s, REST_S_MAX)
            why = await asyncio.to_thread(self._shortage) if self._others_are_up() else None
            if why is not None:
                _log.warning("attempts cannot be started here yet (%s): this node stays drained", why)
        self._failures = AFTER - 1  # one more failure drains it again
        self._failed.clear()
        self._drain(None)

    def _others_are_up(self) -> bool:
        return any(member.status == "up" for member in self._state().members.values() if member.id != self._me)
