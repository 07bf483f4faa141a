"""Where work begins: with members that have places for it, and never so that none is left for what goes before it."""

from collections import Counter
from zlib import crc32

from node.duty.ownership import Ownership
from node.state.apply import Applied
from node.state.calendar import days_of
from node.state.claims import Claim
from node.state.entries import Proposal
from node.state.offers import Offer
from node.state.shape import LATEST_US
from node.state.value import Member, Run, State, TaskRow
from tasks.definition.run import HELD
from tasks.definition.schedule import occurrences
from tests.simulation.plan import HEAL_S
from tests.simulation.world import World

DECLINED_S = 1.0
"""How long an offer holds."""

KEPT_PART = 4
CALM_S = 4.0
"""After this time in a cluster that is well, a member knows the outcome of each of its claims, and so its places."""


class Spread:
    """Watches claims and offers, and counts anew from the runs."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.counts: Counter[str] = Counter()
        self._failovers: set[int] = set()
        self._free: frozenset[str] = frozenset()

    def watch(self, before: State, proposal: Proposal, applied: Applied) -> None:
        """An entry was applied."""
        entry = proposal.entry
        if not applied.result.ok or not isinstance(entry, Claim | Offer):
            return
        member = before.members[entry.member]
        if not member.places.runs:
            return
        run = applied.state.runs.get(applied.result.value["run_id"])
        if run is None:  # its params could not be made
            return
        if isinstance(entry, Offer):
            self.counts["offers"] += 1
            self._offered(applied.state, run, member)
            return
        self.counts["claims of offers"] += run.run_id in before.runs and before.runs[run.run_id].offered == entry.member
        was = before.runs.get(run.run_id)
        lost = was is not None and was.state == "orphaned"
        if lost:
            self._failovers.add(run.token)
        elif not run.spec.continuous and min(self._world.now_s - HEAL_S, self._up_s(member)) > CALM_S:
            held = [one for one in applied.state.runs.values() if one.state in HELD and one.node == member.id]
            held = [one for one in held if one.token not in self._failovers]
            works = sum(one.spec.continuous and not one.action for one in held)
            if len(held) - works > member.places.runs - max(_kept(member), works):
                self._world.wrong(f"{member.id} begins {run.run_id} in a place that is kept for what goes before it ")

    def _up_s(self, member: Member) -> float:
        return (self._world.true_us - member.since_us) / 1e6

    def _offered(self, state: State, run: Run, member: Member) -> None:
        spec = state.tasks[run.task].spec
        if spec.key is not None or spec.sticky or spec.pin is not None or spec.continuous or run.action:
            self._world.wrong(f"{run.run_id} is offered to {member.id}, though its task is kept on one member")
        if run.state != "waiting":
            self._world.wrong(f"{run.run_id} is offered to {member.id}, and is {run.state}")

    def judge(self, state: State, now_us: int) -> None:
        """In a cluster that has been well: nothing waits for its owner while another member has a place for it."""
        members = state.members.values()
        was_free, self._free = self._free, frozenset()
        if any(one.status != "up" or self._up_s(one) < CALM_S or not one.places.runs for one in members):
            return
        patience_us = round((DECLINED_S * (len(members) - 1) + 3.0) * 1_000_000)
        owners = Ownership.of(state)
        busy = Counter(run.node if run.state in HELD else run.offered for run in state.runs.values())
        # A place that has just become free is not yet taken.
        self._free = frozenset(one.id for one in members if busy[one.id] < one.places.runs - _kept(one))
        for task, row in state.tasks.items():
            spec = row.spec
            kept = spec.key is not None or spec.sticky or spec.pin is not None or spec.continuous
            since_us = None if kept or spec.uses or spec.after else _due_since_us(state, row)
            if since_us is None or since_us > now_us - patience_us:
                continue
            free = [name for name in owners.preference(task) if name in was_free & self._free]
            if able := [name for name in free if not declines(name, task)]:
                self._world.wrong(f"{task} is due since {(now_us - since_us) / 1e6:.1f} s, and {able} have places")


def _due_since_us(state: State, row: TaskRow) -> int | None:
    """Since when a task of which nothing works could begin a run; None: it could not."""
    runs = [state.runs[run_id] for run_id in state.runs_of.get(row.placing.name, ())]
    if any(run.state != "waiting" or run.cancelling is not None or run.action for run in runs):
        return None
    if runs:
        since_us = max(runs[0].due_us, runs[0].created_at_us, *(one.finished_at_us or 0 for one in runs[0].attempts), 0)
    elif row.paused or not row.spec.enabled:
        return None
    else:
        days = days_of(state.calendars, row.timing)
        since_us = next(occurrences(row.spec.schedule, days, row.since_us, row.through_us), LATEST_US)
    return since_us if row.last is None else max(since_us, row.last.finished_at_us)


def declines(member: str, task: str) -> bool:
    """Whether a member lacks a secret of a task: each lacks one of every fourth."""
    return crc32(f"{member} {task}".encode()) % 4 == 0


def _kept(member: Member) -> int:
    return member.places.runs // KEPT_PART
