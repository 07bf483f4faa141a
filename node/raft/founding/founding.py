"""Which nodes found a cluster, and when: once, and all of a list together (pure; docs/explanation/raft.md).

A node that has nothing (no log, no vote, and no news of any cluster) sends its statement to every node of its list, and
asks for theirs. When all of them have answered that they have nothing, and have the same list, it binds itself to that
founding, on its disk. A founding is this list and the data folders of its members (their lives), so a folder that is
lost and begun again is no part of it. When all have bound themselves, the first election may be held, among them and by
majority, as any other.

There is one cluster, because a folder is bound to one founding only, and an election needs a founding to which all are
bound: two foundings that have a folder in common cannot both come that far. That holds if a list is changed meanwhile,
and if a disk is lost while the others are away; it does not hold if all lists and all folders are replaced.

An operator asks for a founding without a member that is lost (`Founding.leave_out`). Each of the others accepts it only
if it does not hear that member either. A folder may leave its founding for one with fewer members while it has not
voted; those that are left out are at most half, so they alone can never hold the election of the former one.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from node.raft.founding.statement import Binding, KnownCluster, Statement

SILENT_S: Final = 5.0
"""A member that was not heard for this time may be left out by hand."""

FRESH_S: Final = 3.0
"""An answer counts for this time; the others are asked again and again."""


@dataclass(frozen=True, slots=True)
class FoundingWait:
    """Why no cluster is founded yet.

    silent: the nodes that have not answered. differing: for each node with another list, its id, the ids that its list
    lacks, and those that it has besides. held: for each node that has answered, and cannot found, its id and why.
    without: the nodes left out by hand.
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
    """There is a cluster, and this node does not belong to it yet: it will never found one."""

    #: The id of the cluster.
    cluster_id: str
    #: The member that was named first.
    told_by: str
    #: The members that have told this process themselves that they belong to it.
    members: tuple[str, ...] = ()
    #: Whether this node is a member there, by their logs; None: none of them has been heard.
    knows_me: bool | None = None
    #: What makes it a member, or what the operator has to do (`node.membership.auto_join`).
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
"""What a node without a cluster waits for; None: it belongs to a cluster."""


@lru_cache(maxsize=64)
def roll_of(members: frozenset[str], without: frozenset[str]) -> str:
    """A digest of a list, whatever its order, and of the nodes left out."""
    return _digest([sorted(members), sorted(without)])


@dataclass(slots=True)
class Founding:
    """What one node knows of a founding."""

    #: The node's id.
    me: str
    #: The number of the life of its data folder.
    life: int
    #: The ids of its list, its own among them.
    listed: frozenset[str]
    #: When it began, in seconds on Raft's clock.
    begun_s: float
    #: A cluster that it has heard of, and that is on its disk; None: no cluster.
    known: KnownCluster | None = None
    #: The founding to which it is bound; None: it is bound to none.
    bound: Binding | None = None
    #: Whether it has no log, has not voted, has lost nothing and belongs to no cluster.
    blank: bool = True
    #: Whether it takes part in its founding's first election, or has taken part.
    voted: bool = False
    #: The nodes to leave out, by hand.
    without: frozenset[str] = frozenset()
    #: The latest statement of each node, by node.
    statements: dict[str, Statement] = field(default_factory=dict)
    #: When each node's latest statement arrived, in seconds on Raft's clock, by node.
    heard_s: dict[str, float] = field(default_factory=dict)
    #: A cluster that it has heard of, and that is not on its disk yet; None: no cluster.
    news: KnownCluster | None = None

    def __post_init__(self) -> None:
        if self.bound is not None:
            self.listed, self.without = self.bound.listed, self.bound.without

    # -- what it tells the others

    @property
    def roll(self) -> str:
        """The digest of this list."""
        return roll_of(self.listed, self.without)

    @property
    def founding(self) -> str:
        """The founding to which it is bound; empty: none."""
        return self.bound.founding if self.bound is not None else ""

    @property
    def free(self) -> bool:
        """Whether it would bind itself: to its first founding, or to one of fewer than the one before."""
        heard = self.known is not None or self.news is not None
        return self.blank and not heard and (self.bound is None or self.bound.without < self.without)

    @property
    def complete(self) -> bool:
        """Whether all members of the founding are known to be bound, so that the first election may be held."""
        if self.bound is None:
            return False
        if self.voted:
            return True
        others = [self.statements.get(name) for name in self.bound.members - {self.me}]
        here = [one for one in others if one is not None and one.founding == self.bound.founding]
        return len(here) == len(others) or any(one.complete for one in here)

    def statement(self, cluster_id: str = "", members: Iterable[str] = ()) -> Statement:
        """Its statement; `cluster_id` and `members` are those of its cluster, if it belongs to one."""
        cluster = KnownCluster(cluster_id, self.me) if cluster_id else self.known or KnownCluster("", "")
        return Statement(
            member=self.me,
            life=self.life,
            roll=self.roll,
            free=self.free,
            founding=self.founding,
            complete=self.complete,
            cluster_id=cluster.cluster_id,
            told_by=cluster.by,
            belongs=bool(cluster_id),
            members=tuple(sorted(members if cluster_id else self.listed)),
            without=tuple(sorted(self.without)),
        )

    # -- what it hears

    def hear(self, stated: Statement, now_s: float) -> None:
        """Take a statement that a node has just made."""
        if stated.member == self.me:
            return
        if stated.cluster_id:
            # It may name this node as the member, which has lost its folder since.
            self.hear_of(stated.cluster_id, stated.told_by if stated.told_by != self.me else stated.member)
        if stated.member not in self.listed:
            return
        before = self.statements.get(stated.member)
        if not stated.members and before is not None and before.roll == stated.roll:
            stated = _with_lists(stated, before)
        self.statements[stated.member] = stated
        self.heard_s[stated.member] = now_s
        if stated.member in self.without and (self.bound is None or stated.member not in self.bound.without):
            self.without -= {stated.member}
        theirs = frozenset(stated.without)
        if theirs > self.without and frozenset(stated.members) == self.listed and not self.why_not(theirs, now_s):
            self.without = theirs

    def hear_of(self, cluster_id: str, by: str) -> None:
        """Note a cluster that another node belongs to, or has heard of."""
        if self.news is None:
            self.news = KnownCluster(cluster_id, by)

    def why_not(self, without: Iterable[str], now_s: float) -> str | None:
        """Why these nodes may not be left out of the founding (what is wrong, and what to do); None: they may."""
        out = frozenset(without)
        cluster = self.known or self.news
        if cluster is not None:
            return (
                f"there is a cluster, {cluster.cluster_id}, to which {cluster.by} belongs: no other one may be founded"
            )
        if not self.blank:
            return f"{self.me} has taken part in an election or a cluster already: bring the missing members back"
        if unknown := out - self.listed:
            return f"{_names(unknown)} is not in the list of members here: {_names(self.listed)} (ROTA_MEMBERS)"
        if self.me in out:
            return f"{self.me} itself would be left out: ask one of the others"
        if 2 * len(out) > len(self.listed):
            return (
                f"{_names(out)} are more than half of the list: start the others with a shorter list (ROTA_MEMBERS), "
                "the same on each, and with empty data folders"
            )
        if not out >= self.without:
            return f"{_names(self.without - out)} is left out already: name all nodes to leave out"
        since = {name: max(self.heard_s.get(name, self.begun_s), self.begun_s) for name in out}
        if heard := [name for name in out if now_s - since[name] < SILENT_S]:
            return (
                f"{_names(heard)} was heard by {self.me} less than {SILENT_S:.0f} s ago, or {self.me} started since: "
                "only a member that is off can be left out"
            )
        return None

    def leave_out(self, without: Iterable[str], now_s: float) -> str | None:
        """Found without these nodes. Returns why not, as `why_not`; None: it is so, once the others accept it."""
        out = frozenset(without)
        refused = self.why_not(out, now_s)
        if refused is None:
            self.without = out
        return refused

    # -- what it decides

    def promise(self, now_s: float) -> KnownCluster | Binding | None:
        """The promise to write to the disk before `keep` lets it take effect; None: there is nothing to promise."""
        if self.known is None and self.news is not None:
            return self.news
        if not self.free:
            return None
        lives = {self.me: self.life}
        others = self.listed - self.without - {self.me}
        for name in others:
            stated = self.statements.get(name)
            if stated is None or now_s - self.heard_s[name] > FRESH_S:
                return None
            lives[name] = stated.life
        founding = _digest([self.roll, sorted(lives.items())])
        if all(self._agrees(self.statements[name], founding) for name in others):
            return Binding(founding, self.listed, self.without)
        return None

    def _agrees(self, stated: Statement, founding: str) -> bool:
        return not stated.cluster_id and ((stated.free and stated.roll == self.roll) or stated.founding == founding)

    def keep(self, promise: KnownCluster | Binding) -> None:
        """Let a promise take effect: it is on the disk."""
        if isinstance(promise, KnownCluster):
            self.known = promise
        else:
            self.bound = promise

    def outlook(self, now_s: float) -> FoundingWait | ClusterElsewhere:
        """The reason why this node waits, while it belongs to no cluster."""
        cluster = self.known or self.news
        if cluster is not None:
            of_it = [one for one in self.statements.values() if one.belongs and one.cluster_id == cluster.cluster_id]
            knows_me = any(self.me in one.members for one in of_it) if of_it else None
            members = tuple(sorted(one.member for one in of_it))
            return ClusterElsewhere(cluster.cluster_id, cluster.by, members, knows_me)
        silent, differing, held = [], [], []
        for name in sorted(self.listed - self.without - {self.me}):
            stated = self.statements.get(name)
            if stated is None or now_s - self.heard_s[name] > FRESH_S:
                silent.append(name)
            elif self.founding and stated.founding == self.founding:
                continue
            elif stated.roll != self.roll:
                theirs = frozenset(stated.members)
                if not theirs:  # its digest has arrived, and the list itself has not
                    held.append((name, "has another list of members (ROTA_MEMBERS), and has not told yet which"))
                    continue
                lacks, adds = self.listed - theirs, theirs - self.listed
                differing.append((name, tuple(sorted(lacks)), tuple(sorted(adds))))
            elif stated.founding:
                held.append((name, f"takes part in a founding with another data folder of a member: {_EMPTY}"))
            elif not stated.free:
                held.append((name, "has lost what it had, or takes part in an election: see its log"))
        return FoundingWait(tuple(silent), tuple(differing), tuple(held), tuple(sorted(self.without)))


_EMPTY: Final = "stop it, and start it with an empty one, if no member knows of a cluster"


def _with_lists(stated: Statement, before: Statement) -> Statement:
    return replace(stated, members=before.members, without=before.without)


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, separators=(",", ":")).encode()).hexdigest()[:32]
