"""What was acknowledged to clients, beside what is there in the end."""

from collections.abc import Mapping
from typing import Any, Final

from bench.chaos.clients import Promises
from bench.chaos.tasks import BY_HAND, COUNTER

LENGTH_S: Final = 60.0
"""In a trial of this length clients are promised something of each kind."""


def nothing_promised(told: Promises, length_s: float) -> list[str]:
    """The kinds of which nothing was promised in a trial of `length_s`: nothing of them could be broken."""
    had = {
        "registrations": len(told.there) + len(told.gone),
        "deletions": len(told.gone),
        "changes of the counter": told.counted,
        "runs by hand": len(told.runs),
        "long runs": told.long,
    }
    return [f"nothing was judged: no {what} were promised" for what, many in had.items() if not many] * (
        length_s >= LENGTH_S
    )


def promises(told: Promises, tasks: Mapping[str, Any], runs: Mapping[str, Any]) -> list[str]:
    """What was acknowledged and is not there, or the other way round. `tasks` by name, `runs` by id."""
    found = list(told.broken)
    for name, marker in told.there.items():
        if name not in tasks:
            found.append(f"{name} was acknowledged, and is not there")
        elif tasks[name]["params"]["marker"] != marker:
            found.append(f"{name} was acknowledged with marker {marker}, and is {tasks[name]['params']}")
    found += [f"{name} was deleted, and is there" for name in sorted(told.gone & tasks.keys())]
    counter = tasks[COUNTER]["params"]["marker"] if COUNTER in tasks else None
    if counter is None or not told.counted <= counter <= told.tried:
        found.append(f"{COUNTER} was acknowledged up to {told.counted} of {told.tried}, and is at {counter}")
    for key, run in told.runs.items():
        if run not in runs:
            found.append(f"{run} was promised (key {key}), and nobody knows of it")
        elif runs[run]["state"] != "succeeded":
            found.append(f"{run} was promised, and {runs[run]['state']}: {runs[run]['error']}")
    by_hand = sum(run["task"] == BY_HAND for run in runs.values())
    if by_hand > told.keys:
        found.append(f"{told.keys} runs of {BY_HAND} were asked for, and {by_hand} made")
    return found
