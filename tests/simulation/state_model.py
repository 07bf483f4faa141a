"""The little of the replicated state that liveness needs: members, the last lead, runs and who holds them."""

from dataclasses import dataclass, field

from node.state.value import MemberStatus
from tests.simulation.raft_model import Entry


@dataclass
class RunModel:
    """One run. `token` is that of the last claim; `held` while the attempt has not ended."""

    member: str = ""
    token: int = 0
    held: bool = False


@dataclass
class StateModel:
    """What a member has applied.

    Two broken variants: without `check_lead` any leadership may mark down, and without `check_join` a join that
    was under way for long supersedes a member that has joined, and works, since.
    """

    check_lead: bool
    check_join: bool
    lead: tuple[int, str] = (0, "")
    members: dict[str, tuple[int, MemberStatus]] = field(default_factory=dict)
    runs: dict[str, RunModel] = field(default_factory=dict)
    token: int = 0
    done: dict[tuple[str, int], object] = field(default_factory=dict)

    def apply(self, entry: Entry) -> None:
        """One committed entry; proposals bear an id and are answered once."""
        if entry[0] == "lead":
            self.lead = max(self.lead, (entry[1], entry[2]))
            return
        _, identity, what, *rest = entry
        if identity not in self.done:
            self.done[identity] = getattr(self, what)(*rest)

    def mark_down(self, member: str, incarnation: int, term: int) -> bool:
        """A leader's verdict: refused after a later lead entry, or for another incarnation."""
        if self.members[member] != (incarnation, "up") or (self.check_lead and term != self.lead[0]):
            return False
        self.members[member] = (incarnation, "down")
        self._orphan(member)
        return True

    def join(self, member: str, after: int) -> int:
        """A new incarnation after that one; gives 0 if another has come between."""
        if self.check_join and self.members[member][0] != after:
            return 0
        incarnation = self.members[member][0] + 1
        self.members[member] = (incarnation, "up")
        self._orphan(member)
        return incarnation

    def claim(self, run: str, member: str, incarnation: int) -> int:
        """Gives the token, 0 if refused."""
        model = self.runs[run]
        if model.held or self.members[member] != (incarnation, "up"):
            return 0
        self.token += 1
        model.member, model.token, model.held = member, self.token, True
        return self.token

    def finish(self, run: str, token: int) -> bool:
        """The attempt has ended, or was not started: the run may be claimed anew."""
        model = self.runs[run]
        if not model.held or model.token != token:
            return False
        model.held = False
        return True

    def owner(self, run: str) -> str | None:
        """Who should run it: the first member that is up, from a place that depends on the run."""
        names = sorted(self.members)
        start = int(run) % len(names)
        return next((name for name in names[start:] + names[:start] if self.members[name][1] == "up"), None)

    def current(self, run: str, token: int) -> bool:
        """Whether the token is the one that counts."""
        return self.runs[run].held and self.runs[run].token == token

    def _orphan(self, member: str) -> None:
        for model in self.runs.values():
            if model.held and model.member == member:
                model.held = False
