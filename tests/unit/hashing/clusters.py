"""Hypothesis strategies for clusters and tasks."""

from hypothesis import strategies as st

from hashing.view import Slot, Task

KINDS = ("backup", "command", "ingest")
OFFERS_ALL = frozenset(KINDS)

_disks = st.sampled_from([(), (("disk", "hdd"),), (("disk", "ssd"),)])
_zones = st.sampled_from([(), (("zone", "a"),), (("zone", "b"),), (("zone", "c"),)])
slacks = st.sampled_from([None, 0, 1, 100, 250, 1000, 5000])


@st.composite
def clusters(draw: st.DrawFn, least: int = 0, most: int = 7) -> list[Slot]:
    """Slots of every sort: vacant, down, draining, with labels, zones, capacities and kinds of their own."""
    slots = []
    for number in range(draw(st.integers(least, most))):
        status = draw(st.sampled_from(["up", "up", "up", "down", "draining", None]))
        if status is None:
            slots.append(Slot(None))
            continue
        slots.append(
            Slot(
                f"node-{number}",
                status,  # type: ignore[arg-type]  # drawn from the literals above
                draw(_disks) + draw(_zones),
                draw(st.sampled_from([1, 1, 1, 2, 3, 7, 1_000_000])),
                draw(
                    st.sampled_from([OFFERS_ALL, OFFERS_ALL, frozenset({"backup"}), frozenset({"command", "ingest"})])
                ),
            )
        )
    return slots


@st.composite
def task_lists(draw: st.DrawFn, most: int = 40) -> list[Task]:
    """Tasks of every sort; some share a key, some name members that are not there."""
    members = st.sampled_from([None, None, None, *(f"node-{number}" for number in range(8))])
    keys = draw(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=most))
    groups = st.sampled_from([(), (), (("disk", "ssd"),), (("disk", "hdd"),), (("zone", "a"),)])
    return [
        Task(
            f"task-{number}",
            key,
            draw(st.sampled_from([*KINDS, "backup"])),
            draw(groups),
            draw(members),
            draw(members),
            draw(st.sampled_from([1, 1, 1, 2, 5, 1_000_000])),
            draw(st.integers(0, 4)),
        )
        for number, key in enumerate(keys)
    ]


def alike(members: int) -> list[Slot]:
    """Members that differ in nothing but their names, all up."""
    return [Slot(f"node-{number}", kinds=OFFERS_ALL) for number in range(members)]


plain_tasks = st.lists(st.integers(0, 2**64 - 1), max_size=120).map(
    lambda keys: [Task(f"task-{number}", key, "backup") for number, key in enumerate(keys)]
)
"""Unit weights, no pins, one group, one kind."""
