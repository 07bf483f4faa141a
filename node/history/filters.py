"""Filters of lists of finished runs, as SQL conditions that never scan a million rows to find a few. Pure."""

from typing import Final, NamedTuple

COMMON: Final = "succeeded"
"""The most common final state. The others have an index of their own: a scan for them in a million took ten seconds."""


class RunPosition(NamedTuple):
    """A position in a list of runs that is sorted newest first, by creation time and then by id."""

    created_at_us: int
    run_id: str


def conditions(task: str | None, state: str | None, node: str | None) -> list[str]:
    """SQL conditions with which SQLite uses the most selective index: a `+` keeps it from using another one.

    >>> conditions("a", "failed", None), conditions(None, "failed", "b")
    (['task = :task', '+state = :state'], ['state = :state', "state <> 'succeeded'", '+node = :node'])
    """
    wanted: list[str] = []
    if task is not None:
        wanted.append("task = :task")
    if state not in (None, COMMON):
        # SQLite uses the partial index only if the query has the very condition of the index.
        wanted += ["+state = :state"] if wanted else ["state = :state", f"state <> '{COMMON}'"]
    if node is not None:
        wanted.append("+node = :node" if wanted else "node = :node")
    if state == COMMON:
        wanted.append("+state = :state")
    return wanted
