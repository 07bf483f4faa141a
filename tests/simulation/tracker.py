"""What a leader knows of the members' logs."""

from collections.abc import Iterable

from tests.simulation.disk import Disk


class Tracker:
    """When each member was heard, how much of the log it has acknowledged, and what it is sent next.

    `me` is the leader, and `disk` its own.
    """

    def __init__(self, me: str, disk: Disk) -> None:
        self._me, self._disk = me, disk
        self._heard_s: dict[str, float] = {}
        self._next: dict[str, int] = {}
        self._match: dict[str, int] = {}

    def begin(self, now_s: float) -> None:
        """A term as leader begins. Nothing is known of the logs."""
        self._next, self._match = {}, {}
        self._heard_s = dict.fromkeys(self._disk.members, now_s)

    def heard(self, name: str, now_s: float) -> None:
        """The member has answered."""
        self._heard_s[name] = now_s

    def majority_heard(self, since_s: float, never_s: float = 0.0) -> bool:
        """Whether a majority was heard after `since_s`; one that never was counts as heard at `never_s`."""
        members = self._disk.members
        near = sum(name == self._me or self._heard_s.get(name, never_s) > since_s for name in members)
        return 2 * near > len(members)

    def differs(self, name: str, hint: int) -> None:
        """The member's log differs: it may be the same up to `hint`."""
        # Less than it had acknowledged: it has lost its disk.
        self._match[name] = min(self._match.get(name, 0), hint)
        self._next[name] = min(hint + 1, self._next.get(name, hint + 1))

    def matches(self, name: str, matched: int) -> None:
        """The member's log is the same up to `matched`, and durable."""
        self._match[name] = max(matched, self._match.get(name, 0))
        self._next[name] = max(self._next.get(name, 0), matched + 1)

    def lags(self, name: str) -> bool:
        """Whether there are entries to send to the member."""
        return self._next[name] <= self._disk.last

    def sent_up_to(self, name: str) -> int:
        """The last entry that the member was sent."""
        last = self._disk.last
        return min(self._next.get(name, last + 1) - 1, last)

    def sent(self, name: str, upto: int) -> None:
        """The member is sent entries up to `upto`."""
        self._next[name] = upto + 1

    def has(self, index: int) -> set[str]:
        """The other members that have the entry."""
        return {name for name, matched in self._match.items() if matched >= index}

    def longest(self, names: Iterable[str], at_least: int) -> str | None:
        """That one of the members with the longest log, if it has the entry `at_least`."""
        able = [name for name in names if self._match.get(name, 0) >= at_least]
        return max(able, key=lambda name: self._match.get(name, 0)) if able else None

    def agreed(self) -> int:
        """The last entry that a majority has on its disks."""
        members, match = self._disk.members, self._match
        has = sorted([match.get(n, 0) if n != self._me else self._disk.durable for n in members], reverse=True)
        return has[len(members) // 2]
