"""Finds the owner of each task: the first member in the task's preference order that has room.

Room is computed exactly, in integers. Let W be the total weight of all tasks, and C the total capacity. A member with
capacity c may have a load of up to `share * (1 + slack) = W * c * (1000 + slack_milli) / (C * 1000)`. Loads are
integers, so it is enough to compare them with the floor of this number, the member's *limit*, which is computed once.

A member also has room for a task of weight w if no eligible member would have a smaller (load + w) / capacity. This
second rule matters only if no eligible member is within its limit: if any is, so is the member with the smallest
quotient, because limit / capacity before the floor is the same number for all members. So a task goes to the first
member of its order that is within its limit. If no member is, the task goes to the member with the smallest quotient;
of several such members, to the first in the order.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat

import jump

from hashing.columns import Columns, Trait
from hashing.key import mix
from hashing.preference import obstacle, preference, seats
from hashing.succession import succession
from hashing.view import Slot, Task


@dataclass(frozen=True, slots=True)
class Placement:
    """The slot of each task's owner (None: no member is eligible), and the load of each slot."""

    owners: tuple[int | None, ...]
    load: tuple[int, ...]


NOBODY = -1
"""The limit of a slot that is not eligible: no load is within it."""


class _Pool:
    """The members eligible for tasks of the same traits. `limits` has one limit for each slot, `NOBODY` if ineligible.

    `closed_at` is the smallest weight for which no room was found in the pool. Loads only grow, so the search is not
    repeated for tasks of this weight or more.
    """

    __slots__ = ("closed_at", "eligible", "limits")

    def __init__(self, eligible: tuple[int, ...], limits: list[int], weight: int) -> None:
        self.eligible = eligible
        self.limits = [limit if slot in eligible else NOBODY for slot, limit in enumerate(limits)]
        self.closed_at = weight + 1


class _Placing:
    """A placement in progress: the load of each slot so far, and its limit."""

    def __init__(self, slots: Sequence[Slot], columns: Columns, balance_slack_milli: int | None) -> None:
        self.slots = slots
        self.columns = columns
        self.load = [0] * len(slots)
        self.capacity = [slot.capacity for slot in slots]
        self.by_member = seats(slots)
        self.pools = self._pools(limits(slots, columns.weight, balance_slack_milli))

    def _pools(self, limits: list[int]) -> dict[Trait, _Pool]:
        # Traits with the same eligible members share a pool. If every member offers every kind, and there are no
        # groups, there is one pool.
        by_eligible: dict[tuple[int, ...], _Pool] = {}
        pools = {}
        for kind, group in self.columns.distinct_traits:
            eligible = tuple(i for i, slot in enumerate(self.slots) if obstacle(slot, kind, group) is None)
            if eligible not in by_eligible:
                by_eligible[eligible] = _Pool(eligible, limits, self.columns.weight)
            pools[kind, group] = by_eligible[eligible]
        return pools

    def pin(self) -> dict[int, int]:
        """Place each task whose pin is eligible, even without room. Returns the slots by the tasks' positions."""
        placed = {}
        for position, member in self.columns.pins:
            task = self.columns.tasks[position]
            slot = self.by_member.get(member)
            if slot is not None and slot in self.pools[task.kind, task.group].eligible:
                self.load[slot] += task.weight
                placed[position] = slot
        return placed

    def pour(self, columns: Columns) -> list[int | None]:
        """Place these tasks in their order, and return the owners' slots. This loop determines placement's speed."""
        load, owners = self.load, list[int | None]()
        give = owners.append
        firsts = map(jump.hash, columns.keys, repeat(len(self.slots)))
        each = zip(
            firsts,
            columns.weights,
            self._column_of_pools(columns),
            self._incumbents(columns),
            columns.keys,
            strict=False,
        )
        for first, weight, pool, incumbent, key in each:
            slot = first if incumbent is None else incumbent
            if load[slot] + weight <= pool.limits[slot]:
                load[slot] += weight
                give(slot)
                continue
            further = self._within_limit(key, weight, pool) if weight < pool.closed_at else None
            if further is None:
                further = self._least(key, weight, pool.eligible, incumbent)
            if further is not None:
                load[further] += weight
            give(further)
        return owners

    def _column_of_pools(self, columns: Columns) -> Iterable[_Pool]:
        pools = set(self.pools.values())
        return repeat(pools.pop()) if len(pools) == 1 else map(self.pools.__getitem__, columns.traits)

    def _incumbents(self, columns: Columns) -> Iterable[int | None]:
        column = columns.incumbents
        if column is None:
            return repeat(None)
        return [None if member is None else self.by_member.get(member) for member in column]

    def _within_limit(self, key: int, weight: int, pool: _Pool) -> int | None:
        # `succession`, inlined for speed: with one of five members down, a fifth of all tasks get here.
        load, limits = self.load, pool.limits
        rest = list(range(len(load)))
        h = key
        for left in range(len(load), 0, -1):
            slot = rest.pop(jump.hash(h, left))
            if load[slot] + weight <= limits[slot]:
                return slot
            h = mix(h)
        pool.closed_at = weight
        return None

    def _least(self, key: int, weight: int, eligible: tuple[int, ...], incumbent: int | None) -> int | None:
        """Return the slot with the smallest (load + weight) / capacity; of several, the first in preference order."""
        least: list[int] = []
        for slot in eligible:
            # Compare a/b < c/d as a*d < c*b, which is exact.
            if least:
                mine = (self.load[slot] + weight) * self.capacity[least[0]]
                best = (self.load[least[0]] + weight) * self.capacity[slot]
                if mine > best:
                    continue
                if mine < best:
                    least.clear()
            least.append(slot)
        if len(least) <= 1:
            return least[0] if least else None
        if incumbent in least:
            return incumbent
        return next(slot for slot in succession(key, len(self.load)) if slot in least)


def limits(slots: Sequence[Slot], weight: int, balance_slack_milli: int | None) -> list[int]:
    """Return the limit of each slot's load, if `weight` is the total weight of all tasks."""
    if balance_slack_milli is None:
        return [weight] * len(slots)  # every member has room for all tasks
    up = sum(slot.capacity for slot in slots if slot.member is not None and slot.status == "up")
    per_capacity = weight * (1000 + balance_slack_milli)
    return [per_capacity * slot.capacity // (up * 1000) if up else 0 for slot in slots]


def place(slots: Sequence[Slot], tasks: Sequence[Task] | Columns, balance_slack_milli: int | None) -> Placement:
    """Compute the owner of every task. Pure: the result depends on the arguments only.

    `tasks` are in the order in which they were registered. `balance_slack_milli` is the setting `balance_slack` in
    thousandths (None: no limits on load). To place the same tasks again with other members, keep their `Columns`, and
    pass these as `tasks`.
    """
    columns = Columns.of(tasks)
    if not slots:
        return Placement((None,) * len(columns.tasks), ())
    placing = _Placing(slots, columns, balance_slack_milli)
    pinned = placing.pin()
    if not pinned:
        return Placement(tuple(placing.pour(columns)), tuple(placing.load))
    others = [position for position in range(len(columns.tasks)) if position not in pinned]
    poured = placing.pour(Columns(tuple(columns.tasks[position] for position in others)))
    owners = {**pinned, **dict(zip(others, poured, strict=True))}
    return Placement(tuple(owners[position] for position in range(len(columns.tasks))), tuple(placing.load))


def standbys(slots: Sequence[Slot], task: Task, owner: int | None) -> list[int]:
    """Return the slots of the task's standbys while `owner` owns it: at most `task.standbys` of them.

    They are taken from the members after the owner in the preference order: first one from each zone that has neither
    the owner nor a standby yet, then the others in their order. Members without the label `zone` are in no zone. A task
    without an owner has no standbys.
    """
    if owner is None:
        return []
    order = preference(slots, task)
    waiting = order[order.index(owner) + 1 :]
    zones = {slots[owner].zone, None}
    chosen: list[int] = []
    while waiting and len(chosen) < task.standbys:
        following = next((slot for slot in waiting if slots[slot].zone not in zones), waiting[0])
        waiting.remove(following)
        zones.add(slots[following].zone)
        chosen.append(following)
    return chosen
