"""Writes `placement.json`: placement's golden vectors, as the naive implementation gives them.

Run `python -m tests.golden.write_placement` from the root of the repository. What it writes is a contract
(docs/explanation/placement.md): it changes only where cases are added, and a change of what stands breaks clusters and
other people's programs.
"""

import json
import random
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hashing.view import Slot, Task
from tests.oracle import placement as oracle

FILE = Path(__file__).with_name("placement.json")

TEXTS = [
    "", "a", "orders", "nightly-orders", "node-1", "sauvegarde-été", "sauvegarde-e\u0301te\u0301",
    "резервная-копия", "注文", "🦉", "x" * 512,
]  # fmt: skip
NUMBERS = [0, 1, 2**31, 2**63, 2**64 - 1, 0x9E3779B97F4A7C15]
KINDS = frozenset({"backup", "command", "ingest"})


def cases() -> dict[str, tuple[list[Slot], list[Task], int | None]]:
    """The clusters: slots, tasks in order, balance_slack in thousandths."""
    five = [Slot(f"node-{i}", kinds=KINDS) for i in range(1, 6)]
    plain = [_task(f"task-{i}") for i in range(40)]
    third_down = [Slot(s.member, "down" if s.member == "node-3" else "up", kinds=KINDS) for s in five]
    zones = [
        Slot(f"node-{i}", labels=(("zone", zone),) if zone else (), kinds=KINDS)
        for i, zone in enumerate(["a", "a", "b", "b", "c", None, "a"], start=1)
    ]
    worn = [
        Slot("node-1", "up", (("disk", "ssd"), ("zone", "a")), 3, KINDS),
        Slot(None),
        Slot("node-3", "draining", (("disk", "ssd"),), 2, KINDS),
        Slot("node-4", "up", (("disk", "hdd"), ("zone", "b")), 2, frozenset({"backup", "command"})),
        Slot("node-5", "down", (("disk", "ssd"),), 1, KINDS),
        Slot("node-6", "up", (("disk", "ssd"), ("zone", "a")), 1, frozenset({"ingest", "command"})),
        Slot("node-7", "up", (("zone", "c"),), 4, KINDS),
    ]
    return {
        "five members, slack 0": (five, plain, 0),
        "five members, no room": (five, plain, None),
        "node-3 down, slack 0": (third_down, plain, 0),
        "node-3 down, slack 0.25": (third_down, plain, 250),
        "nobody": ([Slot(None), Slot("node-2", "down", kinds=KINDS)], plain[:3], 0),
        "zones": (zones, [_task(f"task-{i}", standbys=i % 7) for i in range(21)], 100),
        "weights, capacities, groups, kinds, pins, incumbents": (worn, _varied(60), 0),
        "the same, slack 0.125": (worn, _varied(60), 125),
        "the same, no room": (worn, _varied(60), None),
    }


def _task(name: str, **fields: Any) -> Task:
    return Task(name, oracle.key64(fields.pop("key", name)), fields.pop("kind", "backup"), **fields)


def _varied(count: int) -> list[Task]:
    draw = random.Random(4)  # drawn once; the file holds what came of it
    tasks = []
    for i in range(count):
        key = {"key": f"shared-{i % 3}"} if i % 10 == 0 else {}
        tasks.append(
            _task(
                f"task-{i}",
                kind=draw.choice(
                    ["backup", "command", "ingest", "etl"] if i % 6 == 0 else ["backup", "command", "ingest"]
                ),
                group=draw.choice(
                    [(), (), (), (("disk", "ssd"),), (("disk", "ssd"), ("zone", "a")), (("disk", "tape"),)]
                ),
                pin=draw.choice([None, None, None, None, "node-1", "node-3", "node-6", "node-9"]),
                incumbent=draw.choice([None, None, None, "node-4", "node-5", "node-7"]),
                weight=draw.choice([1, 1, 2, 5, 40]),
                standbys=draw.choice([0, 1, 2, 6]),
                **key,
            )
        )
    return tasks


def vectors() -> dict[str, Any]:
    """All that the file holds, as JSON has it."""
    return {
        "key64": {text: oracle.key64(text) for text in TEXTS},
        "mix": {str(number): oracle.mix(number) for number in NUMBERS},
        "succession": {f"{number}/{n}": oracle.succession(number, n) for number in NUMBERS for n in (1, 2, 3, 5, 12)},
        "placement": [_placed(name, *case) for name, case in cases().items()],
    }


def _placed(name: str, slots: list[Slot], tasks: list[Task], balance_slack_milli: int | None) -> dict[str, Any]:
    owners = oracle.owners(slots, tasks, balance_slack_milli)
    return {
        "case": name,
        "balance_slack_milli": balance_slack_milli,
        "slots": [{**asdict(slot), "kinds": sorted(slot.kinds)} for slot in slots],
        "tasks": [
            {
                "task": task._asdict(),
                "owner": owner,
                "preference": oracle.preference(slots, task),
                "standbys": oracle.standbys(slots, task, owner),
                "because": oracle.because(slots, task, owner),
            }
            for task, owner in zip(tasks, owners, strict=True)
        ],
    }


def text() -> str:
    """The file: a line for each vector, so that a difference can be read."""
    whole = vectors()
    parts = []
    for name in ("key64", "mix", "succession"):
        lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in whole[name].items()]
        parts.append(f" {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n }")
    placements = []
    for case in whole["placement"]:
        head = json.dumps({name: value for name, value in case.items() if name not in {"slots", "tasks"}})[:-1]
        lists = [
            f'  "{name}": [\n' + ",\n".join("   " + json.dumps(row) for row in case[name]) + "\n  ]"
            for name in ("slots", "tasks")
        ]
        placements.append(f"  {head},\n" + ",\n".join(lists) + "}")
    parts.append(' "placement": [\n' + ",\n".join(placements) + "\n ]")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
