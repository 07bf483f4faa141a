"""Invariants 1 to 3 (docs/explanation/promises.md), after every entry that is committed: what it changed is looked at.

Nothing here asks how `apply` decides: only what the state was before, what it is now, and what was asked for.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

from node.state.apply import Applied
from node.state.awaiting import AwaitParents
from node.state.claims import Claim
from node.state.entries import Proposal, ProposalId
from node.state.fan_out import FanOut
from node.state.occurrences import Enqueue, SkipOccurrences
from node.state.telling import Told
from node.state.value import EndedRun, Member, Result, Run, State
from tasks.definition.run import HELD, may_change
from tests.simulation.backfills import Backfills
from tests.simulation.days import Days
from tests.simulation.everywhere import Everywhere
from tests.simulation.fills import Fills
from tests.simulation.holders import Holders
from tests.simulation.paces import Paces
from tests.simulation.policies import Policies
from tests.simulation.punctuality import Punctuality
from tests.simulation.spread import Spread
from tests.simulation.succession import Succession
from tests.simulation.world import World

_WEIGHTLESS: Final = frozenset({"index", "windows"})
_FIELDS: Final = tuple(name for name in State.__slots__ if name not in _WEIGHTLESS)


class Judge:
    """Watches every proposal as it is applied. `taken(run_id, token)` is told of each token that ceased to count."""

    def __init__(self, world: World, taken: Callable[[str, int], None]) -> None:
        self._world, self._taken = world, taken
        self._top = 0
        self._clusters: dict[str, str] = {}
        self._occurrences: set[tuple[int, int]] = set()
        self._known: set[tuple[str, int]] = set()
        self._results: dict[ProposalId, Result] = {}
        self._effects: set[ProposalId] = set()
        self._ended: set[tuple[str, int]] = set()
        self._series: dict[tuple[str, int], int] = {}
        self.counts: Counter[str] = Counter()
        self.policies = Policies(world)
        self.punctuality = Punctuality(world)
        self.succession = Succession(world)
        self.holders = Holders(world)
        self.paces = Paces(world)
        self.everywhere = Everywhere(world)
        self.days = Days(world)
        self.backfills = Backfills(world)
        self.fills = Fills(world)
        self.spread = Spread(world)

    def watch(self, before: State, proposal: Proposal, applied: Applied) -> None:
        """One proposal has been applied."""
        after, entry, result = applied.state, proposal.entry, applied.result
        name = type(entry).__name__
        self.counts[name if result.ok else f"{name} refused"] += 1
        changed = any(getattr(before, field) is not getattr(after, field) for field in _FIELDS)
        self._once(proposal, result, changed=changed)
        self.days.watch(before, proposal, applied)
        if not changed:
            return
        self._fenced(before, entry)
        for task in applied.touched:
            self._task(before, after, task)
        if before.members is not after.members:
            self._members(before, after)
        for one in applied.ended:
            # A task that was deleted and is there again may name an occurrence as one of before; it is another run.
            identity = (one.run.run_id, one.run.created_at_us)
            if identity in self._ended and not (one.series and identity in self._series):
                self._world.wrong(f"invariant 1: {one.run.run_id} comes to its end twice")
            self._ended.add(identity)
            self.counts[one.state] += self._counted(identity, one)
        if result.ok and isinstance(entry, Claim | Enqueue | SkipOccurrences | AwaitParents | FanOut):
            self._settled(before, after, entry)
        self.policies.watch(before, proposal, applied)
        self.punctuality.watch(before, proposal, applied)
        self.succession.watch(before, proposal, applied)
        self.holders.watch(before, proposal, applied)
        self.paces.watch(before, proposal, applied)
        self.everywhere.watch(before, proposal, applied)
        self.backfills.watch(before, proposal, applied)
        self.fills.watch(before, proposal, applied)
        self.spread.watch(before, proposal, applied)

    def _counted(self, identity: tuple[str, int], ended: EndedRun) -> int:
        """How many occurrences came to their end: one, or by how many a series has grown."""
        if ended.series is None:
            return 1
        more = ended.series.count - self._series.get(identity, 0)
        if more <= 0 or ended.state != ended.series.state:
            self._world.wrong(f"{ended.run.run_id} stands for {ended.series}, which is {more} more than before")
        self._series[identity] = ended.series.count
        return more

    def ready(self, name: str, cluster_id: str) -> None:
        """A member is ready: all that ever were are of one cluster."""
        if cluster_id and cluster_id not in self._clusters:
            self._clusters[cluster_id] = name
            if len(self._clusters) > 1:
                self._world.wrong(f"members of two clusters have been ready: {self._clusters}")

    def told(self, proposal: ProposalId, result: Result) -> None:
        """A client was told what became of a proposal: it must be what was committed (invariant 3)."""
        if self._results.get(proposal) != result:
            self._world.wrong(f"invariant 3: {proposal} was answered {result}, which is not what was committed")

    def _once(self, proposal: Proposal, result: Result, *, changed: bool) -> None:
        if changed and proposal.id in self._effects:
            self._world.wrong(f"invariant 1: {proposal.id} has taken effect twice: {proposal.entry}")
        if changed:
            self._effects.add(proposal.id)
        first = self._results.setdefault(proposal.id, result)
        if first != result and result.code != "stale":
            self._world.wrong(f"{proposal.id} was answered {first} at first, and {result} later")

    def _fenced(self, before: State, entry: object) -> None:
        token = getattr(entry, "token", None)
        if token is None:
            return
        if isinstance(entry, Told):
            row = before.channels.get(entry.channel)
            if row is None or row.sending is None or row.sending.token != token:
                self._world.wrong(f"invariant 2: an old permission changes the state: {entry}")
            return
        run = before.runs.get(getattr(entry, "run_id", ""))
        if run is None or run.state not in HELD or run.token != token:
            self._world.wrong(f"invariant 2: an old token changes the state: {entry}")

    def _task(self, before: State, after: State, task: str) -> None:
        """Of a task that was touched: its runs as they were and as they are."""
        then = {one: before.runs[one] for one in before.runs_of.get(task, ())}
        now = {one: after.runs[one] for one in after.runs_of.get(task, ())}
        for run_id, run in then.items():
            later = now.get(run_id)
            if later is None or later is not run:
                self._changed(run, later)
        for run_id, run in now.items():
            if run_id not in then:
                self._new(after, run_id, run)
            if run.state in HELD and then.get(run_id) is not run:
                self._held(after, run, then.get(run_id))
        row = after.tasks.get(task)
        held = [run for run in now.values() if run.state in HELD]
        if row is not None and row.spec.overlap != "allow" and len(held) > len({run.member for run in held}):
            self._world.wrong(f"{task} runs beside itself: {[run.run_id for run in held]}")

    def _changed(self, run: Run, later: Run | None) -> None:
        if later is not None and later.state != run.state and not may_change(run.state, later.state):
            self._world.wrong(f"{run.run_id} goes from {run.state} to {later.state}")
        if run.state in HELD and (later is None or later.state not in HELD or later.token != run.token):
            self._taken(run.run_id, run.token)
            if later is not None and later.state in HELD:
                self._world.wrong(f"invariant 1: {run.run_id} is claimed while {run.node} holds it (token {run.token})")

    def _new(self, after: State, run_id: str, run: Run) -> None:
        """Of one registration of the task: one that was deleted and is there again begins anew."""
        identity = (run_id, after.tasks[run.task].order)
        if identity in self._known:
            self._world.wrong(f"invariant 1: the occurrence {run_id} is there a second time")
        self._known.add(identity)

    def _held(self, after: State, run: Run, then: Run | None) -> None:
        if then is None or then.token != run.token:
            if run.token <= self._top:
                self._world.wrong(f"invariant 1: token {run.token} is given after token {self._top}")
            self._top = run.token
            self.counts["failovers"] += then is not None and then.state == "orphaned"
            member = after.members.get(run.node or "")
            if member is None or member.status != "up":
                self._world.wrong(f"{run.run_id} is given to {run.node}, which is {member and member.status}")
        self._holder(after, run)

    def _holder(self, after: State, run: Run) -> None:
        member = after.members.get(run.node or "")
        if member is None or member.status == "down" or member.incarnation != run.incarnation:
            known = "no member" if member is None else f"{member.status}, incarnation {member.incarnation}"
            self._world.wrong(f"{run.run_id} is held by {run.node} ({run.incarnation}), which is {known}")

    def _members(self, before: State, after: State) -> None:
        for run in after.runs.values():
            if run.state in HELD:
                self._holder(after, run)
        if before.slots != after.slots:
            self._seats(before.slots, after)
        for member in after.members.values():
            known = before.members.get(member.id)
            if known is not None and known is not member:
                self._member(known, member)

    def _member(self, before: Member, after: Member) -> None:
        self.counts["down"] += after.status == "down" != before.status
        self.counts["joins"] += after.incarnation > before.incarnation > 0
        if after.slot != before.slot:
            self._world.wrong(f"{after.id} moves from slot {before.slot} to {after.slot}")
        if not before.incarnation <= after.incarnation <= before.incarnation + 1:
            self._world.wrong(f"{after.id} goes from incarnation {before.incarnation} to {after.incarnation}")

    def _seats(self, slots: tuple[str | None, ...], after: State) -> None:
        """Slots are never renumbered; a new member takes the lowest vacant one."""
        if len(after.slots) < len(slots):
            self._world.wrong(f"there were {len(slots)} slots, and now there are {len(after.slots)}")
        for slot, member in enumerate(after.slots):
            was = slots[slot] if slot < len(slots) else None
            if member == was or member is None:
                continue
            if was is not None or (slots and None in slots and slot != slots.index(None)):
                self._world.wrong(f"{member} takes slot {slot} of {slots}")
            if after.members[member].slot != slot:
                self._world.wrong(f"{member} takes slot {after.members[member].slot} for its own, and sits in {slot}")
        self.counts["seats"] += 1

    def _counts(self, before: State, after: State, entry: Enqueue | SkipOccurrences, named: int) -> None:
        """A task's counters grow by what is passed over, and by nothing else."""
        then, now = before.tasks[entry.task], after.tasks[entry.task]
        more = {"skipped": now.skipped - then.skipped, "missed": now.missed - then.missed}
        if isinstance(entry, SkipOccurrences):
            wanted = {"skipped": 0, "missed": 0, entry.state: entry.count or named}
        else:
            queued = len(after.runs_of.get(entry.task, ())) - len(before.runs_of.get(entry.task, ()))
            wanted = {"skipped": named - queued, "missed": 0}
        if more != wanted:
            self._world.wrong(f"{entry.task} counts {more} more, where it is {wanted}: {entry}")

    def _settled(
        self, before: State, after: State, entry: Claim | Enqueue | SkipOccurrences | AwaitParents | FanOut
    ) -> None:
        """Which occurrences have been dealt with: each of them once."""
        row = before.tasks[entry.task]
        if isinstance(entry, AwaitParents):
            times: tuple[int, ...] = (entry.nominal_us,)
        elif isinstance(entry, FanOut):
            times = (entry.fire_at_us,)
        elif isinstance(entry, Claim):
            times = () if entry.run_id is not None else (entry.fire_at_us,)
        else:
            times = tuple(dict.fromkeys(one for one in entry.fire_at_us if one > row.through_us))
            self._counts(before, after, entry, len(times))
        for fire_at_us in times:
            if (row.order, fire_at_us) in self._occurrences:
                self._world.wrong(f"invariant 1: the occurrence {fire_at_us} of {entry.task} is dealt with twice")
            self._occurrences.add((row.order, fire_at_us))
        later = after.tasks.get(entry.task)
        if times and (later is None or later.through_us < times[-1]):
            self._world.wrong(f"{entry.task} has been dealt with up to {times[-1]}, and does not know it")
