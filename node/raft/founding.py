"""Who founds a cluster, and when (pure). DESIGN.md, section 7: once, by all.

A node without anything (no log, no vote, no cluster that it was ever told of) tells every member of its list how it
stands, and asks the same of them. When all of them have answered that they have nothing, and have the same list, it
binds itself to that founding, on its disk. A founding is this list and the data folders of its members (their lives),
so a folder that is lost and begun again is no part of it. When all have bound themselves, the first election may be
held, among them and by majority, as any other.

There is one cluster, because a folder is bound to one founding only, and an election needs a founding to which all are
bound: two foundings that have a folder in common cannot both come that far. A list that is changed meanwhile, a disk
that is lost while the others are away, do not matter; that all lists and folders are others does.

Whoever is to found without a member that is lost says so by hand (`Founding.leave_out`). Each of the others accepts it
only if it does not hear that member either. A folder may leave its founding for one with fewer members as long as it
has not voted; those who are left out are at most half, so they alone can never hold the election of the former one.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any, Final

SILENT_S: Final = 5.0
"""A member that was not heard for so long may be left out by hand."""

FRESH_S: Final = 3.0
"""An answer counts as one for so long; it is asked for again and again."""


@dataclass(frozen=True, slots=True)
class Statement:
    """How a member stands.

    life: its data folder's. roll: a digest of its list and of those left out by hand. free: it has nothing, and would
    bind itself. founding: to which it is bound; empty: to none. complete: it knows that all are bound to that one.
    cluster_id: that of its cluster (`belongs`), or of one that it was told of, of which `told_by` is. members: its
    list, or the members of its cluster by its log; without: those left out. Both are empty in a question.
    """

    member: str
    life: int
    roll: str
    free: bool
    founding: str = ""
    complete: bool = False
    cluster_id: str = ""
    told_by: str = ""
    belongs: bool = False
    members: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def question(self) -> dict[str, Any]:
        """As a message that anybody takes: it is short, however long the list."""
        return {**self.message(), "members": [], "without": []}

    def message(self) -> dict[str, Any]:
        """As a message."""
        return {**asdict(self), "members": list(self.members), "without": list(self.without)}


def read(message: Mapping[str, Any]) -> Statement:
    """A statement out of a message. Raises KeyError, TypeError or ValueError if it is none."""
    return Statement(
        str(message["member"]),
        int(message["life"]),
        str(message["roll"]),
        bool(message["free"]),
        str(message["founding"]),
        bool(message["complete"]),
        str(message["cluster_id"]),
        str(message["told_by"]),
        bool(message["belongs"]),
        tuple(str(one) for one in message["members"]),
        tuple(str(one) for one in message["without"]),
    )


@dataclass(frozen=True, slots=True)
class Told:
    """There is a cluster: its id, and the member of it that said so, or of which that was said."""

    cluster_id: str
    by: str

    def note(self) -> str:
        """As it is kept."""
        return f"{self.cluster_id} {self.by}"


def told_by(note: str) -> Told | None:
    """What `Told.note` has kept; None if nothing."""
    cluster_id, _, by = note.partition(" ")
    return Told(cluster_id, by) if cluster_id else None


@dataclass(frozen=True, slots=True)
class Bound:
    """The founding to which this member is bound: of which list, and who was left out of it by hand."""

    founding: str
    listed: frozenset[str]
    without: frozenset[str] = frozenset()

    @property
    def members(self) -> frozenset[str]:
        """Who founds."""
        return self.listed - self.without

    def note(self) -> str:
        """As it is kept."""
        return json.dumps([self.founding, sorted(self.listed), sorted(self.without)])


def bound_by(note: str) -> Bound | None:
    """What `Bound.note` has kept; None if nothing."""
    if not note:
        return None
    founding, listed, without = json.loads(note)
    return Bound(founding, frozenset(listed), frozenset(without))


@dataclass(frozen=True, slots=True)
class FoundingWait:
    """Why no cluster is founded yet.

    silent: the members that have not answered. differing: by member whose list is another one, the ids that it lacks
    and those that it has besides. held: by member that has answered, and cannot found, why.
    """

    silent: tuple[str, ...] = ()
    differing: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = ()
    held: tuple[tuple[str, str], ...] = ()
    without: tuple[str, ...] = ()

    def __str__(self) -> str:
        reasons = []
        if self.silent:
            have = "has" if len(self.silent) == 1 else "have"
            reasons.append(f"{_names(self.silent)} {have} not answered (not started, out of reach, or another secret)")
        for member, lacks, adds in self.differing:
            lacking = [f"it lacks {_names(lacks)}"] if lacks else []
            adding = [f"it names {_names(adds)} besides"] if adds else []
            reasons.append(
                f"the list of members that {member} has (ROTA_MEMBERS) differs from the one here: "
                + (" and ".join(lacking + adding) or "others are left out of it by hand")
            )
        reasons += [f"{member} {why}" for member, why in self.held]
        if not reasons:
            return "all members have answered: the first election is next"
        beside = f" (without {_names(self.without)}, by hand)" if self.without else ""
        return f"waiting to found a cluster{beside}: {'; '.join(reasons)}"


@dataclass(frozen=True, slots=True)
class ClusterElsewhere:
    """There is a cluster, and this node is not of it yet: it will never found one.

    told_by: the member of it that said so first. members: those that have said themselves, to this process, that they
    are of it. knows_me: whether this node is a member there, by their logs; None while none of them has been heard.
    remedy: what is done about it that it is not, or is to be done (`node.membership.auto_join`).
    """

    cluster_id: str
    told_by: str
    members: tuple[str, ...] = ()
    knows_me: bool | None = None
    remedy: str = ""

    def __str__(self) -> str:
        of_it = self.members or (self.told_by,)
        who = f"cluster {self.cluster_id}, of which {_names(of_it)} {'is' if len(of_it) == 1 else 'are'}"
        if self.knows_me:
            return f"this node is a member of {who}, and waits for its leader"
        if self.knows_me is None:
            return f"there is a {who}: this node founds none beside it, and waits until that one can be reached"
        return f"there is a {who}, and this node is no member of it: {self.remedy or 'have it let in (rota join)'}"


Outlook = FoundingWait | ClusterElsewhere | None
"""What a node without a cluster waits for; None: it is of a cluster."""


@lru_cache(maxsize=64)
def roll_of(members: frozenset[str], without: frozenset[str]) -> str:
    """A digest of a list, in whatever order, and of those left out."""
    return _digest([sorted(members), sorted(without)])


@dataclass(slots=True)
class Founding:
    """What one member knows of it. `listed`: the ids of its list, its own among them.

    blank: it has no log, has voted for nobody, has lost nothing and is of no cluster. voted: it takes part in its
    founding's first election, or has.
    """

    me: str
    life: int
    listed: frozenset[str]
    begun_s: float
    told: Told | None = None
    bound: Bound | None = None
    blank: bool = True
    voted: bool = False
    without: frozenset[str] = frozenset()
    statements: dict[str, Statement] = field(default_factory=dict)
    heard_s: dict[str, float] = field(default_factory=dict)
    news: Told | None = None

    def __post_init__(self) -> None:
        if self.bound is not None:
            self.listed, self.without = self.bound.listed, self.bound.without

    # -- what it says

    @property
    def roll(self) -> str:
        """The digest of this list."""
        return roll_of(self.listed, self.without)

    @property
    def founding(self) -> str:
        """To which it is bound."""
        return self.bound.founding if self.bound is not None else ""

    @property
    def free(self) -> bool:
        """Whether it would bind itself: to its first founding, or to one of fewer than the one before."""
        heard = self.told is not None or self.news is not None
        return self.blank and not heard and (self.bound is None or self.bound.without < self.without)

    @property
    def complete(self) -> bool:
        """Whether all that are to found are known to be bound, so that the first election may be held."""
        if self.bound is None:
            return False
        if self.voted:
            return True
        others = [self.statements.get(name) for name in self.bound.members - {self.me}]
        here = [one for one in others if one is not None and one.founding == self.bound.founding]
        return len(here) == len(others) or any(one.complete for one in here)

    def statement(self, cluster_id: str = "", members: Iterable[str] = ()) -> Statement:
        """How it stands; `cluster_id` and `members` are those of its cluster, if it is of one."""
        told = Told(cluster_id, self.me) if cluster_id else self.told or Told("", "")
        return Statement(
            self.me,
            self.life,
            self.roll,
            self.free,
            self.founding,
            self.complete,
            told.cluster_id,
            told.by,
            bool(cluster_id),
            tuple(sorted(members if cluster_id else self.listed)),
            tuple(sorted(self.without)),
        )

    # -- what it hears

    def hear(self, said: Statement, now_s: float) -> None:
        """A member has said how it stands, itself and just now."""
        if said.member == self.me:
            return
        if said.cluster_id:
            # It may say so of this one itself, which has lost what it had.
            self.hear_of(said.cluster_id, said.told_by if said.told_by != self.me else said.member)
        if said.member not in self.listed:
            return
        before = self.statements.get(said.member)
        if not said.members and before is not None and before.roll == said.roll:
            said = _with_lists(said, before)
        self.statements[said.member] = said
        self.heard_s[said.member] = now_s
        if said.member in self.without and (self.bound is None or said.member not in self.bound.without):
            self.without -= {said.member}
        theirs = frozenset(said.without)
        if theirs > self.without and frozenset(said.members) == self.listed and not self.why_not(theirs, now_s):
            self.without = theirs

    def hear_of(self, cluster_id: str, by: str) -> None:
        """Somebody is of a cluster that counts on this member, or has been told of one."""
        if self.news is None:
            self.news = Told(cluster_id, by)

    def why_not(self, without: Iterable[str], now_s: float) -> str | None:
        """Why these may not be left out of the founding (what is wrong, and what to do); None: they may."""
        out = frozenset(without)
        told = self.told or self.news
        if told is not None:
            return f"there is a cluster, {told.cluster_id}, of which {told.by} is: nothing is to be founded beside it"
        if not self.blank:
            return f"{self.me} has taken part in an election or a cluster already: bring the missing members back"
        if unknown := out - self.listed:
            return f"{_names(unknown)} is not in the list of members here: {_names(self.listed)} (ROTA_MEMBERS)"
        if self.me in out:
            return f"{self.me} itself is to be left out: ask one of the others"
        if 2 * len(out) > len(self.listed):
            return (
                f"{_names(out)} are more than half of the list: start the others with a shorter list (ROTA_MEMBERS), "
                "the same on each, and with empty data folders"
            )
        if not out >= self.without:
            return f"{_names(self.without - out)} is left out already: name all that are to be left out"
        since = {name: max(self.heard_s.get(name, self.begun_s), self.begun_s) for name in out}
        if heard := [name for name in out if now_s - since[name] < SILENT_S]:
            return (
                f"{_names(heard)} was heard by {self.me} less than {SILENT_S:.0f} s ago, or {self.me} has not listened "
                "for so long yet: only a member that is off can be left out"
            )
        return None

    def leave_out(self, without: Iterable[str], now_s: float) -> str | None:
        """Found without these. Returns why not, as `why_not`; None: it is so, as soon as the others accept it."""
        out = frozenset(without)
        refused = self.why_not(out, now_s)
        if refused is None:
            self.without = out
        return refused

    # -- what it decides

    def promise(self, now_s: float) -> Told | Bound | None:
        """What is to be on the disk before anything follows from it; then `keep` it."""
        if self.told is None and self.news is not None:
            return self.news
        if not self.free:
            return None
        lives = {self.me: self.life}
        others = self.listed - self.without - {self.me}
        for name in others:
            said = self.statements.get(name)
            if said is None or now_s - self.heard_s[name] > FRESH_S:
                return None
            lives[name] = said.life
        founding = _digest([self.roll, sorted(lives.items())])
        if all(self._agrees(self.statements[name], founding) for name in others):
            return Bound(founding, self.listed, self.without)
        return None

    def _agrees(self, said: Statement, founding: str) -> bool:
        return not said.cluster_id and ((said.free and said.roll == self.roll) or said.founding == founding)

    def keep(self, promise: Told | Bound) -> None:
        """It is on the disk."""
        if isinstance(promise, Told):
            self.told = promise
        else:
            self.bound = promise

    def outlook(self, now_s: float) -> FoundingWait | ClusterElsewhere:
        """What it waits for. To be asked of a member that is of no cluster yet."""
        told = self.told or self.news
        if told is not None:
            of_it = [one for one in self.statements.values() if told.cluster_id == one.cluster_id]
            of_it = [one for one in of_it if one.belongs]
            known = any(self.me in one.members for one in of_it) if of_it else None
            return ClusterElsewhere(told.cluster_id, told.by, tuple(sorted(one.member for one in of_it)), known)
        silent, differing, held = [], [], []
        for name in sorted(self.listed - self.without - {self.me}):
            said = self.statements.get(name)
            if said is None or now_s - self.heard_s[name] > FRESH_S:
                silent.append(name)
            elif self.founding and said.founding == self.founding:
                continue
            elif said.roll != self.roll:
                theirs = frozenset(said.members)
                if not theirs:  # its digest has come, and the list itself has not
                    held.append((name, "has another list of members (ROTA_MEMBERS), and has not told yet which"))
                    continue
                lacks, adds = self.listed - theirs, theirs - self.listed
                differing.append((name, tuple(sorted(lacks)), tuple(sorted(adds))))
            elif said.founding:
                held.append((name, f"takes part in a founding with another data folder of a member: {_EMPTY}"))
            elif not said.free:
                held.append((name, "has lost what it had, or takes part in an election: see its log"))
        return FoundingWait(tuple(silent), tuple(differing), tuple(held), tuple(sorted(self.without)))


_EMPTY: Final = "stop it, and start it with an empty one, if no member knows of a cluster"


def _with_lists(said: Statement, before: Statement) -> Statement:
    return Statement(**{**asdict(said), "members": before.members, "without": before.without})


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, separators=(",", ":")).encode()).hexdigest()[:32]
