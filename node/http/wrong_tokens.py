"""Who shows wrong tokens, and how many: a number a while from each address, then 429. Pure.

Each address may show `BURST` wrong ones, and one more every `EVERY_S` seconds. The right token is looked at first and
let in whatever came from its address before: behind a proxy, all clients have one address, and a stranger must not lock
them out. What makes guessing vain is the token's length; this makes it seen, and answers it at little cost.
"""

from collections import OrderedDict
from math import ceil
from typing import Final

BURST: Final = 20
"""How many wrong tokens an address may show at once: a person's mistakes, a few programs with an old token."""

EVERY_S: Final = 3.0
"""After so many seconds, an address may show one more."""

NEWS_S: Final = 60.0
"""After so many seconds it is worth another line in the log that tokens are refused."""

ORIGINS_MAX: Final = 4096
"""So many addresses are remembered; the one that was wrong longest ago is forgotten first."""


class WrongTokens:
    """Counts wrong tokens by origin (see `connection_limits.origin_of`). Times are seconds of one monotonic clock."""

    def __init__(self, burst: int = BURST, every_s: float = EVERY_S, origins_max: int = ORIGINS_MAX) -> None:
        self._burst, self._every_s, self._origins_max = burst, every_s, origins_max
        self._spent_until_s: OrderedDict[str, float] = OrderedDict()
        self._next_news_s = float("-inf")

    def __len__(self) -> int:
        return len(self._spent_until_s)

    def wrong(self, origin: str, now_s: float) -> int | None:
        """Note a wrong token. Returns None where it is answered as such; else in how many seconds the next one is.

        >>> tokens = WrongTokens(burst=2, every_s=3)
        >>> [tokens.wrong("10.0.0.7", now_s) for now_s in (0, 0, 0, 1, 3, 3)]
        [None, None, 3, 2, None, 3]
        """
        # One number says it all: when the address has all its tries again. Each wrong token puts that off.
        until_s = max(now_s, self._spent_until_s.get(origin, now_s)) + self._every_s
        wait_s = until_s - now_s - self._burst * self._every_s
        if wait_s > 0:
            return ceil(wait_s)
        self._spent_until_s[origin] = until_s
        self._spent_until_s.move_to_end(origin)
        if len(self._spent_until_s) > self._origins_max:
            self._spent_until_s.popitem(last=False)
        return None

    def is_news(self, now_s: float) -> bool:
        """Whether to log that a wrong token came too soon: once in `NEWS_S`, whoever it is from."""
        if now_s < self._next_news_s:
            return False
        self._next_news_s = now_s + NEWS_S
        return True
