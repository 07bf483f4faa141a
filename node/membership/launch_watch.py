"""Drains a member that cannot start attempts (`node.membership.self_drain`), so that other members do its work.

Without descriptors, processes or memory each claim is given back, and claimed again by its owner, which is the same
member: what is due would wait for as long as the shortage lasts. While no other member is up, it keeps trying.
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
"""Attempts in a row that could not be started, after which the member drains itself."""

REST_S: Final = 15.0
REST_S_MAX: Final = 240.0
"""How long it waits before it checks again: twice as long after each check that fails."""

PROCESS_S: Final = 1.0
"""How long a process that does nothing may take."""

ENOUGH: Final = 16
"""Free descriptors that end the shortage: those of four attempts."""


def shortage() -> str | None:
    """The resource that this machine lacks to start attempts; None if it lacks none. Starts a process; blocks."""
    held: list[int] = []
    try:
        for _ in range(ENOUGH):
            held.append(os.memfd_create("room", os.MFD_CLOEXEC))  # noqa: PERF401 - those before a failure are closed
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

    `drain` is told why, and None when it is over; `shortage` says what is lacking.
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
        """An attempt could not be started: this machine lacks something (`node.execution.launch_health.scarce`)."""
        self._failures += 1
        self._why = why
        self._failed.set()

    def started(self) -> None:
        """An attempt has started here."""
        self._failures, self._rest_s = 0, REST_S

    async def run(self) -> None:
        """Serve until cancelled."""
        while True:
            await self._failed.wait()
            self._failed.clear()
            if self._failures >= AFTER and self._others_are_up():
                self._drain(f"attempts cannot be started here ({self._why})")
                await self._rest()

    async def _rest(self) -> None:
        """Wait until nothing is lacking, or no other member is up."""
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
