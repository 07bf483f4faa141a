"""What outlives a member's process: term, vote and log, of which the end may not be durable yet."""

import random
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from node.membership.addresses import Agreed
from node.raft.core.prevote import Standing
from node.raft.founding.statement import Binding, KnownCluster


class Entry(NamedTuple):
    """One entry of the log: packed proposals, the members from here on, or nothing."""

    term: int
    kind: Literal["proposals", "members", "nothing"]
    data: bytes
    members: tuple[str, ...] = ()


@dataclass
class Disk:
    """One member's. Entries are numbered from 1; `log[0]` is entry `base + 1`; those up to `durable` are durable.

    `snapshot` is the index up to which the state is kept, at least `base`. `voter`: see `node.raft.core.prevote`.
    `session` is that of the last start; `life` counts the disks before this one. `bound`, `told` and `cluster_id`: what
    is kept of a founding, and of which cluster the member is.
    """

    first_members: tuple[str, ...]
    term: int = 0
    vote: str | None = None
    voter: bool = False
    base: int = 0
    base_term: int = 0
    base_members: tuple[str, ...] = ()
    snapshot: int = 0
    log: list[Entry] = field(default_factory=list)
    durable: int = 0
    session: int = 0
    life: int = 0
    bound: Binding | None = None
    told: KnownCluster | None = None
    cluster_id: str = ""
    agreed: dict[str, Agreed] = field(default_factory=dict)
    """The members' addresses, as last agreed on."""
    generation: int = 0
    """Counts truncations: what was being written before one is not what is there after it."""

    def __post_init__(self) -> None:
        self.base_members = self.base_members or self.first_members
        self.members = self.base_members

    @property
    def last(self) -> int:
        """The index of the last entry."""
        return self.base + len(self.log)

    def term_at(self, index: int) -> int:
        """The term of an entry that is here, or of the one before the first."""
        base = self.base
        return self.base_term if index == base else self.log[index - base - 1].term

    def entry(self, index: int) -> Entry:
        """An entry that is here."""
        return self.log[index - self.base - 1]

    def after(self, index: int, most: int) -> list[Entry]:
        """The entries that follow `index`, as many at most."""
        return self.log[index - self.base : index - self.base + most]

    @property
    def standing(self) -> Standing:
        """What a vote is decided by."""
        return Standing(self.term_at(self.last), self.last)

    def append(self, entry: Entry) -> None:
        """One more, not durable yet. Members count from the moment they are in the log."""
        self.log.append(entry)
        if entry.kind == "members":
            self.members = entry.members

    def truncate(self, index: int) -> None:
        """Entries after `index` are not the leader's."""
        del self.log[index - self.base :]
        self.durable = min(self.durable, index)
        self.generation += 1
        self.members = self.members_at(index)

    def members_at(self, index: int) -> tuple[str, ...]:
        """The members by the log up to an index."""
        for entry in reversed(self.log[: index - self.base]):
            if entry.kind == "members":
                return entry.members
        return self.base_members

    def list_is(self, members: tuple[str, ...]) -> None:
        """The list of members is another one, which counts as long as there is no log and no founding."""
        self.first_members = members
        if self.bound is None and not self.voter and self.standing.empty:
            self.begin_with(members)

    def begin_with(self, members: tuple[str, ...]) -> None:
        """The log, which is empty, begins with these."""
        self.base_members = self.members = members

    def compact(self, applied: int, keep: int) -> None:
        """A snapshot of what is applied; some entries before it are kept for members a little behind."""
        base = max(self.base, applied - keep)
        self.base_members, term = self.members_at(base), self.term_at(base)
        del self.log[: base - self.base]
        self.base, self.base_term, self.snapshot = base, term, applied
        self.durable = max(self.durable, applied)

    def install(self, index: int, term: int, members: tuple[str, ...]) -> None:
        """The leader's snapshot takes the place of everything."""
        self.log.clear()
        self.base = self.snapshot = self.durable = index
        self.base_term, self.base_members, self.members = term, members, members
        self.generation += 1

    def crash(self, rng: random.Random) -> None:
        """The power goes: of what was not durable a part may be there all the same, from its beginning."""
        kept = rng.randint(self.durable, self.last)
        if kept < self.last:
            self.truncate(kept)
        self.durable = self.last
