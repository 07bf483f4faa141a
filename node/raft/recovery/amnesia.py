"""Decides when a member that has lost its log, its term and its vote may follow, vote and stand again (pure).

Such a member may have voted and acknowledged entries, and has forgotten it. Raft relies on members that remember. So
this member accepts nothing from a leader, and votes for no candidate, until enough others have answered *since it came
back*.

Each election or commit that it took part in had a majority of n members: itself and at least n // 2 others. So it asks
until n - n // 2 others have answered: at least one of these was in that majority too, and knows the majority's term.
From then on, the member follows no leader of a term before the latest one in the answers. It votes once its log has all
entries that the leader of that term had when it answered, since these include every entry that the member may have
acknowledged. (Viewstamped Replication recovers in this way: Liskov and Cowling 2012, section 4.3. Michael et al. 2017
show a gap in it: a vote from before the loss that is still under way. `Ballot` does not count such a vote.)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from node.raft.core.prevote import Standing


@dataclass(frozen=True, slots=True)
class AmnesiaAnswer:
    """The answer of a member to one that has lost its log."""

    #: The answering member's term.
    term: int
    #: The term and index of its log's last entry.
    standing: Standing
    #: Whether it is the leader.
    leads: bool
    #: The ids of all members, by its log.
    members: frozenset[str]
    #: Whether it remembers all its own votes and acknowledgements.
    remembers: bool
    #: Whether it has lost its own files too, and has not caught up since.
    lost: bool
    #: The members by the committed entries of its log, each as "id host port".
    base: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LeaderLog:
    """The latest term, its leader, and the last index of that leader's log.

    base: the members by the entries that the leader knows to be committed. A log that is copied from its first entry on
    begins with these members; changes of membership that it contains are then applied again, without effect.
    """

    term: int
    leader: str
    last_index: int
    base: tuple[str, ...] = ()


@dataclass(slots=True)
class RecoveryProgress:
    """The knowledge that a member has gained since it started without its log.

    matched: a leader's term, and the index up to which this member's log is known to equal that leader's.
    """

    me: str
    answers: dict[str, AmnesiaAnswer] = field(default_factory=dict)
    matched: tuple[int, int] = (0, 0)

    def leader_log(self, term: int) -> LeaderLog | None:
        """Return the result of `latest_leader`; None if this member's own `term` is later than that leader's term."""
        latest = latest_leader(self.me, self.answers)
        return latest if latest is not None and latest.term >= term else None

    def complete(self, term: int) -> bool:
        """Whether this member's log has all entries that the leader of the latest term had when it answered."""
        latest = self.leader_log(term)
        if latest is None:
            return False
        matched_term, matched_index = self.matched
        return matched_term == latest.term and matched_index >= latest.last_index


def latest_leader(me: str, answers: Mapping[str, AmnesiaAnswer]) -> LeaderLog | None:
    """Return the latest term in which `me` may have taken part, once its leader and enough other members have answered.

    Only members in that term or an earlier one count. A member in a later term does not count, but does not prevent a
    result either: it may have asked for votes in vain and died, or have been removed, and would never answer again.

    >>> def answer(term, leads): return AmnesiaAnswer(term, Standing(term, 9), leads, frozenset("abc"), True, False)
    >>> latest_leader("a", {"b": answer(3, True)})  # c may lead in a later term, by a vote that a has forgotten
    >>> latest_leader("a", {"b": answer(3, True), "c": answer(4, False)})  # a may have voted in term 4
    >>> latest_leader("a", {"b": answer(5, True), "c": answer(4, False), "d": answer(6, False)})
    LeaderLog(term=5, leader='b', last_index=9, base=())
    """
    known = {member: answer for member, answer in answers.items() if answer.remembers}
    leader = max((one for one, answer in known.items() if answer.leads), key=lambda one: known[one].term, default=None)
    if leader is None:
        return None
    latest, members = known[leader], known[leader].members
    with_it = [one for one in members - {me} if one in known and known[one].term <= latest.term]
    if me not in members or len(with_it) < answers_needed(len(members)):
        return None
    return LeaderLog(latest.term, leader, latest.standing.last_index, latest.base)


def answers_needed(members: int) -> int:
    """Return how many other members must have answered, in a cluster with this number of members.

    >>> [answers_needed(members) for members in (2, 3, 4, 5)]
    [1, 2, 2, 3]
    """
    return members - members // 2


def majority_lost(me: str, cluster: frozenset[str], answers: Mapping[str, AmnesiaAnswer]) -> frozenset[str]:
    """Return the members that have lost their logs, if the other members can never be enough; else an empty set.

    `cluster` are the members as far as `me` knows; the answer of a member that remembers overrides it.
    """
    known = [answer for answer in answers.values() if answer.remembers]
    members = max(known, key=lambda answer: (answer.term, answer.leads)).members if known else cluster
    lost = {member for member, answer in answers.items() if answer.lost} | {me}
    return frozenset(lost) if len(members - lost) < answers_needed(len(members)) else frozenset()


@dataclass(slots=True)
class Ballot:
    """The votes that a candidate got in its latest term, with the life of each voter.

    A member that has lost its log begins a new life, with a greater number, and each member that answers it learns this
    number. A late vote from the earlier life must not count together with a vote of a member that knows the new life.
    """

    term: int = 0
    votes: dict[str, int] = field(default_factory=dict)
    lives: dict[str, int] = field(default_factory=dict)

    def take(self, term: int, member: str, life: int, lives: Mapping[str, int]) -> bool:
        """Count a vote if it is valid, and return whether it is. `lives` are other members' lives that the voter knows.

        A member has one vote in a term, however often it arrives. A vote of an earlier term does not count.

        >>> ballot = Ballot()
        >>> [ballot.take(7, "b", 1, {}), ballot.take(7, "b", 1, {}), ballot.take(6, "c", 1, {})]
        [True, False, False]
        """
        if term > self.term:
            self.term, self.votes, self.lives = term, {}, {}
        if term < self.term or member in self.votes:
            return False
        known = {**self.lives, **lives}
        votes = {**self.votes, member: life}
        if any(votes.get(other, now) < now for other, now in known.items()):
            return False
        self.votes, self.lives = votes, known
        return True
