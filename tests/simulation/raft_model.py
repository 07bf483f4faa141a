"""A small Raft (Ongaro and Ousterhout 2014, figure 2): elections and a committed log, to drive liveness with.

Entries are opaque. What must survive a crash is `Disk`; the rest dies with the process.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.world import World

Entry = tuple[Any, ...]

ELECTION_S = (0.5, 1.0)
APPEND_S = 0.15
SNAPSHOT_EVERY = 10


@dataclass
class Disk:
    """Term, vote and log of one member, and how much of the log its last snapshot holds."""

    term: int = 0
    vote: str | None = None
    log: list[tuple[int, Entry]] = field(default_factory=list)
    snapshot: int = 0


class RaftModel:
    """One member's Raft process."""

    def __init__(
        self,
        me: str,
        names: list[str],
        disk: Disk,
        world: World,
        peer: Callable[[str], "RaftModel"],
        on_apply: Callable[[Entry], None],
        on_role: Callable[[], None],
    ) -> None:
        self.me, self.disk, self.leader = me, disk, None if len(names) > 1 else me
        self._names, self._world, self._peer = names, world, peer
        self._on_apply, self._on_role = on_apply, on_role
        self._commit = self._applied = 0
        self._votes: set[str] = set()
        self._candidate = False
        self._next: dict[str, int] = {}
        self._match: dict[str, int] = {}
        self._deadline_s = self._patience()

    def start(self) -> None:
        """From the snapshot on: what was committed after it is learnt from the next leader, or by becoming it."""
        self._advance(self.disk.snapshot)
        self._tick()

    @property
    def leading(self) -> bool:
        """Whether this one leads in its term."""
        return self.leader == self.me

    def propose(self, entry: Entry) -> None:
        """Append, if this one leads; otherwise the entry is lost, as it may be in the real one."""
        if self.leading:
            self.disk.log.append((self.disk.term, entry))
            self._broadcast()

    def _patience(self) -> float:
        return self._world.now_s + self._world.rng.uniform(*ELECTION_S)

    def _tick(self) -> None:
        if self.leading:
            self._broadcast()
        elif self._world.now_s >= self._deadline_s:
            self._deadline_s = self._patience()
            self._enter(self.disk.term + 1, None)
            self.disk.vote, self._candidate, self._votes = self.me, True, {self.me}
            last = self._last()
            term = self.disk.term
            for name in self._others():
                self._send(name, lambda to: to.asked(self.me, term, last))
        self._world.within(self.me, "raft", APPEND_S if self.leading else 0.1, self._tick, last=True)

    def asked(self, candidate: str, term: int, last: tuple[int, int]) -> None:
        """RequestVote."""
        self._see(term)
        if term < self.disk.term or self.disk.vote not in (None, candidate) or last < self._last():
            return
        self.disk.vote, self._deadline_s = candidate, self._patience()
        self._send(candidate, lambda to: to.voted(self.me, term))

    def voted(self, voter: str, term: int) -> None:
        """A vote for this one."""
        self._see(term)
        if term != self.disk.term or not self._candidate:
            return
        self._votes.add(voter)
        if len(self._votes) > len(self._names) // 2:
            self._candidate = False
            self._next = dict.fromkeys(self._names, len(self.disk.log))
            self._match = dict.fromkeys(self._names, 0)
            self._enter(term, self.me)
            self.propose(("lead", term, self.me))

    def append(
        self, leader: str, term: int, at: int, at_term: int, entries: list[tuple[int, Entry]], commit: int
    ) -> None:
        """AppendEntries: `entries` follow position `at`, whose term is `at_term`. Truncates on conflict only."""
        self._see(term)
        if term < self.disk.term:
            return
        self._candidate, self._deadline_s = False, self._patience()
        if self.leader != leader:
            self._enter(term, leader)
        log = self.disk.log
        if at > len(log) or (at and log[at - 1][0] != at_term):
            self._send(leader, lambda to: to.appended(self.me, term, None, min(at - 1, len(log))))
            return
        for position, entry in enumerate(entries, at):
            if position < len(log) and log[position][0] != entry[0]:
                del log[position:]
            if position >= len(log):
                log.append(entry)
        matched = at + len(entries)
        self._advance(min(commit, matched))
        self._send(leader, lambda to: to.appended(self.me, term, matched, 0))

    def appended(self, follower: str, term: int, matched: int | None, hint: int) -> None:
        """The answer to AppendEntries; `matched` None: the logs differ, go on from `hint`."""
        self._see(term)
        if term != self.disk.term or not self.leading:
            return
        if matched is None:
            self._next[follower] = max(self._match[follower], min(hint, self._next[follower]))
            return
        self._match[follower] = max(matched, self._match[follower])
        self._next[follower] = max(self._next[follower], self._match[follower])
        places = sorted([len(self.disk.log), *(self._match[name] for name in self._others())], reverse=True)
        agreed = places[len(self._names) // 2]
        if agreed and self.disk.log[agreed - 1][0] == self.disk.term:
            self._advance(agreed)

    def _advance(self, commit: int) -> None:
        self._commit = max(self._commit, commit)
        while self._applied < self._commit:
            self._applied += 1
            self._on_apply(self.disk.log[self._applied - 1][1])
        self.disk.snapshot = max(self.disk.snapshot, self._applied - self._applied % SNAPSHOT_EVERY)

    def _see(self, term: int) -> None:
        if term > self.disk.term:
            self._enter(term, None)

    def _enter(self, term: int, leader: str | None) -> None:
        if term > self.disk.term:
            self.disk.term, self.disk.vote, self._candidate = term, None, False
        self.leader = leader
        self._on_role()

    def _last(self) -> tuple[int, int]:
        return (self.disk.log[-1][0] if self.disk.log else 0, len(self.disk.log))

    def _others(self) -> list[str]:
        return [name for name in self._names if name != self.me]

    def _broadcast(self) -> None:
        for name in self._others():
            self._send_entries(name, self._next[name])

    def _send_entries(self, name: str, at: int) -> None:
        log, me, term, commit = self.disk.log, self.me, self.disk.term, self._commit
        entries, at_term = log[at:], log[at - 1][0] if at else 0
        self._send(name, lambda to: to.append(me, term, at, at_term, entries, commit))

    def _send(self, name: str, call: Callable[["RaftModel"], None]) -> None:
        self._world.send(self.me, name, "raft", lambda: call(self._peer(name)))
