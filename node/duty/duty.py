"""Decides what this member does now. Pure: state, time, lease and local attempts in; entries and orders out."""

import sys
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from operator import attrgetter
from typing import Final

from node.duty.agenda import Agenda, first_look_us
from node.duty.attempts import AT_A_TIME, Attempts, RunIndex, hand_overs
from node.duty.decide import Wish, needs
from node.duty.flight import Flight, subject_of
from node.duty.giving_way import GivingWay
from node.duty.overdue import Late, Overdue
from node.duty.preparing import Preparing
from node.duty.room import BackfillPlaces, FreePlaces, KindTerms, Starved, kind_of
from node.duty.sharing import Loads, Sharing, may_begin
from node.duty.step import Held, LeaseView, Order, Owners, Step, Wanted
from node.state.attempts import Cancel, Finish
from node.state.claims import Claim
from node.state.entries import Entry
from node.state.occurrences import Enqueue
from node.state.offers import Offer
from node.state.places import kept_in_quiet, kept_places
from node.state.run_times import due_us
from node.state.value import Member, Result, State
from tasks.definition.schedule import unreadable

TASKS_A_STEP: Final = 32
"""How many tasks are decided on in one step, so that a step takes milliseconds. The others follow in the next steps.

On a busy machine, where several threads work, the event loop gets a tenth of the time, so a step takes ten times as
long.
"""

SCHEDULED_A_STEP: Final = 32
"""For how many changed tasks the next due time is computed in one step. When a member starts, all tasks have changed.
The first task with a new cron line takes as long as twenty others."""

OTHERS_DUE_MAX: Final = 1000
"""How many due tasks of other members are counted, at most, to find this member's share."""

PUT_BACK_US: Final = 1_000_000
"""If the clock is set back by more than this, all times are computed anew. A smaller change causes no long delay."""

UNDECIDED_US: Final = 1_000_000
"""The pause after a failed decision on a task, before the next try."""


class Duty:
    """Decides what one member does. The caller must:

    - call `observe` with every new state, soon, because an entry's result may come before the state with its effect;
    - propose every entry of a step, and pass its outcome to `answered`;
    - list every `Launch` in `held` from the next step on, until its `Finish` is answered;
    - call `step` whenever an input has changed (state, ownership, lease, held, room, an outcome), and at `wake_us`.
    """

    def __init__(self, me: str, kinds: Mapping[str, KindTerms] | None = None) -> None:
        self._me = me
        self._kinds = kinds or {}
        self._state = State()
        self._latest_us = 0
        self._owners: Owners | None = None
        self._agenda = Agenda()
        self._index = RunIndex(me)
        self._loads = Loads()
        self._flight = Flight()
        self._attempts = Attempts(me, self._flight)
        # Dicts as ordered sets: the decisions must not depend on how strings hash.
        self._ready: dict[str, None] = {}
        """Tasks to be decided on in the next step."""
        self._unseen: deque[Iterator[str]] = deque()
        """Tasks that have changed, and whose next due time is not computed yet."""
        self._others: dict[str, None] = {}
        """Due tasks that another member owns. They are decided on again when ownership changes."""
        self._starved = Starved(self._kinds)
        self._blacked_out: dict[str, None] = {}
        """Own tasks that a blackout holds. They are decided on again when the blackouts change."""
        self._undecided: dict[str, Exception] = {}
        """Own tasks whose last decision failed, and the exceptions."""
        self._late = Late()
        self._preparing = Preparing(me, self._kinds)
        self._places = FreePlaces(0, self._kinds, ())
        self._backfill_places: BackfillPlaces | None = None
        self._giving_way = GivingWay()
        self._wanted: Mapping[str, Wanted] = {}
        self._hand_overs: tuple[list[str], int] | None = None
        """The runs to hand over, and the time until which this list is valid if the state does not change."""
        self.unreadable: dict[str, str] = {}
        """Tasks that never fall due here, because their schedule cannot be computed on this machine, and why."""

    def observe(self, state: State, owners: Owners, touched: Collection[str] | None) -> None:
        """Use a new state and ownership from now on.

        `touched`: the tasks that have changed, or whose runs have changed, since the previous call; None: all may have.
        """
        if state.blackouts is not self._state.blackouts:
            for task in (*self._blacked_out, *self._others):
                self._agenda.hasten(task, 0)
                self._late.forget(task)
            self._blacked_out.clear()
        self._state = state
        self._flight.saw(touched)
        if touched is None:
            self._start_over()
        else:
            self._index.feed(state, touched)
            self._loads.feed(state, touched)
            self._preparing.feed(state, touched)
            for task in touched:
                self._forget(task)
            self._unseen.append(iter(touched))
        if self._unseen:
            self._schedule_some()
        if owners is not self._owners:
            self._owners = owners
            self._ready |= self._others
            self._ready.update(dict.fromkeys(self._starved))
            self._others.clear()
        self._hand_overs = None

    def _start_over(self) -> None:
        """Compute all times and decisions anew, because any task may have changed."""
        self._index = RunIndex(self._me)
        self._index.feed(self._state, self._state.runs_of)
        self._loads = Loads()
        self._loads.feed(self._state, self._state.runs_of)
        self._preparing.clear()
        self._preparing.feed(self._state, self._state.runs_of)
        self._agenda = Agenda()
        for known in (self._ready, self._others, self._starved, self._blacked_out, self._undecided, self.unreadable):
            known.clear()
        self._late.clear()
        self._giving_way = GivingWay()
        # The state is immutable, so it can be iterated over slowly. Tasks that change meanwhile are added again.
        self._unseen.clear()
        self._unseen.extend((iter(self._state.tasks), iter(self._state.runs_of)))

    def _forget(self, task: str) -> None:
        self._ready.pop(task, None)
        self._others.pop(task, None)
        self._late.forget(task)
        self._starved.remove(task)

    def _schedule_some(self) -> None:
        """Compute the next due time of at most `SCHEDULED_A_STEP` changed tasks, so that a step takes milliseconds."""
        tasks: list[str] = []
        while self._unseen and len(tasks) < SCHEDULED_A_STEP:
            more = list(islice(self._unseen[0], SCHEDULED_A_STEP - len(tasks)))
            tasks += more
            if not more:
                self._unseen.popleft()
        for task in sorted(tasks):
            self._forget(task)
            row = self._state.tasks.get(task)
            try:
                why = None if row is None else unreadable(row.timing.schedule)
                look_us = first_look_us(self._state, task)
            except Exception:  # noqa: BLE001 - a bug in Rota, which the decision will show
                why, look_us = None, 0
            # A task whose decision failed is decided on at once, since it stays undecided until a decision succeeds.
            self._agenda.put(task, 0 if task in self._undecided else look_us)
            self._preparing.put(self._state, task, look_us)
            if why is not None:
                self.unreadable[task] = why
            else:
                self.unreadable.pop(task, None)

    def answered(self, entry: Entry, result: Result | None, now_us: int) -> None:
        """Note the result of a proposed entry. None: the result is unknown, and the entry may still be applied."""
        again = self._flight.answered(entry, result, now_us)
        if again is not None:
            self._agenda.hasten(*again)

    def step(
        self,
        now_us: int,
        lease: LeaseView | None,
        held: Held,
        room: int,
        leads_us: Mapping[str, int] | None = None,
    ) -> Step:
        """Decide what to do at `now_us`. `lease`: the live lease, or None. `room`: how many more attempts may run here.

        `leads_us` has the lead time of each preparation: how long before an occurrence is due its process is started.
        """
        if now_us < self._latest_us - PUT_BACK_US:
            self._clock_put_back()
            self._latest_us = now_us
        self._latest_us = max(self._latest_us, now_us)
        self._wanted = {}
        if self._unseen:
            self._schedule_some()
        orders: list[Order] = [*self._attempts.local(self._state, held)]
        if lease is None:
            undecided = tuple(self._undecided.items())
            return Step((), tuple(orders), now_us if self._unseen else None, (), undecided)
        launches, entries = self._attempts.missing(self._state, self._index.mine, held, lease, now_us)
        orders += launches
        me = self._state.members.get(self._me)
        if me is None or me.incarnation != lease.incarnation or me.status == "down":
            return self._closing(orders, entries, lease, now_us)
        orders += self._attempts.hand_over(self._state, self._to_hand_over(now_us), held, AT_A_TIME)
        looks_us: list[int | None] = []
        if me.status == "draining":
            for task in list(self._starved):
                self._starved.remove(task)
                self._ready[task] = None
            self._undecided.clear()
            self._wanted = self._preparing.none()
        else:
            absent = [run_id for run_id in self._index.mine if run_id not in held]
            free = room - self._flight.claims - len(absent)
            self._places = FreePlaces(free, self._kinds, self._working(held, absent), self._kept(me))
            self._backfill_places = self._places_of_backfills(room + len(held), (*held, *absent))
            entries += self._claims(me, now_us)
            assert self._owners is not None
            self._wanted, again_us = self._preparing.wanted(self._owners, now_us, leads_us or {}, self._places)
            looks_us = [now_us if self._ready else self._agenda.next_us(), self._giving_way.until_us, again_us]
        return self._closing(orders, entries, lease, now_us, looks_us)

    def _working(self, held: Held, absent: list[str]) -> Iterator[str]:
        """Yield the kind of each attempt, run without an attempt yet, and claim in flight that has a place here."""
        if any(terms.bound for terms in self._kinds.values()):
            yield from (attempt.kind for attempt in held.values())
            yield from (self._state.runs[run_id].spec.kind for run_id in absent)
            yield from (kind_of(self._state, claim) for claim in self._flight.claimed())

    def _places_of_backfills(self, places: int, run_ids: Iterable[str]) -> BackfillPlaces | None:
        """Return the places that runs of backfills may still take; None: there are no backfills."""
        if not self._state.backfills:
            return None
        claimed = (claim.run_id for claim in self._flight.claimed())
        runs = (self._state.runs.get(run_id) for run_id in (*run_ids, *claimed) if run_id is not None)
        backfilled = [run.spec.kind for run in runs if run is not None and run.backfill]
        return BackfillPlaces(places, self._kinds, backfilled)

    def _kept(self, me: Member) -> Mapping[str, int]:
        """Return the places that batch work leaves to continuous work and failovers: by bound, and in all for ""."""
        if not me.places.runs:
            return {}
        if not self._index.continuous and not any(self._loads.streams.values()):
            return kept_in_quiet(me.places)
        continuous = Counter(
            name
            for run in (self._state.runs[run_id] for run_id in self._index.mine & self._index.continuous)
            for name in {"", me.places.bound_of(run.spec.kind)}
        )
        most = {"": me.places.runs, **dict(me.places.most)}
        keeps = self._loads.keeps
        return {
            name: max(0, kept_places(places, continuous=keeps(name, me.places)) - continuous[name])
            for name, places in most.items()
        }

    def _clock_put_back(self) -> None:
        """Forget times that come from a clock that was ahead, so that no task waits until the clock gets there."""
        self._flight.rested()
        self._attempts.clock_put_back()
        self._start_over()
        self._hand_overs = None

    def _closing(
        self,
        orders: list[Order],
        entries: list[Entry],
        lease: LeaseView,
        now_us: int,
        looks_us: Sequence[int | None] = (),
    ) -> Step:
        for entry in entries:
            self._flight.proposed(entry, self._task_of(entry), lease.period)
        times = [
            now_us if self._unseen else None,
            *looks_us,
            self._flight.wake_us(now_us),
            self._attempts.wake_us(now_us),
        ]
        earliest_us = min((time for time in times if time is not None), default=None)
        undecided = tuple(self._undecided.items())
        waiting, full = self._starved.shown(self._state), self._places.full
        return Step(
            entries=tuple(entries),
            orders=tuple(orders),
            wake_us=earliest_us,
            waiting_for_room=waiting,
            undecided=undecided,
            full=full,
            wanted=self._wanted,
        )

    def _task_of(self, entry: Entry) -> str:
        if isinstance(entry, Finish | Cancel):
            return self._state.runs[entry.run_id].task
        return str(getattr(entry, "task", ""))

    def _to_hand_over(self, now_us: int) -> list[str]:
        if self._hand_overs is None or now_us >= self._hand_overs[1]:
            assert self._owners is not None
            orphaned = self._index.orphaned
            found = hand_overs(self._state, self._owners, self._index.continuous, orphaned, now_us)
            # When the grace of an orphaned run ends, it may be claimed as a failover.
            graces_us = (due_us(self._state.runs[run_id], now_us) for run_id in orphaned)
            self._hand_overs = found, min((end_us for end_us in graces_us if end_us > now_us), default=sys.maxsize)
        return self._hand_overs[0]

    def overdue(self, now_us: int) -> Overdue:
        """Return the tasks that are due and have not begun, among those that `take_due` has picked."""
        return self._late.overdue(now_us)

    def take_due(self, now_us: int, most: int = sys.maxsize) -> int:
        """Pick the tasks whose time has come, `most` at most, for the next step. Returns their number."""
        due = self._agenda.due(now_us, most)
        if self._late.come(self._state, due, now_us):
            self._giving_way.came(now_us)
        self._ready.update((task, None) for _, task in due)
        return len(due)

    def _claims(self, me: Member, now_us: int) -> list[Entry]:
        """Decide on the tasks whose time has come. Returns the entries, which include claims for the free places."""
        self.take_due(now_us)
        self._ready.update(dict.fromkeys(self._giving_way.released(now_us)))
        # The tasks that have waited the longest, as many as could run now, compete with tasks that have just come due.
        if self._starved:
            elsewhere = self._sharing(me, 0).room_elsewhere
            longest = self._starved.longest(self._state, self._places, self._backfill_places, elsewhere)
            self._ready.update(dict.fromkeys(longest))
        entries: list[Entry] = []
        wishes: list[Wish] = []
        for task in self._mine(TASKS_A_STEP):
            self._starved.remove(task)
            try:
                found = needs(self._state, task, me, now_us, owner=self._owns(task))
            except Exception as error:  # noqa: BLE001 - one bug in Rota must not stop the other tasks
                self._undecided[task] = error
                self._agenda.put(task, now_us + UNDECIDED_US)
                continue
            self._undecided.pop(task, None)
            self._blacked_out.pop(task, None)
            if found.held:
                self._blacked_out[task] = None
            self._agenda.put(task, found.look_us)
            self._preparing.put(self._state, task, now_us if found.wishes else found.look_us)
            entries += [entry for entry in found.entries if self._may_propose(entry, task, now_us)]
            wishes += [wish for wish in found.wishes if self._may_propose(wish.claim, task, now_us)]
        if not wishes:
            return entries
        wishes.sort(key=attrgetter("rank"))
        claims = self._claims_that_count()
        sharing = self._sharing(me, claims + sum(not wish.backfill for wish in wishes))
        for _ in range(claims):
            sharing.begin(self._me, "")
        for wish in wishes:
            task = wish.claim.task
            if wish.backfill and self._giving_way.holds(task, now_us, self._agenda.next_us()):
                continue
            if (entry := self._begun(wish, sharing)) is not None:
                entries.append(entry)
                continue
            if wish.queue_us is not None and wish.queue_us <= now_us:
                entries.append(Enqueue(now_us, task, (wish.claim.fire_at_us,)))
                continue
            if wish.queue_us is not None:
                self._agenda.hasten(task, wish.queue_us)
            self._starved.add(wish)
        return entries

    def _claims_that_count(self) -> int:
        """Return how many claims are in flight that count for this member's share: all but those of backfills."""
        if not self._state.backfills:
            return self._flight.claims
        runs = (self._state.runs.get(claim.run_id or "") for claim in self._flight.claimed())
        return sum(run is None or not run.backfill for run in runs)

    def _begun(self, wish: Wish, sharing: Sharing) -> Claim | Offer | None:
        """Return the claim, if there is a place for it here; or the offer of its run to a member that has more room."""
        claim, kind = wish.claim, kind_of(self._state, wish.claim)
        of_backfills = self._backfill_places if wish.backfill else None
        fits = self._places.open(kind, batch=wish.batch) and (of_backfills is None or of_backfills.open(kind))
        # What another member did not begin is not offered around while there is a place for it here.
        if wish.shared and not (fits and (wish.declined or sharing.within_share())):
            member = sharing.with_room(self._order(claim.task), kind, wish.declined, full=not fits)
            if member is not None:
                sharing.begin(member, kind)
                return Offer(claim.at_us, claim.task, claim.fire_at_us, member, claim.run_id)
        if not fits:
            return None
        self._places.take(kind, batch=wish.batch)
        if of_backfills is not None:
            of_backfills.take(kind)
        if wish.batch and not (wish.counted or wish.backfill):
            sharing.begin(self._me, kind)
        return claim

    def _order(self, task: str) -> list[str]:
        assert self._owners is not None
        return self._owners.preference(task)

    def _sharing(self, me: Member, own: int) -> Sharing:
        return Sharing(me, self._state, self._loads, own, self._others_due)

    def _others_due(self) -> Mapping[str, int]:
        """Count the tasks of other members that are due and not begun, by owner: of `OTHERS_DUE_MAX` at most."""
        assert self._owners is not None
        due: Counter[str] = Counter()
        for task in islice(chain(self._others, self._ready), OTHERS_DUE_MAX):
            owner = self._owners.owner(task)
            if owner is not None and owner != self._me and may_begin(self._state, task, self._latest_us):
                due[owner] += 1
        return due

    def _mine(self, count: int) -> list[str]:
        """Remove and return up to `count` of the ready tasks: own ones, and those of which a run is offered here.

        Tasks of other members are put aside. A task with `each` is everybody's own: each member claims its runs.
        """
        tasks: list[str] = []
        while self._ready and len(tasks) < count:
            task = self._ready.popitem()[0]
            if self._owns(task):
                tasks.append(task)
                continue
            # What this member claims of another's task it claims as its own once it owns that.
            self._others[task] = None
            if task in self._state.each or task in self._index.offered:
                tasks.append(task)
            else:
                self._starved.remove(task)
                self._undecided.pop(task, None)
        return tasks

    def _owns(self, task: str) -> bool:
        assert self._owners is not None
        return self._owners.owner(task) == self._me

    def _may_propose(self, entry: Entry, task: str, now_us: int) -> bool:
        if self._flight.free(subject_of(entry), now_us):
            return True
        until_us = self._flight.rests_until_us(subject_of(entry))
        if until_us is not None:
            self._agenda.hasten(task, until_us)
        return False
