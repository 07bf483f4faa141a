"""The tasks: chains, a fan-out, joins, reactions to failures, a queue, times of their own, bursts, starts by hand."""

from pathlib import Path
from typing import Any, Final

HAND: Final = "hand-0"
"""The task that is started by hand, with all that comes after it."""

CRON_S: Final = 5
"""The period of the tasks with a cron line."""

_CRON: Final = {"cron": f"*/{CRON_S} * * * * *"}


def _many(name: str, *numbers: int) -> list[str]:
    return [f"{name}-{number}" for number in numbers]


TASKS: Final[dict[str, dict[str, Any]]] = {
    "chain-0": {"schedule": {"every_s": 3}},
    **{f"chain-{number}": {"after": _many("chain", number - 1)} for number in range(1, 6)},
    "fan-0": {"schedule": {"every_s": 4}},
    **{f"fan-{number}": {"after": ["fan-0"]} for number in range(1, 7)},
    "fan-7": {"after": _many("fan", *range(7))},
    "diamond-0": {"schedule": {"every_s": 3}},
    "diamond-1": {"after": ["diamond-0"]},
    "diamond-2": {"after": ["diamond-0"]},
    "diamond-3": {"after": ["diamond-1", "diamond-2"]},
    "diamond-4": {"after": ["diamond-3", "diamond-0"]},
    "twins-0": {"schedule": _CRON},
    "twins-1": {"schedule": _CRON},
    "twins-2": {"after": ["twins-0", "twins-1"]},
    "twins-3": {"after": ["twins-2", "twins-0"]},
    "ends-0": {"schedule": {"every_s": 3}, "fails": True},
    "ends-1": {"after": ["ends-0"], "fails": True},
    "ends-2": {"after": [{"task": "ends-0", "on": "failed"}]},
    "ends-3": {"after": [{"task": "ends-0", "on": "ended"}]},
    "ends-4": {"after": ["ends-1", "ends-3"]},
    "ends-5": {"after": ["ends-4"]},
    "ends-6": {"after": [{"task": "ends-5", "on": "ended"}, {"task": "ends-1", "on": "failed"}]},
    "queue-0": {"schedule": {"every_s": 2}},
    "queue-1": {"after": ["queue-0"], "overlap": "queue"},
    "queue-2": {"after": ["queue-1"], "overlap": "queue"},
    "own-0": {"schedule": {"every_s": 3}, "fails": True},
    "own-1": {"schedule": _CRON, "after": ["own-0"]},
    "own-2": {"schedule": _CRON, "after": [{"task": "own-0", "on": "ended"}]},
    "own-3": {"after": ["own-2"]},
    **{f"burst-{number}": {"schedule": _CRON} for number in range(12)},
    "burst-12": {"after": _many("burst", *range(12))},
    HAND: {},
    "hand-1": {"after": [HAND]},
    "hand-2": {"after": [HAND], "fails": True},
    "hand-3": {"after": ["hand-1", {"task": "hand-2", "on": "ended"}]},
}
"""What each task is besides its work. `fails`: some of its occurrences fail."""

PARENTS: Final[dict[str, dict[str, str]]] = {
    name: {
        one if isinstance(one, str) else one["task"]: "succeeded" if isinstance(one, str) else one["on"]
        for one in task.get("after", ())
    }
    for name, task in TASKS.items()
}
"""The tasks that each comes after, and after which end."""

CHILDREN: Final[dict[str, list[str]]] = {
    name: [child for child, parents in PARENTS.items() if name in parents] for name in TASKS
}

ROOTS: Final = [name for name, task in TASKS.items() if "schedule" in task]
"""The tasks with a schedule."""

AT_TIMES: Final = ("own-1", "own-2", "own-3")
"""The tasks whose times are not their parents' times, and what shares those times. Once paused, they wait no more."""


def specs(folder: Path) -> list[dict[str, Any]]:
    """The definitions of all tasks, with their ledgers in a folder."""
    return [
        {
            "name": name,
            "kind": "entered",
            "params": {"ledger": str(folder / name), "fails": task.get("fails", False)},
            "overlap": task.get("overlap", "allow"),
            "catch_up": "all",
            "retry": {"attempts": 2, "backoff_s": 0.1},
            "failover": {"max": 1000},
            **{key: task[key] for key in ("schedule", "after") if key in task},
        }
        for name, task in TASKS.items()
    ]
