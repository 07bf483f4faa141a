"""How a member that has lost its log, its term and its vote comes to take part again (pure).

It may have voted, and acknowledged entries, and does not know it. Raft rests on members that remember; so this one
takes nothing from a leader, and votes for nobody, until enough others have said how things stand *since it came back*.

Whatever it took part in before, an election or a commit, had a majority of n members: itself and n // 2 others at the
least. So it asks until n - n // 2 others have answered: one of those was in that majority, too, and knows its term.
From then on it heeds no leader of an earlier term than the latest of theirs. It votes once its log has all that
the leader of that term had when it answered: all that it may have acknowledged is in there. (As Viewstamped
Replication recovers, Liskov and Cowling 2012, section 4.3; Michael et al. 2017 show what is missing there: a vote of
before that is still under way. `Ballot` leaves it out.)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from node.raft.prevote import Standing


@dataclass(frozen=True, slots=True)
class AmnesiaAnswer:
    """How things stand with a member that was asked. `members` are the ids of all, by its log.

    `whole`: it remembers what it took part in. `lost`: it has had to set its own files aside, and has not caught up.
    `base`: the members by what is committed of its log, as the log writes them.
    """

    term: int
    standing: Standing
    leads: bool
    members: frozenset[str]
    whole: bool
    lost: bool
    base: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FoundLog:
    """The latest term, who leads in it, and the last index of that leader's log.

    `base`: the members as of what the leader knows to be committed. A log that is copied from its first entry on begins
    with these: who came or went since its beginning does so again in it, and the others are as they were.
    """

    term: int
    leader: str
    last_index: int
    base: tuple[str, ...] = ()


@dataclass(slots=True)
class Recall:
    """What a member that does not remember has been told since it started.

    `matched`: how far the log here is known to be the leader's, and in which term.
    """

    me: str
    answers: dict[str, AmnesiaAnswer] = field(default_factory=dict)
    matched: tuple[int, int] = (0, 0)

    def found(self, term: int) -> FoundLog | None:
        """As `found`; None while `term`, that of this member, is later than what it was told of."""
        latest = found(self.me, self.answers)
        return latest if latest is not None and latest.term >= term else None

    def complete(self, term: int) -> bool:
        """Whether the log here holds all that the leader of the latest term had when it was asked."""
        latest = self.found(term)
        if latest is None:
            return False
        matched_term, matched_index = self.matched
        return matched_term == latest.term and matched_index >= latest.last_index


def found(me: str, answers: Mapping[str, AmnesiaAnswer]) -> FoundLog | None:
    """The latest term in which `me` may have taken part, once enough have answered, its leader among them.

    Enough are members, in no later term than that. Who is in a later one does not count, and does not stand in the way:
    it may have asked for votes, got none and died, or be no member any more, and would be waited for without end.

    >>> def answer(term, leads): return AmnesiaAnswer(term, Standing(term, 9), leads, frozenset("abc"), True, False)
    >>> found("a", {"b": answer(3, leads=True)})  # c may be the leader of a later term, with a vote that a forgot
    >>> found("a", {"b": answer(3, leads=True), "c": answer(4, leads=False)})  # as it was: another is to be elected
    >>> found("a", {"b": answer(5, leads=True), "c": answer(4, leads=False), "d": answer(6, leads=False)})
    FoundLog(term=5, leader='b', last_index=9, base=())
    """
    told = {member: answer for member, answer in answers.items() if answer.whole}
    leader = max((one for one, answer in told.items() if answer.leads), key=lambda one: told[one].term, default=None)
    if leader is None:
        return None
    latest, members = told[leader], told[leader].members
    with_it = [one for one in members - {me} if one in told and told[one].term <= latest.term]
    if me not in members or len(with_it) < needed(len(members)):
        return None
    return FoundLog(latest.term, leader, latest.standing.last_index, latest.base)


def needed(members: int) -> int:
    """How many others must have answered, of so many members.

    >>> [needed(members) for members in (2, 3, 4, 5)]
    [1, 2, 2, 3]
    """
    return members - members // 2


def hopeless(me: str, cluster: frozenset[str], answers: Mapping[str, AmnesiaAnswer]) -> frozenset[str]:
    """The members that have lost their logs, if there are too many for the rest ever to be enough; else nobody.

    `cluster` is who is a member as far as `me` knows; somebody who remembers knows better.
    """
    told = [answer for answer in answers.values() if answer.whole]
    members = max(told, key=lambda answer: (answer.term, answer.leads)).members if told else cluster
    lost = {member for member, answer in answers.items() if answer.lost} | {me}
    return frozenset(lost) if len(members - lost) < needed(len(members)) else frozenset()


@dataclass(slots=True)
class Ballot:
    """The votes that a candidate was given in its latest term, by the lives of those who gave them.

    A member that has lost its log begins another life, with a greater number, and whoever answers it knows of that. A
    vote of the life before, which was under way for long, must not count beside one of somebody who knows.
    """

    term: int = 0
    votes: dict[str, int] = field(default_factory=dict)
    lives: dict[str, int] = field(default_factory=dict)

    def take(self, term: int, member: str, life: int, lives: Mapping[str, int]) -> bool:
        """Whether a vote counts; `lives` are the lives of others that the voter knows of.

        A member has one vote in a term, however often it arrives, and one of an earlier term says nothing any more.

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
