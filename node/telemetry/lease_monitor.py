"""Says in the log that this member has had no lease for a while, and that it has one again."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

_log = logging.getLogger("rota.lapses")

TELL_AFTER_S: Final = 3.0
"""An election is over before that: it is part of a cluster's life, and no news."""

LOOK_S: Final = 0.5


class Lapse:
    """Decides what is to be said. `begun_s` is when the member began: it has no lease then."""

    def __init__(self, begun_s: float) -> None:
        self._since_s: float | None = begun_s
        self._told = False

    def look(self, now_s: float, held: bool, leader: str | None) -> tuple[int, str] | None:
        """The level and the text of what is to be said now; None: nothing. `leader` as it is known here.

        >>> lapse = Lapse(0.0)
        >>> lapse.look(1.0, held=True, leader="a"), lapse.look(2.0, held=False, leader=None)
        (None, None)
        >>> lapse.look(5.5, held=False, leader=None)[1]
        'no lease for 3.5 s, and no leader is known: nothing starts here, and what runs is frozen until there is one'
        >>> lapse.look(9.0, held=True, leader="b")[1]
        'a lease again, after 7.0 s'
        """
        if held:
            since_s, told = self._since_s, self._told
            self._since_s, self._told = None, False
            return (logging.INFO, f"a lease again, after {now_s - (since_s or now_s):.1f} s") if told else None
        if self._since_s is None:
            self._since_s = now_s
        for_s = now_s - self._since_s
        if self._told or for_s < TELL_AFTER_S:
            return None
        self._told = True
        why = "no leader is known" if leader is None else f"{leader}, which leads, grants none"
        return (
            logging.WARNING,
            f"no lease for {for_s:.1f} s, and {why}: nothing starts here, and what runs is frozen until there is one",
        )


async def tell_of_lapses(held: Callable[[], bool], leader: Callable[[], str | None]) -> None:
    """Serve until cancelled."""
    clock = asyncio.get_running_loop().time
    lapse = Lapse(clock())
    while True:
        await asyncio.sleep(LOOK_S)
        said = lapse.look(clock(), held(), leader())
        if said is not None:
            _log.log(*said)
