"""Decides which due work goes to a member with more room than the owner of its task. Pure.

The owner decides, and offers the run to one member (`node.state.offers.Offer`), which claims it. It offers what would
be more than its share: of all runs that are held, offered or due, as many as its capacity is of all capacity, rounded
up. So long as a member runs no more than a quarter of its places, it keeps its work: elsewhere it would hardly be
quicker, and an offer costs an entry. The run goes to the first member in the task's preference order that has less than
its share; if the owner has no place left, to the one that is least busy for its capacity.

Tasks that are kept on one member stay there: those with a `pin`, a `key` or `sticky`, and continuous ones.

Runs of backfills stay with the owner, and do not count: they give way, so that no other run goes to another member
because of them, unless they leave it no place.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple

from node.state.places import Places, for_batch
from node.state.value import Member, Run, State
from tasks.definition.pools import pool_needs
from tasks.definition.run import HELD

OFFER_US: Final = 1_000_000
"""How long an offer holds, in microseconds. After that the owner begins the run, or offers it to another member: who
was offered it may lack a secret, or be busy with something that the state does not have."""

DECLINED_US: Final = 4 * OFFER_US
"""For how long since an offer a member that did not begin the run is not offered it again, in microseconds."""


def offer_holds(state: State, run: Run, now_us: int) -> bool:
    """Whether a run that waits is offered to a member that may still begin it."""
    if not run.offered or abs(now_us - run.offered_us) >= OFFER_US:
        return False
    member = state.members.get(run.offered)
    return member is not None and member.status == "up"


def may_begin(state: State, task: str, now_us: int) -> bool:
    """Whether a task that is due, as its owner will find, may begin now: none of its runs works or waits for long."""
    row = state.tasks.get(task)
    if row is None or pool_needs(row.spec_packed) is not None:
        return False
    runs = [state.runs[run_id] for run_id in state.runs_of.get(task, ())]
    return all(run.state not in HELD and not run.offered and run.due_us <= now_us for run in runs)


class Loads:
    """How many runs each member holds or is offered, as the state has it."""

    def __init__(self) -> None:
        self._runs: dict[str, tuple[_Counted, ...]] = {}
        self.batch: Counter[str] = Counter()
        """Runs of other than continuous work, by member."""
        self.backfills: Counter[str] = Counter()
        """Those of them that are of backfills, by member."""
        self.continuous: Counter[str] = Counter()
        """Runs of continuous work, by member."""
        self.kinds: Counter[tuple[str, str]] = Counter()
        """All runs, by member and kind."""
        self.streams: Counter[str] = Counter()
        """Runs of continuous work that are active, by kind, whoever has them."""

    def feed(self, state: State, tasks: Iterable[str]) -> None:
        """Update the runs of `tasks`, which have changed."""
        for task in tasks:
            counted, run_ids = self._runs.get(task, ()), state.runs_of.get(task, ())
            found = tuple([one for run_id in run_ids if (one := _counted(state.runs[run_id])) is not None])
            if found == counted:
                continue
            for run in counted:
                self._count(run, -1)
            for run in found:
                self._count(run, 1)
            if found:
                self._runs[task] = found
            else:
                del self._runs[task]

    def keeps(self, bound: str, places: Places) -> bool:
        """Whether there is continuous work of a bound ("": of any kind), for which a member keeps a place at least."""
        return any(number and bound in ("", places.bound_of(kind)) for kind, number in self.streams.items())

    def _count(self, run: "_Counted", by: int) -> None:
        member, kind, continuous, backfill = run
        if continuous:
            self.streams[kind] += by
        if member:
            (self.continuous if continuous else self.batch)[member] += by
            self.kinds[member, kind] += by
            if backfill:
                self.backfills[member] += by


class _Counted(NamedTuple):
    """What counts of a run: the member that holds it or is offered it ("": none), and what it is."""

    member: str
    kind: str
    continuous: bool
    backfill: bool


def _counted(run: Run) -> _Counted | None:
    member = (run.node if run.state in HELD else run.offered) or ""
    spec = run.spec
    continuous = spec.continuous and not run.action
    return _Counted(member, spec.kind, continuous, bool(run.backfill)) if member or continuous else None


class Sharing:
    """How the work is spread at one moment. `own`: how many runs the member `me` could begin now, claims in flight too.

    `others_due` counts the tasks that are due and not begun, by the member that owns them. It is called at most once,
    and only if it matters.
    """

    def __init__(
        self, me: Member, state: State, loads: Loads, own: int, others_due: Callable[[], Mapping[str, int]]
    ) -> None:
        self._me, self._loads, self._own, self._others_due = me, loads, own, others_due
        able = [member for member in state.members.values() if member.status == "up" and member.places.runs]
        self._members = {member.id: member for member in able} if me.places.runs and len(able) > 1 else {}
        self._given: Counter[str] = Counter()
        self._given_kinds: Counter[tuple[str, str]] = Counter()

    @cached_property
    def _due(self) -> Mapping[str, int]:
        """How many tasks are due and not begun, by the other member that owns them."""
        return {one: due for one, due in self._others_due().items() if one in self._members}

    @property
    def room_elsewhere(self) -> int:
        """How many more runs the other members have places for, as the state has it."""
        others = (member for member in self._members.values() if member.id != self._me.id)
        return sum(max(0, self._limit(member) - self._loads.batch[member.id]) for member in others)

    def within_share(self) -> bool:
        """Whether one more run here is within this member's share."""
        if not self._members:
            return True
        busy = self._busy(self._me.id)
        return busy < _quarter(self._me) or busy < self._shares[self._me.id]

    def begin(self, member: str, kind: str) -> None:
        """Count one more run on a member: it begins it, or is offered it."""
        self._given[member] += 1
        self._given_kinds[member, kind] += 1

    def with_room(self, order: Sequence[str], kind: str, besides: str = "", *, full: bool = False) -> str | None:
        """Return the other member to offer a run to: the first in `order` that has less than its share. None: none.

        `full`: this member has no place, so that a member which has one is found even if it has its share: the one
        with the smallest load for its capacity. `besides` is not offered it.
        """
        others = [self._members[one] for one in order if one in self._members and one not in (self._me.id, besides)]
        able = [member for member in others if self._fits(member, kind)]
        first = next((one.id for one in able if self._busy(one.id) < self._least_share(one)), None)
        if first is None and full and able:
            return min(able, key=lambda one: ((self._load(one.id) + 1) / one.capacity, order.index(one.id))).id
        return first

    def _fits(self, member: Member, kind: str) -> bool:
        if self._load(member.id) >= self._limit(member):
            return False
        bound = member.places.bound_of(kind)
        if not bound:
            return True
        used = sum(
            self._loads.kinds[member.id, one] + self._given_kinds[member.id, one]
            for one, its_bound in member.places.bounds
            if its_bound == bound
        )
        most = dict(member.places.most).get(bound, member.places.runs)
        return used < for_batch(most, 0, continuous=self._loads.keeps(bound, member.places))

    def _limit(self, member: Member) -> int:
        held = self._loads.continuous[member.id]
        return for_batch(member.places.runs, held, continuous=self._loads.keeps("", member.places))

    def _least_share(self, member: Member) -> int:
        return max(self._shares[member.id], _quarter(member))

    def _busy(self, member: str) -> int:
        """The runs of a member that count for its share."""
        return self._load(member) - self._loads.backfills[member]

    def _load(self, member: str) -> int:
        due = 0 if member == self._me.id else self._due.get(member, 0)
        return self._loads.batch[member] + self._given[member] + due

    @cached_property
    def _shares(self) -> dict[str, int]:
        capacity = sum(one.capacity for one in self._members.values())
        held = sum(self._loads.batch[one] - self._loads.backfills[one] for one in self._members)
        work = self._own + sum(self._due.values()) + held
        return {one.id: -(-work * one.capacity // capacity) for one in self._members.values()}


def _quarter(member: Member) -> int:
    return max(1, member.places.runs // 4)
