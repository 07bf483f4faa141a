"""A member that cannot start attempts stands aside (`node.membership.self_drain`), so that others take what is due.

Without descriptors, processes or memory each claim is given back, and claimed again by its owner, which is the same
member: what is due would wait for as long as the want lasts. Where no other member is up it goes on trying.
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
"""Attempts that could not be started, one after the other with none between that could, before it stands aside."""

REST_S: Final = 15.0
REST_S_MAX: Final = 240.0
"""How long it rests before it looks whether it can again: twice as long after each time in vain."""

PROCESS_S: Final = 1.0
"""How long a process that does nothing may take."""

ENOUGH: Final = 16
"""Descriptors that must be there before it comes back: four attempts' worth."""


def wanting() -> str | None:
    """What there is too little of to start attempts here, None if there is enough. Starts a process; blocks."""
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
        return "a process does not come to its end within a second"
    return None


class StartWatch:
    """Has member `me` stand aside while nothing can be started here.

    `stand_aside` is told why, and None when it is over; `wanting` says what there is too little of.
    """

    def __init__(
        self,
        me: str,
        state: Callable[[], State],
        stand_aside: Callable[[str | None], None],
        wanting: Callable[[], str | None] = wanting,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._me = me
        self._state = state
        self._stand_aside = stand_aside
        self._wanting = wanting
        self._sleep = sleep
        self._failed = asyncio.Event()
        self._failures = 0
        self._rest_s = REST_S
        self._why = ""

    def cannot_start(self, why: str) -> None:
        """An attempt could not be started, for want of something that this machine has too little of."""
        self._failures += 1
        self._why = why
        self._failed.set()

    def started(self) -> None:
        """An attempt works here."""
        self._failures, self._rest_s = 0, REST_S

    async def run(self) -> None:
        """Serve until cancelled."""
        while True:
            await self._failed.wait()
            self._failed.clear()
            if self._failures >= AFTER and self._others_are_up():
                self._stand_aside(f"attempts cannot be started here ({self._why})")
                await self._rest()

    async def _rest(self) -> None:
        """Until there is enough again, or no other member is left to take what is due."""
        why: str | None = self._why
        while why is not None:
            await self._sleep(self._rest_s)
            self._rest_s = min(2 * self._rest_s, REST_S_MAX)
            why = await asyncio.to_thread(self._wanting) if self._others_are_up() else None
            if why is not None:
                _log.warning("attempts cannot be started here yet (%s): this node stays aside", why)
        self._failures = AFTER - 1  # the next one that fails is enough
        self._failed.clear()
        self._stand_aside(None)

    def _others_are_up(self) -> bool:
        return any(member.status == "up" for member in self._state().members.values() if member.id != self._me)
