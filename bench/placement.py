"""How long placement takes, how much it moves and how even it is, beside kafka-python's StickyPartitionAssignor.

Run `python -m bench.placement`. One core, keys hashed beforehand. The assignor is timed if `kafka-python` is
installed (the extra `bench`); `--without-kafka` leaves it out: it takes about twenty seconds.
"""

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any, TypeVar

from hashing.columns import Columns
from hashing.key import key64
from hashing.moves import moves
from hashing.placement import place
from hashing.view import Slot, Task

T = TypeVar("T")

KINDS = frozenset({"backup", "command", "ingest"})
MEMBERS = 5
LOST = 2
ASSIGNOR = "kafka.coordinator.assignors.sticky.sticky_assignor"


def main(*, with_kafka: bool = True) -> None:
    """Print it all."""
    rota(25_000, times=10)
    rota(1_000_000, times=3)
    if with_kafka:
        kafka(25_000)


def timed(work: Callable[[], T], times: int = 1) -> tuple[float, T]:
    """The shortest of some tries, in milliseconds, and what the last one gave."""
    took_ms = []
    for _ in range(times):
        began = time.perf_counter()
        given = work()
        took_ms.append((time.perf_counter() - began) * 1000)
    return min(took_ms), given


def say(what: str, took_ms: float, loads: Iterable[int], rest: str = "") -> None:
    """One line of the table."""
    had = list(loads)
    print(f"  {what:34} {took_ms:10,.1f} ms   max - min {max(had) - min(had):<5} {rest}")


def rota(count: int, times: int) -> None:
    """Ours: from the tasks as they are, and as a node does it, from what it kept of them."""
    made_ms, tasks = timed(lambda: [Task(f"task-{i}", key64(f"task-{i}"), "backup") for i in range(count)])
    print(f"Rota, {count:,} tasks on {MEMBERS} members (made, and their keys hashed, in {made_ms:,.0f} ms)")
    slots = [Slot(f"node-{number}", kinds=KINDS) for number in range(MEMBERS)]
    without = [replace(slot, status="down") if number == LOST else slot for number, slot in enumerate(slots)]
    for slack, name in ((0, "slack 0"), (None, "slack null")):
        _compare(tasks, slots, without, slack, name, times)


def _compare(
    tasks: list[Task], slots: list[Slot], without: list[Slot], slack: int | None, name: str, times: int
) -> None:
    took_ms, before = timed(lambda: place(slots, tasks, slack), times)
    say(f"{name}, all up", took_ms, before.load)
    took_ms, after = timed(lambda: place(without, tasks, slack), times)
    moved, own = len(moves(tasks, before, after, slots)), before.load[LOST]
    living = [load for slot, load in zip(without, after.load, strict=True) if slot.status == "up"]
    say(f"{name}, one down", took_ms, living, f"moves {own:,} of the one that is down, {moved - own:,} of others")
    columns = Columns.of(tasks)
    place(slots, columns, slack)
    took_ms, _ = timed(lambda: place(without, columns, slack), times)
    say(f"{name}, one down, columns kept", took_ms, living)


def kafka(count: int) -> None:
    """Theirs: one topic with as many partitions; then again, with what each was given before, one consumer less."""
    try:
        sticky = import_module(ASSIGNOR)  # not imported above: it need not be there, and ships no types
    except ImportError:
        print("kafka-python is not installed: pip install -e '.[bench]' brings what this is measured beside")
        return
    partitions = set(range(count))
    topics = {"tasks"}
    cluster = SimpleNamespace(topics=lambda: topics, partitions_for_topic=lambda _: partitions)
    names = [f"node-{number}" for number in range(MEMBERS)]
    print(f"kafka-python's StickyPartitionAssignor, {count:,} partitions on {MEMBERS} consumers")
    took_ms, before = timed(lambda: _assigned(sticky, cluster, dict.fromkeys(names)))
    say("all up", took_ms, Counter(before.values()).values())
    own: dict[str, Any] = {
        name: [partition for partition, owner in before.items() if owner == name]
        for name in names
        if name != names[LOST]
    }
    took_ms, after = timed(lambda: _assigned(sticky, cluster, own))
    moved = sum(after[partition] != owner for partition, owner in before.items())
    lost = Counter(before.values())[names[LOST]]
    rest = f"moves {lost:,} of the one that is down, {moved - lost:,} of others"
    say("one down", took_ms, Counter(after.values()).values(), rest)


def _assigned(sticky: ModuleType, cluster: Any, had: dict[str, Any]) -> dict[Any, str]:
    assignor = sticky.StickyPartitionAssignor
    consumers = [
        SimpleNamespace(member_id=name, metadata=assignor._metadata(["tasks"], partitions, 1))
        for name, partitions in had.items()
    ]
    assigned = assignor().assign(cluster, consumers)
    return {partition: name for name, assignment in assigned.items() for partition in assignment.partitions()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without-kafka", action="store_true")
    main(with_kafka=not parser.parse_args().without_kafka)
