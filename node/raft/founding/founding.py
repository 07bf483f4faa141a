"""Decides when the nodes of a list found a cluster: all of them together, and only once (pure).

A blank node (no log, no vote, and no news of any cluster) sends its statement to every node of its list, and asks for
theirs. When all of them have answered that they are blank and have the same list, the node binds itself to a founding,
on its disk. A founding is identified by the list and by the data folders of its members (their lives), so a folder that
is lost and recreated does not belong to it. When all nodes are bound, they may hold the first election, by majority as
usual (docs/explanation/raft.md).

Only one cluster can be founded, because a folder is bound to one founding only, and the first election needs all nodes
of a founding to be bound. So of two foundings with a common folder, only one can get that far. This holds even if a
list is changed meanwhile, or a disk is lost while the others are away. It does not hold if all lists and all folders
are replaced.

If a member is lost, an operator asks to found without it (`Founding.leave_out`). Each other node accepts this only
if it does not hear that member either. Until a node has voted, it may leave its founding for one with fewer members.
At most half of the nodes may be left out, so these alone can never hold the election of the former founding.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from node.raft.founding.statement import Binding, KnownCluster, Statement

SILENT_S: Final = 5.0
"""An operator may leave out a member that has not been heard for this time."""

FRESH_S: Final = 3.0
"""The time for which a statement counts. The other nodes are asked repeatedly."""


@dataclass(frozen=True, slots=True)
class FoundingWait:
    """The reasons why no cluster is founded yet.

    silent: the nodes that have not answered. differing: for each node with another list, its id, the ids that its list
    lacks, and the ids that only its list has. held: for each node that has answered but cannot found, its id and the
    reason. without: the nodes left out by hand.
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
                + (" and ".join(lacking + adding) or "other members are left out of it by hand")
            )
        reasons += [f"{member} {why}" for member, why in self.held]
        if not reasons:
            return "all members have answered: the first election is next"
        beside = f" (without {_names(self.without)}, by hand)" if self.without else ""
        return f"waiting to found a cluster{beside}: {'; '.join(reasons)}"


@dataclass(frozen=True, slots=True)
class ClusterElsewhere:
    """A cluster exists that this node does not belong to yet, so this node will never found one."""

    #: The id of the cluster.
    cluster_id: str
    #: The member of the cluster that this node heard of first.
    told_by: str
    #: The members whose own statements to this process say that they belong to the cluster.
    members: tuple[str, ...] = ()
    #: Whether this node is a member by the logs of `members`; None: no member of the cluster has been heard.
    knows_me: bool | None = None
    #: How this node becomes a member, or what the operator has to do (`node.membership.auto_join`).
    remedy: str = ""

    def __str__(self) -> str:
        of_it = self.members or (self.told_by,)
        who = f"cluster {self.cluster_id}, of which {_names(of_it)} {'is' if len(of_it) == 1 else 'are'}"
        if self.knows_me:
            return f"this node is a member of {who}, and waits for its leader"
        if self.knows_me is None:
            return f"there is a {who}: this node founds no other cluster, and waits until that one can be reached"
        return f"there is a {who}, and this node is no member of it: {self.remedy or 'add this node (rota join)'}"


Outlook = FoundingWait | ClusterElsewhere | None
"""The reason why a node has no cluster yet; None: it belongs to a cluster."""


@lru_cache(maxsize=64)
def roll_of(members: frozenset[str], without: frozenset[str]) -> str:
    """Return a digest of a list of members, whatever their order, and of the nodes left out."""
    return _digest([sorted(members), sorted(without)])


@dataclass(slots=True)
class Founding:
    """One node's knowledge of a founding. In the comments on the fields, "it" and "its" mean this node."""

    #: The node's id.
    me: str
    #: The number of its data folder's life: a folder that replaces a lost one has a greater number.
    life: int
    #: The ids in its list, its own among them.
    listed: frozenset[str]
    #: When its process began, in seconds on Raft's clock.
    begun_s: float
    #: A cluster that it has heard of, as noted on its disk; None: no cluster.
    known: KnownCluster | None = None
    #: The founding to which it is bound; None: it is not bound.
    bound: Binding | None = None
    #: Whether it has no log, has not voted, has not lost its files and belongs to no cluster.
    blank: bool = True
    #: Whether it takes part, or has taken part, in its founding's first election.
    voted: bool = False
    #: The nodes to leave out, by hand.
    without: frozenset[str] = frozenset()
    #: The latest statement of each node, by node.
    statements: dict[str, Statement] = field(default_factory=dict)
    #: When each node's latest statement arrived, in seconds on Raft's clock, by node.
    heard_s: dict[str, float] = field(default_factory=dict)
    #: A cluster that it has heard of, not yet noted on its disk; None: no cluster.
    news: KnownCluster | None = None

    def __post_init__(self) -> None:
        if self.bound is not None:
            self.listed, self.without = self.bound.listed, self.bound.without

    # -- the node's own statement

    @property
    def roll(self) -> str:
        """The digest of this node's list and of the nodes left out."""
        return roll_of(self.listed, self.without)

    @property
    def founding(self) -> str:
        """The id of the founding to which the node is bound; empty if it is not bound."""
        return self.bound.founding if self.bound is not None else ""

    @property
    def free(self) -> bool:
        """Whether the node would bind itself: to its first founding, or to one that leaves out more nodes."""
        heard = self.known is not None or self.news is not None
        return self.blank and not heard and (self.bound is None or self.bound.without < self.without)

    @property
    def complete(self) -> bool:
        """Whether all nodes of the founding are known to be bound to it, so that the first election may be held."""
        if self.bound is None:
            return False
        if self.voted:
            return True
        others = [self.statements.get(name) for name in self.bound.members - {self.me}]
        here = [one for one in others if one is not None and one.founding == self.bound.founding]
        return len(here) == len(others) or any(one.complete for one in here)

    def statement(self, cluster_id: str = "", members: Iterable[str] = ()) -> Statement:
        """Return the node's statement. `cluster_id` and `members` are those of its cluster, if it belongs to one."""
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

    # -- statements of other nodes

    def hear(self, stated: Statement, now_s: float) -> None:
        """Handle a statement that has just arrived from another node."""
        if stated.member == self.me:
            return
        if stated.cluster_id:
            # `told_by` may be this node, if it was a member and has lost its folder since.
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
        """Return the reason why these nodes may not be left out, with a remedy; None: they may be left out."""
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
        """Leave these nodes out of the founding. Returns the reason for a refusal (`why_not`); None: accepted here.

        The other nodes must accept it too.
        """
        out = frozenset(without)
        refused = self.why_not(out, now_s)
        if refused is None:
            self.without = out
        return refused

    # -- decisions

    def promise(self, now_s: float) -> KnownCluster | Binding | None:
        """Return the next promise, which the caller syncs to disk and then passes to `keep`; None: no promise now."""
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
        """Put a promise into effect, which the caller has synced to disk."""
        if isinstance(promise, KnownCluster):
            self.known = promise
        else:
            self.bound = promise

    def outlook(self, now_s: float) -> FoundingWait | ClusterElsewhere:
        """Return the reason why this node waits, while it belongs to no cluster."""
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
                if not theirs:  # only the digest of its list has arrived, not the list itself
                    held.append((name, "has another list of members (ROTA_MEMBERS), which it has not sent yet"))
                    continue
                lacks, adds = self.listed - theirs, theirs - self.listed
                differing.append((name, tuple(sorted(lacks)), tuple(sorted(adds))))
            elif stated.founding:
                why = f"takes part in a founding with another data folder of a member: {_EMPTY.format(name)}"
                held.append((name, why))
            elif not stated.free:
                held.append((name, "has lost its data, or takes part in an election: see its log"))
        return FoundingWait(tuple(silent), tuple(differing), tuple(held), tuple(sorted(self.without)))


_EMPTY: Final = "if no member knows of a cluster, stop {} and start it with an empty data folder"


def _with_lists(stated: Statement, before: Statement) -> Statement:
    return replace(stated, members=before.members, without=before.without)


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, separators=(",", ":")).encode()).hexdigest()[:32]
