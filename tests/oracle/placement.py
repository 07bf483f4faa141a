"""A second placement, written from docs/explanation/placement.md sentence by sentence, slow and plain.

It shares nothing with `hashing` but the two types that say what a slot and a task are: the jump hash is the
program of Lamping & Veach's paper, room is compared in fractions, and everything is worked out anew for each task.
"""

from collections.abc import Sequence
from fractions import Fraction
from hashlib import blake2b

from hashing.view import Slot, Task


def key64(text: str) -> int:
    """Bytes 0 to 7, the first one the most significant."""
    value = 0
    for byte in blake2b(text.encode("utf-8"), digest_size=8).digest():
        value = value * 256 + byte
    return value


def mix(h: int) -> int:
    """SplitMix64, every operation modulo 2^64."""
    z = (h + 0x9E3779B97F4A7C15) % 2**64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
    return z ^ (z >> 31)


def jump(key: int, buckets: int) -> int:
    """Figure 1 of "A Fast, Minimal Memory, Consistent Hash Algorithm" (2014), in double precision as there."""
    b, j = -1, 0
    while j < buckets:
        b = j
        key = (key * 2862933555777941757 + 1) % 2**64
        j = int(float(b + 1) * (float(1 << 31) / float((key >> 33) + 1)))
    return b


def succession(key: int, n: int) -> list[int]:
    """The slots in the order in which they would take the key."""
    h, rest, out = key, list(range(n)), []
    while rest:
        i = jump(h, len(rest))
        out.append(rest[i])
        rest = rest[:i] + rest[i + 1 :]
        h = mix(h)
    return out


def verdict(slot: Slot, task: Task) -> str:
    """`eligible`, or the first thing that is in the way."""
    if slot.member is None:
        return "vacant"
    if slot.status in {"down", "draining"}:
        return slot.status
    labels = dict(slot.labels)
    if any(labels.get(name) != value for name, value in task.group):
        return "group"
    return "eligible" if task.kind in slot.kinds else "kind"


def walk(slots: Sequence[Slot], task: Task) -> list[int | str]:
    """Pin, incumbent, succession, each once; by its name whoever sits in no slot."""
    names = [slot.member for slot in slots]
    out: list[int | str] = []
    for step in [task.pin, task.incumbent, *succession(task.key64, len(slots))]:
        if step is None:
            continue
        place = names.index(step) if isinstance(step, str) and step in names else step
        if place not in out:
            out.append(place)
    return out


def preference(slots: Sequence[Slot], task: Task) -> list[int]:
    """The eligible ones of the walk."""
    return [
        place for place in walk(slots, task) if isinstance(place, int) and verdict(slots[place], task) == "eligible"
    ]


def owners(slots: Sequence[Slot], tasks: Sequence[Task], balance_slack_milli: int | None) -> list[int | None]:
    """The slot of each task's owner."""
    weight_of_all = sum(task.weight for task in tasks)
    capacity_of_up = sum(slot.capacity for slot in slots if slot.member is not None and slot.status == "up")
    load = [0] * len(slots)
    owner: list[int | None] = [None] * len(tasks)

    def has_room(slot: int, task: Task, eligible: list[int]) -> bool:
        if balance_slack_milli is None:
            return True
        share = Fraction(weight_of_all * slots[slot].capacity, capacity_of_up)
        if load[slot] + task.weight <= share * (1 + Fraction(balance_slack_milli, 1000)):
            return True
        mine = Fraction(load[slot] + task.weight, slots[slot].capacity)
        return not any(Fraction(load[other] + task.weight, slots[other].capacity) < mine for other in eligible)

    def pin_is_eligible(task: Task) -> bool:
        return task.pin is not None and any(slots[place].member == task.pin for place in preference(slots, task))

    for number, task in enumerate(tasks):
        if pin_is_eligible(task):
            owner[number] = preference(slots, task)[0]
            load[preference(slots, task)[0]] += task.weight
    for number, task in enumerate(tasks):
        if pin_is_eligible(task):
            continue
        order = preference(slots, task)
        for slot in order:
            if has_room(slot, task, order):
                owner[number] = slot
                load[slot] += task.weight
                break
    return owner


def standbys(slots: Sequence[Slot], task: Task, owner: int | None) -> list[int]:
    """Those after the owner; each time the first in a zone not yet used, if there is one, else the first."""
    if owner is None:
        return []
    order = preference(slots, task)
    after = order[order.index(owner) + 1 :]
    used = [dict(slots[owner].labels).get("zone")]
    out: list[int] = []
    while after and len(out) < task.standbys:
        zones = [dict(slots[slot].labels).get("zone") for slot in after]
        fresh = [slot for slot, zone in zip(after, zones, strict=True) if zone is not None and zone not in used]
        taken = fresh[0] if fresh else after[0]
        after.remove(taken)
        used.append(dict(slots[taken].labels).get("zone"))
        out.append(taken)
    return out


def because(slots: Sequence[Slot], task: Task, owner: int | None) -> list[tuple[str | None, str]]:
    """The walk to the owner, each with what was found there."""
    out: list[tuple[str | None, str]] = []
    for place in walk(slots, task):
        if isinstance(place, str):
            out.append((place, "vacant"))
        elif place == owner:
            return [*out, (slots[place].member, "chosen")]
        else:
            found = verdict(slots[place], task)
            out.append((slots[place].member, "full" if found == "eligible" else found))
    return out
