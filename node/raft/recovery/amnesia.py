"""How a member that has lost its log, its term and its vote comes to take part again (pure).

It may have voted, and acknowledged entries, and does not know it. Raft relies on members that remember; so this one
accepts nothing from a leader, and votes for no candidate, until enough others have answered *since it came back*.

Whatever it took part in before, an election or a commit, had a majority of n members: itself and at least n // 2
others. So it asks until n - n // 2 others have answered: one of those was in that majority, too, and knows its term.
From then on it follows no leader of an earlier term than the latest of theirs. It votes once its log has all that
the leader of that term had when it answered: all that it may have acknowledged is in there. (Viewstamped Replication
recovers so: Liskov and Cowling 2012, section 4.3. Michael et al. 2017 show what is missing there: a vote given before
the loss that is still under way. `Ballot` does not count it.)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from node.raft.core.prevote import Standing


@dataclass(frozen=True, slots=True)
class AmnesiaAnswer:
    """The answer of a member to one that has lost its log."""

    #: The answering member's term.
    term: int
    #: How far its log reaches.
    standing: Standing
    #: Whether it is the leader.
    leads: bool
    #: The ids of all members, by its log.
    members: frozenset[str]
    #: Whether it remembers what it took part in.
    remembers: bool
    #: Whether it has had to set its own files aside, and has not caught up since.
    lost: bool
    #: The members by what is committed of its log, as the log writes them.
    base: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LeaderLog:
    """The latest term, its leader, and the last index of that leader's log.

    base: the members as of what the leader knows to be committed. A log that is copied from its first entry on begins
    with these: a member that came or went since its beginning does so again in it, and the others are as they were.
    """

    term: int
    leader: str
    last_index: int
    base: tuple[str, ...] = ()


@dataclass(slots=True)
class RecoveryProgress:
    """The knowledge that a member without memory has gained since it started.

    matched: up to which index the log here is known to equal a leader's, and that leader's term.
    """

    me: str
    answers: dict[str, AmnesiaAnswer] = field(default_factory=dict)
    matched: tuple[int, int] = (0, 0)

    def leader_log(self, term: int) -> LeaderLog | None:
        """As `latest_leader`; None while `term`, that of this member, is later than any in the answers."""
        latest = latest_leader(self.me, self.answers)
        return latest if latest is not None and latest.term >= term else None

    def complete(self, term: int) -> bool:
        """Whether the log here holds all that the leader of the latest term had when it was asked."""
        latest = self.leader_log(term)
        if latest is None:
            return False
        matched_term, matched_index = self.matched
        return matched_term == latest.term and matched_index >= latest.last_index


def latest_leader(me: str, answers: Mapping[str, AmnesiaAnswer]) -> LeaderLog | None:
    """The latest term in which `me` may have taken part, once enough have answered, its leader among them.

    Enough are members in no later term than that. A member in a later one does not count, and does not stand in the
    way: it may have asked for votes, got none and died, or have been removed, and would be waited for without end.

    >>> def answer(term, leads): return AmnesiaAnswer(term, Standing(term, 9), leads, frozenset("abc"), True, False)
    >>> latest_leader("a", {"b": answer(3, True)})  # c may lead in a later term, with a vote that a forgot
    >>> latest_leader("a", {"b": answer(3, True), "c": answer(4, False)})  # c may have given it
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
    """How many others must have answered, out of this number of members.

    >>> [answers_needed(members) for members in (2, 3, 4, 5)]
    [1, 2, 2, 3]
    """
    return members - members // 2


def majority_lost(me: str, cluster: frozenset[str], answers: Mapping[str, AmnesiaAnswer]) -> frozenset[str]:
    """The members that have lost their logs, if the rest can never be enough; else none.

    `cluster` are the members as far as `me` knows; a member that remembers knows better.
    """
    known = [answer for answer in answers.values() if answer.remembers]
    members = max(known, key=lambda answer: (answer.term, answer.leads)).members if known else cluster
    lost = {member for member, answer in answers.items() if answer.lost} | {me}
    return frozenset(lost) if len(members - lost) < answers_needed(len(members)) else frozenset()


@dataclass(slots=True)
class Ballot:
    """The votes that a candidate was given in its latest term, by the lives of the voters.

    A member that has lost its log begins another life, with a greater number, and each member that answers it knows of
    that. A vote of the earlier life, long under way, must not count beside one of a member that knows of the later.
    """

    term: int = 0
    votes: dict[str, int] = field(default_factory=dict)
    lives: dict[str, int] = field(default_factory=dict)

    def take(self, term: int, member: str, life: int, lives: Mapping[str, int]) -> bool:
        """Whether a vote counts; `lives` are the lives of others that the voter knows of.

        A member has one vote in a term, however often it arrives, and one of an earlier term counts no more.

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
