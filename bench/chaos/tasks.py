"""The tasks: every overlap and catch-up policy, retries, time limits, hand-overs, every way to resume."""

from pathlib import Path
from typing import Any, Final

from bench.chaos.work import command

BY_HAND: Final = "by-hand"
"""Started by clients, one run a request."""

LONG: Final = ("long-1", "long-2", "long-3", "long-4", "long-grace", "long-again")
"""Started by clients whenever they do not run: minutes of work, saved now and then."""

FAILING: Final = "failing"
"""The one whose first attempts are told to fail."""

COUNTER: Final = "counter"
"""Changed by clients again and again; its params say how often."""


ENDS: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys(("skip", "queue", "allow", "all", "cron", FAILING, "program", "always"), frozenset({"succeeded"})),
    "replace": frozenset({"succeeded", "cancelled"}),
    "slow": frozenset({"timed_out"}),
    **dict.fromkeys(("abandon", "twice"), frozenset({"succeeded", "abandoned"})),
    BY_HAND: frozenset({"succeeded"}),
    **dict.fromkeys(LONG, frozenset({"succeeded", "cancelled"})),
}
"""How the runs of each task may end, besides those that are skipped or missed. The others are never run."""

NEEDED: Final[dict[str, frozenset[str]]] = {
    **{name: frozenset({"succeeded"}) for name in ENDS if name not in ("slow", *LONG)},
    "replace": frozenset({"cancelled"}),
    "slow": frozenset({"timed_out"}),
}
"""And how some of them do end in every trial of some length."""


def tasks(records: Path) -> dict[str, dict[str, Any]]:
    """The specs, by name."""

    def work(task: str, seconds: float, **more: Any) -> dict[str, Any]:
        return {"kind": "chaos", "params": {"record": str(records / task), "seconds": seconds, **more}}

    often = {"failover": {"max": 1000}}
    every = {
        "skip": {**work("skip", 1.2), "schedule": {"every_s": 2}, "overlap": "skip", "catch_up": "skip", **often},
        "queue": {**work("queue", 2.0), "schedule": {"every_s": 3}, "overlap": "queue", "catch_up": "latest", **often},
        "replace": {**work("replace", 8.0), "schedule": {"every_s": 5}, "overlap": "replace", **often},
        "allow": {**work("allow", 3.0), "schedule": {"every_s": 2}, "overlap": "allow", "catch_up": "all", **often},
        "all": {**work("all", 0.5), "schedule": {"every_s": 4}, "overlap": "queue", "catch_up": "all", **often},
        "cron": {**work("cron", 1.0), "schedule": {"cron": "*/7 * * * * *"}, "overlap": "skip", **often},
        "slow": {**work("slow", 4.0), "schedule": {"every_s": 9}, "timeout_s": 1, "retry": {"attempts": 1}, **often},
        "abandon": {**work("abandon", 4.0), "schedule": {"every_s": 6}, "failover": {"resume": "abandon"}},
        "twice": {**work("twice", 6.0), "schedule": {"every_s": 11}, "failover": {"max": 2, "resume": "restart"}},
        FAILING: {
            **work(FAILING, 1.0, fail_attempts=2),
            "schedule": {"every_s": 8},
            "retry": {"attempts": 4, "backoff_s": 0.5, "factor": 2},
            **often,
        },
        "program": {
            "kind": "command",
            "params": {"argv": command(records / "program", 2.0)},
            "schedule": {"every_s": 3},
            **often,
        },
        "always": {**work("always", 20.0, save_every=20), "schedule": {"continuous": True}, **often},
    }
    by_hand = {
        BY_HAND: {**work(BY_HAND, 0.2), "overlap": "allow", **often},
        COUNTER: {**work(COUNTER, 0.1, marker=0)},
        # A save waits for the node: work that seldom saves would go on beside its successor, were it not frozen.
        **{
            name: {**work(name, 90, save_every=every), **often}
            for name, every in zip(LONG, (10, 10, 100, 100), strict=False)
        },
        LONG[-2]: {**work(LONG[-2], 90, save_every=100), "failover": {"max": 1000, "grace_s": 1.5}},
        LONG[-1]: {**work(LONG[-1], 90), "failover": {"max": 1000, "resume": "restart"}},
    }
    return every | by_hand


def note(records: Path, name: str, marker: int) -> dict[str, Any]:
    """A task that is only to be there."""
    return {"kind": "chaos", "params": {"record": str(records / name), "seconds": 0.1, "marker": marker}}
